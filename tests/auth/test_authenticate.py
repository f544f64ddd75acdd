"""Which credentials authenticate a request."""

import hashlib

import pytest

from gateway.auth.authenticate import LONGEST_KEY, Authenticate
from gateway.core.call import Call, ClientRequest, Credentials
from gateway.core.caller import STRANGER, Caller
from gateway.core.errors import INVALID_API_KEY, Rejection
from gateway.wire.openai.chat import CHAT

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


def make_call(authorization: str | None = None, x_api_key: str | None = None, api_key: str | None = None) -> Call:
    return Call(ClientRequest(CHAT, "id", Credentials(authorization, x_api_key, api_key)), 1.0)


def rejected(gate: Authenticate, call: Call) -> Rejection:
    """The rejection; asserts that no caller was set."""
    rejection = gate.admit(call, 1.0)
    assert rejection is not None
    assert rejection.kind is INVALID_API_KEY
    assert call.caller is STRANGER
    return rejection


@pytest.mark.parametrize(
    "call",
    [
        make_call(f"Bearer {KEY}"),
        make_call(f"bearer {KEY}"),
        make_call(f"BEARER   {KEY} "),
        make_call(x_api_key=KEY),
        make_call(api_key=KEY),
        make_call(f"Bearer {KEY}", KEY, KEY),
        make_call(None, KEY, KEY),
        make_call("", KEY, ""),
    ],
)
def test_a_key_in_any_of_the_three_headers_names_its_caller(gate: Authenticate, call: Call):
    assert gate.admit(call, 1.0) is None
    assert call.caller is A


@pytest.mark.parametrize(("key", "caller"), [(OTHER_KEY, B), (LONG, C), (FOREIGN, D)])
def test_every_key_has_its_own_caller(gate: Authenticate, key: str, caller: Caller):
    call = make_call(f"Bearer {key}")
    assert gate.admit(call, 1.0) is None
    assert call.caller is caller


WRONG = [
    make_call(),
    make_call("", "", ""),
    make_call("Bearer wrong"),
    make_call(x_api_key="wrong"),
    make_call(api_key="wrong"),
    make_call("Bearer"),
    make_call("Bearer "),
    make_call(KEY),
    make_call(f"Basic {KEY}"),
    make_call(f"Bearer{KEY}"),
    make_call(f"Bearer {KEY} {KEY}"),
    make_call(f"Bearer {KEY[:-1]}"),
    make_call(f"Bearer {KEY}x"),
    make_call(f"Bearer {KEY.upper()}"),
    make_call("Bearer " + LONG + "k"),
    make_call("Bearer " + "k" * 1_000_000),
    make_call("Bearer schl\u00fcssel"),
    make_call("Bearer \udcff\udcfe"),
    make_call(f"Bearer {digest(KEY).hex()}"),
]


@pytest.mark.parametrize("call", WRONG, ids=range(len(WRONG)))
def test_missing_and_wrong_keys_get_the_same_answer(gate: Authenticate, call: Call):
    assert rejected(gate, call) == rejected(gate, make_call())


def test_the_answer_says_how_to_send_a_key(gate: Authenticate):
    rejection = rejected(gate, make_call())
    assert "Authorization: Bearer" in rejection.message
    assert ("www-authenticate", "Bearer") in rejection.headers


@pytest.mark.parametrize(
    "call",
    [
        make_call(f"Bearer {KEY}", OTHER_KEY),
        make_call(f"Bearer {KEY}", None, OTHER_KEY),
        make_call(None, KEY, OTHER_KEY),
        make_call(f"Bearer {KEY}", KEY, OTHER_KEY),
        make_call("Bearer wrong", KEY),
        make_call("Basic dTpw", KEY),
    ],
)
def test_two_keys_that_differ_are_a_contradiction(gate: Authenticate, call: Call):
    assert "two different" in rejected(gate, call).message


def test_a_key_that_is_too_long_is_rejected_even_if_it_is_configured():
    key = LONG + "k"
    rejected(Authenticate({digest(key): A}), make_call(f"Bearer {key}"))


@pytest.mark.parametrize("call", [make_call(), make_call("Bearer anything"), make_call("Basic x", "a", "b")])
def test_without_configured_keys_every_request_is_admitted(call: Call):
    assert Authenticate({}).admit(call, 1.0) is None
    assert call.caller is not None
    assert call.caller.models is None


def test_no_key_is_stored(gate: Authenticate):
    assert KEY not in repr(vars(gate))


def test_a_cached_header_authenticates_no_other_header(gate: Authenticate):
    for _ in range(2):
        call = make_call(f"Bearer {KEY}")
        assert gate.admit(call, 1.0) is None
        assert call.caller is A
    rejected(gate, make_call(f"Bearer {KEY}x"))
    rejected(gate, make_call(f"Bearer {KEY}", OTHER_KEY))
    rejected(gate, make_call(f"Bearer {KEY}", None, "wrong"))
    rejected(gate, make_call(None, "wrong"))
    rejected(gate, make_call())
    other_gate = Authenticate({digest(OTHER_KEY): B})
    rejected(other_gate, make_call(f"Bearer {KEY}"))


def test_the_header_cache_is_bounded_however_a_key_is_spelled(gate: Authenticate):
    for blanks in range(5000):
        assert gate.admit(make_call(f"Bearer {' ' * blanks}{KEY}"), 1.0) is None
    assert len(gate._by_header) <= 4096
