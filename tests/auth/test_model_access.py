"""Which names are models, and for whom."""

import pytest

from gateway.auth.model_access import ModelAccess
from gateway.core.call import CHAT, Call, Candidate, Credentials, Route
from gateway.core.caller import Caller
from gateway.core.errors import MODEL_NOT_ALLOWED, MODEL_NOT_FOUND

SMALL, LARGE = (
    Route(name, f'"{name}"'.encode(), (Candidate("local", name, f'"{name}"'.encode()),))
    for name in ("small", "org/large")
)
ONLY_SMALL = Caller("team-a", frozenset({"small"}))


@pytest.fixture
def gate() -> ModelAccess:
    return ModelAccess({"small": SMALL, "org/large": LARGE})


def call(model: str, caller: Caller | None) -> Call:
    one = Call(CHAT, "id", Credentials(None, None, None), 1.0)
    one.model, one.caller = model, caller
    return one


@pytest.mark.parametrize(
    ("model", "caller", "route"),
    [
        ("small", ONLY_SMALL, SMALL),
        ("small", Caller("all", None), SMALL),
        ("org/large", Caller("all", None), LARGE),
        ("org/large", None, LARGE),
    ],
)
def test_an_allowed_model_finds_its_route(gate: ModelAccess, model: str, caller: Caller | None, route: Route):
    one = call(model, caller)
    assert gate.admit(one, 1.0) is None
    assert one.route is route


@pytest.mark.parametrize("caller", [ONLY_SMALL, Caller("all", None), Caller("none", frozenset()), None])
@pytest.mark.parametrize("model", ["unknown", "small ", " small", "Small", "smal", "small\n", "large", ""])
def test_a_name_matches_exactly_or_is_not_found(gate: ModelAccess, model: str, caller: Caller | None):
    one = call(model, caller)
    refusal = gate.admit(one, 1.0)
    assert refusal is not None
    assert (refusal.kind, refusal.param) == (MODEL_NOT_FOUND, "model")
    assert f"`{model}`" in refusal.message
    assert one.route is None


@pytest.mark.parametrize("caller", [ONLY_SMALL, Caller("none", frozenset())])
def test_a_model_of_others_is_forbidden_and_not_unknown(gate: ModelAccess, caller: Caller):
    one = call("org/large", caller)
    refusal = gate.admit(one, 1.0)
    assert refusal is not None
    assert (refusal.kind, refusal.param) == (MODEL_NOT_ALLOWED, "model")
    assert "`org/large`" in refusal.message
    assert one.route is None


def test_a_name_of_many_megabytes_does_not_come_back(gate: ModelAccess):
    refusal = gate.admit(call("x" * 1_000_000, None), 1.0)
    assert refusal is not None
    assert len(refusal.message) < 500
