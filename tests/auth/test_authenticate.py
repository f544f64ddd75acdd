"""Who is let in with which headers."""

import hashlib

import pytest

from gateway.auth.authenticate import LONGEST_KEY, Authenticate
from gateway.core.call import CHAT, Call, Credentials
from gateway.core.caller import Caller
from gateway.core.errors import INVALID_API_KEY, Rejection

KEY = "sk-team-a-0123456789"
LONG = "k" * LONGEST_KEY
FOREIGN = "sl\u00fcssel-\u9375"
A, B, C, D = (Caller(name, None) for name in "abcd")
OTHER_KEY = "sk-team-b-0123456789"


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


@pytest.fixture
def gate() -> Authenticate:
    return Authenticate({digest(KEY): A, digest(OTHER_KEY): B, digest(LONG): C, digest(FOREIGN): D})


def call(authorization: str | None = None, x_api_key: str | None = None, api_key: str | None = None) -> Call:
    return Call(CHAT, "id", Credentials(authorization, x_api_key, api_key), 1.0)


def refused(gate: Authenticate, one: Call) -> Rejection:
    """The refusal; asserts that it names nobody."""
    refusal = gate.admit(one, 1.0)
    assert refusal is not None
    assert refusal.kind is INVALID_API_KEY
    assert one.caller is None
    return refusal


@pytest.mark.parametrize(
    "one",
    [
        call(f"Bearer {KEY}"),
        call(f"bearer {KEY}"),
        call(f"BEARER   {KEY} "),
        call(x_api_key=KEY),
        call(api_key=KEY),
        call(f"Bearer {KEY}", KEY, KEY),
        call(None, KEY, KEY),
        call("", KEY, ""),
    ],
)
def test_a_key_in_any_of_the_three_headers_names_its_caller(gate: Authenticate, one: Call):
    assert gate.admit(one, 1.0) is None
    assert one.caller is A


@pytest.mark.parametrize(("key", "caller"), [(OTHER_KEY, B), (LONG, C), (FOREIGN, D)])
def test_every_key_has_its_own_caller(gate: Authenticate, key: str, caller: Caller):
    one = call(f"Bearer {key}")
    assert gate.admit(one, 1.0) is None
    assert one.caller is caller


WRONG = [
    call(),
    call("", "", ""),
    call("Bearer wrong"),
    call(x_api_key="wrong"),
    call(api_key="wrong"),
    call("Bearer"),
    call("Bearer "),
    call(KEY),
    call(f"Basic {KEY}"),
    call(f"Bearer{KEY}"),
    call(f"Bearer {KEY} {KEY}"),
    call(f"Bearer {KEY[:-1]}"),
    call(f"Bearer {KEY}x"),
    call(f"Bearer {KEY.upper()}"),
    call("Bearer " + LONG + "k"),
    call("Bearer " + "k" * 1_000_000),
    call("Bearer schl\u00fcssel"),
    call("Bearer \udcff\udcfe"),
    call(f"Bearer {digest(KEY).hex()}"),
]


@pytest.mark.parametrize("one", WRONG, ids=range(len(WRONG)))
def test_missing_and_wrong_keys_get_one_and_the_same_answer(gate: Authenticate, one: Call):
    assert refused(gate, one) == refused(gate, call())


def test_the_answer_tells_how_to_send_a_key(gate: Authenticate):
    refusal = refused(gate, call())
    assert "Authorization: Bearer" in refusal.message
    assert ("www-authenticate", "Bearer") in refusal.headers


@pytest.mark.parametrize(
    "one",
    [
        call(f"Bearer {KEY}", OTHER_KEY),
        call(f"Bearer {KEY}", None, OTHER_KEY),
        call(None, KEY, OTHER_KEY),
        call(f"Bearer {KEY}", KEY, OTHER_KEY),
        call("Bearer wrong", KEY),
        call("Basic dTpw", KEY),
    ],
)
def test_two_keys_that_differ_are_a_contradiction(gate: Authenticate, one: Call):
    assert "two different" in refused(gate, one).message


def test_a_key_too_long_to_be_one_is_not_one_even_if_it_were_known():
    known = LONG + "k"
    refused(Authenticate({digest(known): A}), call(f"Bearer {known}"))


@pytest.mark.parametrize("one", [call(), call("Bearer anything"), call("Basic x", "a", "b")])
def test_without_configured_keys_everybody_may_call(one: Call):
    assert Authenticate({}).admit(one, 1.0) is None
    assert one.caller is not None
    assert one.caller.models is None


def test_no_key_is_kept(gate: Authenticate):
    assert KEY not in repr(vars(gate))


def test_a_header_that_is_known_lets_in_nobody_else(gate: Authenticate):
    for _ in range(2):
        one = call(f"Bearer {KEY}")
        assert gate.admit(one, 1.0) is None
        assert one.caller is A
    refused(gate, call(f"Bearer {KEY}x"))
    refused(gate, call(f"Bearer {KEY}", OTHER_KEY))
    refused(gate, call(f"Bearer {KEY}", None, "wrong"))
    refused(gate, call(None, "wrong"))
    refused(gate, call())
    anew = Authenticate({digest(OTHER_KEY): B})
    refused(anew, call(f"Bearer {KEY}"))


def test_what_is_known_is_bounded_whatever_a_right_key_is_spelled_like(gate: Authenticate):
    for blanks in range(5000):
        assert gate.admit(call(f"Bearer {' ' * blanks}{KEY}"), 1.0) is None
    assert len(gate._known) <= 4096
