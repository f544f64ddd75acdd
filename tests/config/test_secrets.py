"""No secret of a config is ever printed."""

import io

import pytest
from sample_configs import MINIMAL

from gateway.cli import check
from gateway.config.show import as_yaml, effective

CANARY = "canary-0123456789abcdef"
HEX = "c0ffee" * 10 + "abcd"
SECRETS = f"""\
redis: {{url: "redis://user:{CANARY}@127.0.0.1:6379/0?password={CANARY}"}}
keys:
  - {{name: a, key: {CANARY}}}
  - {{name: b, key_sha256: {HEX}}}
  - {{name: c, key: "${{FROM_ENV}}"}}
upstreams:
  local:
    base_url: "http://127.0.0.1:8000/v1"
    api_key: {CANARY}
    headers:
      x-api-key: {CANARY}
      API-KEY: {CANARY}
      Cookie: {CANARY}
      x-auth: {CANARY}
      x-my-Token: {CANARY}
      x-secret-thing: {CANARY}
      x-jwt: {CANARY}
      cf-access: {CANARY}
      X-Title: shown
models:
  small: {{candidates: [{{upstream: local}}]}}
"""
ENVIRON = {"FROM_ENV": CANARY + "-env"}


def test_a_config_does_not_print_its_secrets(good):
    loaded = good(SECRETS, ENVIRON)
    config = loaded.config
    for text in (
        repr(loaded),
        str(config),
        repr(config.keys[0]),
        f"{config.upstreams}",
        str(effective(config)),
    ):
        assert CANARY not in text
        assert HEX not in text
    assert config.keys[2].key.reveal() == CANARY + "-env"


def test_secrets_are_masked_and_the_rest_is_shown(good):
    config = good(SECRETS, ENVIRON).config
    shown = effective(config)
    assert CANARY not in as_yaml(config)
    assert HEX not in as_yaml(config)
    assert shown["redis"]["url"] == "redis://user:***@127.0.0.1:6379/0?***"
    assert [key["key"] for key in shown["keys"]] == ["***", None, "***"]
    assert shown["keys"][1]["key_sha256"] == "***"
    assert shown["upstreams"]["local"]["api_key"] == "***"
    assert shown["upstreams"]["local"]["headers"] == {
        "x-api-key": "***",
        "API-KEY": "***",
        "Cookie": "***",
        "x-auth": "***",
        "x-my-Token": "***",
        "x-secret-thing": "***",
        "x-jwt": "***",
        "cf-access": "***",
        "X-Title": "shown",
    }


def test_a_redis_address_without_a_password_is_shown_in_full(good):
    config = good(MINIMAL + "redis: {url: 'rediss://r.example:6380/2'}\n").config
    assert effective(config)["redis"]["url"] == "rediss://r.example:6380/2"


@pytest.mark.parametrize(
    "text",
    [
        MINIMAL + f"keys: [{{name: a, key: 'x {CANARY}'}}, {{name: b, key_sha256: {CANARY}}}]\n",
        MINIMAL + f"keys: [{CANARY}, [{CANARY}]]\n",
        MINIMAL + f"keys: {CANARY}\n",
        MINIMAL + f"redis: {{url: '{CANARY}'}}\n",
        MINIMAL + f"redis: {CANARY}\n",
        MINIMAL.replace("http://", f"http://user:{CANARY}@"),
        MINIMAL.replace('/v1"', f'/v1", api_key: "a {CANARY}"'),
        MINIMAL.replace('/v1"', f'/v1", api_key: [{CANARY}]'),
        MINIMAL.replace('/v1"', f'/v1", headers: {{x-key: "{CANARY} é"}}'),
        MINIMAL.replace('/v1"', f'/v1", headers: {CANARY}'),
        MINIMAL + f"keys: [{{name: a, key: *{CANARY}}}]\n",
        MINIMAL + f"keys: [{{name: a, key: !{CANARY}}}]\n",
        MINIMAL + f"keys: [{{name: a, key: !{CANARY}!x y}}]\n",
        MINIMAL + f"keys: [{{name: a, key: &{CANARY} 1}}, {{name: &{CANARY} b}}]\n",
        MINIMAL + f"keys: [{{name: a, key: @{CANARY}}}]\n",
        MINIMAL + f"keys: [{{name: a, key: '{CANARY}]\n",
        MINIMAL + f"keys: [{{name: a, key: '${{{CANARY}}}'}}]\n",
    ],
)
def test_problems_quote_no_secret(load_text, text):
    loaded = load_text(text)
    assert loaded.problems
    for problem in loaded.problems:
        assert CANARY not in str(problem)


def test_check_prints_no_secret(tmp_path):
    path = tmp_path / "sluice.yaml"
    path.write_text(SECRETS, encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    assert check.run(path, True, False, out=out, err=err, environ=ENVIRON) == 0
    assert CANARY not in out.getvalue() + err.getvalue()
    assert "***" in out.getvalue()
