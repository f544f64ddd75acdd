"""`auth.jwt`: what `sluice check` says of mistakes, and what `check --connect` finds."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from doubles.identity_provider import IdentityProvider, SigningKey
from sample_configs import MINIMAL

from gateway.assembly.cascade import checked
from gateway.cli import check as command
from gateway.cli.check_providers import ask_providers
from gateway.config.load import Loaded, load

Problems = Callable[..., dict[str, str]]
Load = Callable[..., Loaded]
KEYS = "keys: [{name: team-a, key: abcdefgh}, {name: 'sso:x', key: abcdefgi}]\n"


def entry(**fields: object) -> str:
    usual = {"name": "s", "issuer": "https://i", "audience": "a", "jwks_url": "https://i/keys", "map": {"g": "team-a"}}
    return yaml.safe_dump({name: value for name, value in (usual | fields).items() if value is not None})


def jwt(*entries: str) -> str:
    return MINIMAL + KEYS + yaml.safe_dump({"auth": {"jwt": [yaml.safe_load(one) for one in entries]}})


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([entry(map={"g": "team-b"})], {"auth.jwt[0].map.g": 'no key named "team-b"; did you mean "team-a"?'}),
        ([entry(map={})], {"auth.jwt[0].map": "map at least one group to a key"}),
        ([entry(map=None)], {"auth.jwt[0].map": "required, but missing"}),
        ([entry(jwks_url=None)], {"auth.jwt[0].jwks_url": "give either jwks_url or jwks_file"}),
        ([entry(jwks_file="k.json")], {"auth.jwt[0].jwks_url": "give either jwks_url or jwks_file"}),
        ([entry(algorithms=["none"])], {"auth.jwt[0].algorithms[0]": "must be one of RS256, "}),
        ([entry(algorithms=["HS256"])], {"auth.jwt[0].algorithms[0]": 'found "HS256"; did you mean "'}),
        ([entry(algorithms=[])], {"auth.jwt[0].algorithms": "name at least one, such as RS256"}),
        ([entry(jwks_url="http://i.example/keys")], {"auth.jwt[0].jwks_url": "must begin with https://"}),
        ([entry(jwks_url="https://u:p@i/keys")], {"auth.jwt[0].jwks_url": "must be a plain address without user"}),
        (
            [entry(jwks_url="http://127.0.0.1:1/keys", ca_file="ca.pem")],
            {"auth.jwt[0].ca_file": "only a jwks_url with https:// has a certificate"},
        ),
        ([entry(), entry(issuer="https://j")], {"auth.jwt[1].name": 'auth.jwt[0] has the name "s" too'}),
        ([entry(name="sso")], {"auth.jwt[0].name": 'callers get names like that of the key "sso:x"'}),
        ([entry(jwksurl="x")], {"auth.jwt[0].jwksurl": "unknown field; did you mean jwks_url?"}),
        ([entry(issuer=None)], {"auth.jwt[0].issuer": "required, but missing"}),
    ],
    ids=range(15),
)
def test_mistakes_are_named_with_their_place(entries: list[str], said: dict[str, str], problems_of: Problems) -> None:
    problems = problems_of(jwt(*entries))
    assert problems.keys() == said.keys()
    for place, message in said.items():
        assert message in problems[place]


def test_a_good_entry_has_the_documented_defaults(good: Callable[..., Loaded]) -> None:
    loaded = good(jwt(entry()))
    assert loaded.config is not None
    (provider,) = loaded.config.auth.jwt
    assert (provider.key_from, provider.groups_from, provider.algorithms) == ("sub", "groups", ("RS256", "ES256"))
    assert good(jwt(entry(jwks_url="http://localhost:1/keys"))).config
    assert good(
        MINIMAL + KEYS + "auth: {jwt: [" + json.dumps(yaml.safe_load(entry()) | {"key_from": None}) + "]}"
    ).config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        ("", "is no JSON"),
        ('{"keys": [{"kty": "oct", "k": "AAAA"}]}', "has no public key"),
        (json.dumps({"keys": [SigningKey("k").jwk()]}), None),
    ],
    ids=range(4),
)
def test_a_file_of_keys_is_read_by_check(text: str | None, said: str | None, load_text: Load, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    loaded = checked(load_text(jwt(entry(jwks_url=None, jwks_file=str(file)))))
    if said is None:
        assert loaded.problems == []
    else:
        assert [problem.path for problem in loaded.problems] == ["auth.jwt[0].jwks_file"]
        assert said in str(loaded.problems[0])


async def found(provider: IdentityProvider, load_text: Load, **fields: object) -> list[str]:
    loaded = load_text(jwt(entry(jwks_url=provider.url, **fields)))
    assert loaded.config is not None, loaded.problems
    return [f"{finding.good}: {finding}" for finding in await ask_providers(loaded.config)]


async def test_connect_fetches_the_keys_and_says_what_is_wrong(load_text: Load) -> None:
    async with IdentityProvider(SigningKey("a"), SigningKey("b", "P-256")) as provider:
        assert await found(provider, load_text) == ["True: auth.jwt[0]: ok, 2 signing keys"]
        assert await found(provider, load_text, algorithms=["ES384"]) == [
            "False: auth.jwt[0]: has no key for ES384; check algorithms"
        ]
        provider.status = 404
        assert await found(provider, load_text) == ["False: auth.jwt[0]: jwks_url answers with status 404"]
        provider.status, provider.body = 200, b"<html>"
        assert await found(provider, load_text) == ["False: auth.jwt[0]: what its key set's address answers is no JSON"]
        provider.away = True
        assert await found(provider, load_text) == ["False: auth.jwt[0]: jwks_url does not answer in well-formed HTTP"]
    assert (await found(provider_at(1), load_text))[0].startswith("False: auth.jwt[0]: jwks_url cannot be reached")


def provider_at(port: int) -> IdentityProvider:
    class _Nowhere(IdentityProvider):
        url = f"http://127.0.0.1:{port}/keys"

    return _Nowhere()


def test_connect_fails_the_command(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text(jwt(entry(jwks_url="http://127.0.0.1:1/keys")), encoding="utf-8")
    assert load(file, {}).problems == []
    out, err = io.StringIO(), io.StringIO()
    assert command.run(file, False, True, out, err, {}) == 2
    assert "auth.jwt[0]: jwks_url cannot be reached" in err.getvalue()
