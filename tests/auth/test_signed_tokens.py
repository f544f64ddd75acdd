"""Which tokens of an identity provider name a caller: signature, times, issuer, audience, groups and subject."""

import asyncio
import hashlib
import json
from typing import Any

import pytest
from doubles.identity_provider import AUDIENCE, ISSUER, SigningKey, b64, claims, hs256

from gateway.auth import signed_tokens
from gateway.auth.authenticate import LONGEST_KEY, UNAUTHENTICATED, Authenticate, RefusedTokenError
from gateway.auth.jwks_store import JwksStore, KeysUnavailableError
from gateway.auth.signed_tokens import SignedTokens, TokenProvider
from gateway.auth.signing_keys import NoSigningKeysError, SigningKeys
from gateway.auth.token_verifier import LEEWAY_S, TokenVerifier
from gateway.core.call import Call, ClientRequest, Credentials
from gateway.core.caller import Caller
from gateway.core.errors import Rejection
from gateway.wire.openai.chat import CHAT

NOW = 1_800_000_000.0
RSA, EC, EC384 = SigningKey("r1"), SigningKey("e1", "P-256"), SigningKey("e2", "P-384")
STRANGER = SigningKey("s1")
ALGORITHMS = ("RS256", "ES256", "ES384")


class Source:
    """Keys that a test sets."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.keys = parsed(*keys)

    async def learn(self, now: float) -> bool:
        return False


def parsed(*keys: dict[str, Any]) -> SigningKeys:
    return SigningKeys.parse(json.dumps({"keys": keys}).encode())


def caller(name: str, label: str) -> Caller:
    return Caller(name, frozenset({"m"}), label=label)


def provider(source: Source, **changes: Any) -> TokenProvider:
    groups = {"eng": caller, "sales": caller}
    verifier = TokenVerifier(ISSUER, AUDIENCE, changes.pop("algorithms", ALGORITHMS))
    return TokenProvider("sso", verifier, source, "sub", "groups", groups)._replace(**changes)


def tokens(**changes: Any) -> SignedTokens:
    source = changes.pop("source", None) or Source(RSA.jwk(), EC.jwk(), EC384.jwk())
    return SignedTokens([provider(source, **changes)], lambda now: now)


def named(by: SignedTokens, token: str, now: float = NOW) -> str:
    return by.caller(token, hashlib.sha256(token.encode()).digest(), now).name


@pytest.mark.parametrize("key", [RSA, EC, EC384], ids=["RSA", "P-256", "P-384"])
def test_a_token_names_its_subject_and_its_group_is_the_label(key: SigningKey):
    token = key.sign(claims(NOW))
    found = tokens().caller(token, b"d", NOW)
    assert (found.name, found.label, found.models) == ("sso:eng/alice", "sso:eng", frozenset({"m"}))


def public_pem(key: SigningKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def tampered(token: str, **changes: Any) -> str:
    head, _, signature = token.split(".")
    return f"{head}.{b64(json.dumps(claims(NOW, **changes)).encode())}.{signature}"


def unsigned(**header: Any) -> str:
    return b64(json.dumps(header).encode()) + "." + b64(json.dumps(claims(NOW)).encode()) + "."


GOOD = RSA.sign(claims(NOW))
BAD = {
    "expired": RSA.sign(claims(NOW, exp=int(NOW) - LEEWAY_S - 1)),
    "without exp": RSA.sign(claims(NOW, exp=None)),
    "exp is text": RSA.sign(claims(NOW, exp="tomorrow")),
    "exp is no number": RSA.sign(claims(NOW, exp=float("nan"))),
    "exp is endless": RSA.sign(claims(NOW, exp=float("inf"))),
    "exp is true": RSA.sign(claims(NOW, exp=True)),
    "not valid yet": RSA.sign(claims(NOW, nbf=int(NOW) + LEEWAY_S + 1)),
    "nbf is text": RSA.sign(claims(NOW, nbf="now")),
    "nbf is no number": RSA.sign(claims(NOW, nbf=float("nan"))),
    "issued in the future": RSA.sign(claims(NOW, iat=int(NOW) + 3600)),
    "another audience": RSA.sign(claims(NOW, aud="other")),
    "other audiences": RSA.sign(claims(NOW, aud=["a", "b"])),
    "audience by prefix": RSA.sign(claims(NOW, aud=AUDIENCE + "x")),
    "audience is an object": RSA.sign(claims(NOW, aud={AUDIENCE: 1})),
    "without audience": RSA.sign(claims(NOW, aud=None)),
    "another issuer": RSA.sign(claims(NOW, iss="https://login.example.com/realms/b")),
    "without issuer": RSA.sign(claims(NOW, iss=None)),
    "issuer is a list": RSA.sign(claims(NOW, iss=[ISSUER])),
    "another's signature": STRANGER.sign(claims(NOW), {"kid": "r1"}),
    "another's key": STRANGER.sign(claims(NOW)),
    "changed claims": tampered(GOOD, sub="bob"),
    "changed group": tampered(GOOD, groups=["sales"]),
    "cut signature": GOOD[:-4],
    "no signature": GOOD.rpartition(".")[0] + ".",
    "alg none": unsigned(alg="none"),
    "alg None with a kid": unsigned(alg="None", kid="r1") + "AAAA",
    "HS256 with the public key": hs256(claims(NOW), public_pem(RSA), {"kid": "r1"}),
    "HS256 with the JWK": hs256(claims(NOW), json.dumps(RSA.jwk()).encode(), {"kid": "r1"}),
    "RS384, which is not allowed": RSA.sign(claims(NOW), algorithm="RS384"),
    "PS256, which is not allowed": RSA.sign(claims(NOW), algorithm="PS256"),
    "RS256 said of an EC key": EC.sign(claims(NOW), algorithm="RS256"),
    "ES256 said of an RSA key": RSA.sign(claims(NOW), algorithm="ES256"),
    "ES256 said of a P-384 key": EC384.sign(claims(NOW), algorithm="ES256"),
    "key in the header": STRANGER.sign(claims(NOW), {"jwk": STRANGER.jwk()}),
    "address of a key in the header": STRANGER.sign(claims(NOW), {"jku": "http://127.0.0.1:1/keys"}),
    "certificate in the header": STRANGER.sign(claims(NOW), {"x5u": "http://127.0.0.1:1/c", "x5c": ["AAAA"]}),
    "kid is a path": STRANGER.sign(claims(NOW), {"kid": "../../dev/null"}),
    "kid is a list": RSA.sign(claims(NOW), {"kid": ["r1"]}),
    "unknown critical header": RSA.sign(claims(NOW), {"crit": ["x"], "x": 1}),
    "unencoded payload": RSA.sign(claims(NOW), {"crit": ["b64"], "b64": False}),
    "claims are a list": RSA.sign([claims(NOW)]),
    "claims are text": RSA.sign("claims"),
    "deep claims": RSA.signed(b64(b'{"alg":"RS256","kid":"r1"}') + "." + b64(b"[" * 5000), "RS256"),
    "deep header": RSA.signed(b64(b"[" * 3000) + "." + b64(json.dumps(claims(NOW)).encode()), "RS256"),
    "no group is mapped": RSA.sign(claims(NOW, groups=["guests"])),
    "without groups": RSA.sign(claims(NOW, groups=None)),
    "groups are numbers": RSA.sign(claims(NOW, groups=[1, {"eng": 1}])),
    "without subject": RSA.sign(claims(NOW, sub=None)),
    "empty subject": RSA.sign(claims(NOW, sub="")),
    "subject of two lines": RSA.sign(claims(NOW, sub="a\nb")),
    "long subject": RSA.sign(claims(NOW, sub="a" * 129)),
    "encrypted": GOOD + ".AAAA.AAAA",
    "padded": GOOD + "=",
    "blank inside": GOOD.replace(".", ". ", 1),
    "plus and slash": GOOD[:-2] + "+/",
    "too long": RSA.sign(claims(NOW, filler="x" * 17_000)),
    "no token": "a.b.c",
}


def call_with(token: str) -> Call:
    return Call(ClientRequest(CHAT, "id", Credentials(f"Bearer {token}", None, None)), NOW)


def gate(by: SignedTokens) -> Authenticate:
    return Authenticate({hashlib.sha256(b"key-of-team-a").digest(): Caller("team-a", None)}, by)


@pytest.mark.parametrize("token", BAD.values(), ids=BAD)
def test_every_bad_token_gets_the_answer_of_a_wrong_key(token: str):
    by = tokens()
    for _ in range(2):
        rejection = gate(by).admit(call_with(token), NOW)
        assert rejection is not None
        assert sent(rejection) == sent(UNAUTHENTICATED)
        assert token not in str(rejection)


def sent(rejection: Rejection) -> tuple[object, ...]:
    """What the client gets of it."""
    return rejection.kind, rejection.message, rejection.param, rejection.headers, rejection.details


def test_there_are_bad_tokens_of_many_kinds_and_a_good_one_passes():
    assert len(set(BAD.values())) >= 30
    call = call_with(GOOD)
    assert gate(tokens()).admit(call, NOW) is None
    assert call.caller.name == "sso:eng/alice"


def test_keys_go_on_beside_tokens_and_stay_short():
    call = call_with("key-of-team-a")
    assert gate(tokens()).admit(call, NOW) is None
    assert call.caller.name == "team-a"
    long = "k" * (LONGEST_KEY + 1)
    two = Authenticate({hashlib.sha256(long.encode()).digest(): Caller("long", None)}, tokens())
    assert two.admit(call_with(long), NOW) is not None


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"aud": ["other", AUDIENCE]}, {}),
        ({"exp": int(NOW) - LEEWAY_S + 1}, {}),
        ({"nbf": int(NOW) + LEEWAY_S}, {}),
        ({"groups": "eng"}, {}),
        ({"groups": ["x", "eng", 3]}, {}),
        ({"groups": None, "realm_access": {"roles": ["eng"]}}, {"groups_from": "realm_access.roles"}),
        ({"groups": None, "https://a.b/groups": ["eng"]}, {"groups_from": "https://a.b/groups"}),
        ({"groups": None, "kubernetes.io": {"namespace": "eng"}}, {"groups_from": "kubernetes.io.namespace"}),
    ],
    ids=range(8),
)
def test_what_providers_do_differently_passes(changes: dict[str, Any], more: dict[str, Any]):
    assert named(tokens(**more), RSA.sign(claims(NOW, **changes))) == "sso:eng/alice"


def test_the_first_mapped_group_counts_and_the_star_is_everybody():
    assert named(tokens(), RSA.sign(claims(NOW, groups=["sales", "eng"]))) == "sso:eng/alice"
    everybody = tokens(groups={"eng": caller, "*": caller})
    assert named(everybody, RSA.sign(claims(NOW, groups=None))) == "sso:*/alice"
    assert named(everybody, RSA.sign(claims(NOW))) == "sso:eng/alice"


def test_without_key_from_a_group_is_one_caller():
    by = tokens(key_from=None)
    assert named(by, RSA.sign(claims(NOW, sub="alice"))) == named(by, RSA.sign(claims(NOW, sub=None))) == "sso:eng"


def test_no_two_identities_share_a_name():
    groups = {"eng": caller, "eng/a": caller}
    seen = [("eng", "a/b"), ("eng/a", "b"), ("eng", "a%2Fb"), ("eng", "é"), ("eng", "e")]
    names = {named(tokens(groups=groups), RSA.sign(claims(NOW, groups=[group], sub=sub))) for group, sub in seen}
    assert len(names) == len(seen)


def test_two_providers_of_one_issuer_are_both_asked():
    source = Source(RSA.jwk())
    other = provider(source, name="other", verifier=TokenVerifier(ISSUER, "second", ALGORITHMS))
    by = SignedTokens([provider(source), other], lambda now: now)
    assert named(by, RSA.sign(claims(NOW, aud="second"))) == "other:eng/alice"
    assert named(by, RSA.sign(claims(NOW))) == "sso:eng/alice"


def test_a_token_seen_before_is_not_verified_again_and_ends_with_its_time(monkeypatch: pytest.MonkeyPatch):
    by = tokens()
    assert named(by, GOOD) == "sso:eng/alice"
    verified: list[str] = []
    monkeypatch.setattr(TokenVerifier, "verify", lambda self, token, *_: verified.append(token))
    assert named(by, GOOD, NOW + 300 + LEEWAY_S - 1) == "sso:eng/alice"
    with pytest.raises(RefusedTokenError):
        named(by, GOOD, NOW + 300 + LEEWAY_S)
    assert verified == []


def test_a_token_whose_key_was_withdrawn_ends_at_once():
    source = Source(RSA.jwk(), EC.jwk())
    by = tokens(source=source)
    assert named(by, GOOD) == "sso:eng/alice"
    source.keys = parsed(EC.jwk())
    with pytest.raises(RefusedTokenError):
        named(by, GOOD)


def test_the_memory_of_tokens_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(signed_tokens, "MAX_CACHED_TOKENS", 3)
    by = tokens()
    for number in range(8):
        assert named(by, EC.sign(claims(NOW, sub=f"s{number}"))) == f"sso:eng/s{number}"
    assert len(by._seen) == 3
    assert GOOD not in repr(vars(by))


def test_keys_that_cannot_verify_are_skipped():
    weak = SigningKey("weak", bits=1024).jwk()
    secret = {"kty": "oct", "kid": "h1", "k": b64(b"secret" * 8)}
    encrypting = {**SigningKey("r2").jwk(), "use": "enc"}
    other = {"kty": "new", "kid": "n1"}
    broken = {"kty": "RSA", "kid": "b1", "n": "!", "e": 3}
    source = Source(weak, secret, encrypting, other, broken, 7, RSA.jwk())  # type: ignore[arg-type]
    by = tokens(source=source)
    assert named(by, GOOD) == "sso:eng/alice"
    for key in (SigningKey("weak", bits=1024), SigningKey("r2")):
        with pytest.raises(RefusedTokenError):
            named(by, key.sign(claims(NOW)))
    for useless in ([weak], [secret, other, broken, 7]):
        with pytest.raises(NoSigningKeysError):
            parsed(*useless)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"keys": {}}', b"<html>", b"[" * 5000, b'{"keys": []}'])
def test_a_text_that_is_no_key_set_is_refused(text: bytes):
    with pytest.raises(NoSigningKeysError):
        SigningKeys.parse(text)


def test_a_key_for_one_algorithm_verifies_no_other():
    only_384 = {**RSA.jwk(), "alg": "RS384"}
    with pytest.raises(RefusedTokenError):
        named(tokens(source=Source(only_384)), GOOD)


def test_keys_and_tokens_without_a_kid_find_each_other():
    nameless = SigningKey(None)
    assert named(tokens(source=Source(EC.jwk(), RSA.jwk(), nameless.jwk())), nameless.sign(claims(NOW)))


class Feed:
    """A place of keys that a test changes."""

    def __init__(self, *keys: SigningKey) -> None:
        self.text = json.dumps({"keys": [key.jwk() for key in keys]}).encode()
        self.fetched = 0
        self.away = False
        self.held: asyncio.Event | None = None

    async def __call__(self) -> bytes:
        self.fetched += 1
        if self.held is not None:
            await self.held.wait()
        if self.away:
            raise KeysUnavailableError("away")
        return self.text


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


Made = tuple[JwksStore, Feed, Time]


@pytest.fixture
def made() -> Made:
    feed, time = Feed(RSA), Time()
    return JwksStore("sso", feed, 300.0, time), feed, time


async def test_an_unknown_key_is_looked_for_once_a_minute(made: Made):
    store, feed, time = made
    await store.refresh()
    assert await store.learn(time.now)
    for later in (0.0, 1.0, 59.9):
        assert not await store.learn(time.now + later)
    assert feed.fetched == 2
    assert await store.learn(time.now + 60.0)
    assert feed.fetched == 3


async def test_callers_share_one_fetch_and_one_that_leaves_ends_it_for_none(made: Made):
    store, feed, time = made
    feed.held = asyncio.Event()
    waiting = [asyncio.create_task(store.learn(time.now)) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    feed.held.set()
    assert await asyncio.gather(*waiting[1:]) == [True] * 4
    assert feed.fetched == 1
    assert store.keys.matching("r1", "RS256")


async def test_while_the_provider_is_away_known_keys_go_on(made: Made):
    store, feed, _ = made
    await store.refresh()
    known = store.keys
    feed.away = True
    for _ in range(5):
        await store.refresh()
    feed.away, feed.text = False, b"<html>"
    await store.refresh()
    assert store.keys is known
    feed.text = json.dumps({"keys": [EC.jwk()]}).encode()
    await store.refresh()
    assert not store.keys.matching("r1", "RS256")
    assert store.keys.matching("e1", "ES256")


async def test_failures_are_retried_soon_and_successes_rest(made: Made):
    store, feed, time = made

    async def ticked() -> int:
        store.tick(time.now)
        if store._fetching is not None:
            await store._fetching
        return feed.fetched

    assert await ticked() == 1
    time.now += 299.0
    assert await ticked() == 1
    time.now += 1.0
    feed.away = True
    assert await ticked() == 2
    time.now += 4.9
    assert await ticked() == 2
    time.now += 0.1
    assert await ticked() == 3
    time.now += 9.9
    assert await ticked() == 3
    time.now += 0.1
    assert await ticked() == 4
    feed.away = False
    time.now += 20.0
    assert await ticked() == 5
    time.now += 299.0
    assert await ticked() == 5


async def test_the_same_text_makes_no_new_keys(made: Made):
    store, _, _ = made
    await store.refresh()
    before = store.keys
    await store.refresh()
    assert store.keys is before


def test_only_an_unknown_signing_key_is_worth_a_look():
    by = tokens()
    assert by.unknown_signer(STRANGER.sign(claims(NOW)), NOW) is not None
    assert by.unknown_signer(SigningKey(None).sign(claims(NOW)), NOW) is not None
    for name in (
        "expired",
        "another's signature",
        "another issuer",
        "alg none",
        "HS256 with the public key",
        "no token",
    ):
        assert by.unknown_signer(BAD[name], NOW) is None, name


def test_a_caller_is_found_again_by_its_name():
    groups = {"eng": caller, "eng/a": caller}
    by = tokens(groups=groups)
    for group, subject in [("eng", "a"), ("eng/a", "b"), ("eng", "x/y")]:
        name = named(by, RSA.sign(claims(NOW, groups=[group], sub=subject)))
        found = by.caller_named(name)
        assert found is not None
        assert (found.name, found.label) == (name, f"sso:{group}")
    for gone in ("team-a", "sso:", "sso:sales/alice", "other:eng/alice", "sso:eng"):
        assert by.caller_named(gone) is None
    shared = tokens(key_from=None).caller_named("sso:eng")
    assert shared is not None
    assert shared.name == "sso:eng"
