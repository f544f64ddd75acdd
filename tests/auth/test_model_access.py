"""Which model names resolve, and for which keys."""

import pytest
from kit.calls import make_call

from gateway.auth.authenticate import ANONYMOUS
from gateway.auth.model_access import ModelAccess
from gateway.auth.model_names import ModelNames
from gateway.core.call import UNROUTED, Candidate, Route
from gateway.core.caller import Caller
from gateway.core.errors import MODEL_NOT_ALLOWED, MODEL_NOT_FOUND

SMALL, LARGE = (
    Route(name, f'"{name}"'.encode(), (Candidate("local", name, f'"{name}"'.encode()),))
    for name in ("small", "org/large")
)
ONLY_SMALL = Caller("team-a", frozenset({"small"}))


@pytest.fixture
def gate() -> ModelAccess:
    return ModelAccess(ModelNames({"small": SMALL, "org/large": LARGE}, {"org/large": ["big", "vast-*"]}))


@pytest.mark.parametrize(
    ("model", "caller", "route"),
    [
        ("small", ONLY_SMALL, SMALL),
        ("small", Caller("all", None), SMALL),
        ("org/large", Caller("all", None), LARGE),
        ("org/large", ANONYMOUS, LARGE),
    ],
)
def test_an_allowed_model_finds_its_route(gate: ModelAccess, model: str, caller: Caller, route: Route):
    call = make_call(model=model, caller=caller)
    assert gate.admit(call, 1.0) is None
    assert call.routing.route is route


@pytest.mark.parametrize("caller", [ONLY_SMALL, Caller("all", None), Caller("none", frozenset()), ANONYMOUS])
@pytest.mark.parametrize("model", ["unknown", "small ", " small", "Small", "smal", "small\n", "large", ""])
def test_a_name_matches_exactly_or_is_not_found(gate: ModelAccess, model: str, caller: Caller):
    call = make_call(model=model, caller=caller)
    rejection = gate.admit(call, 1.0)
    assert rejection is not None
    assert (rejection.kind, rejection.param) == (MODEL_NOT_FOUND, "model")
    assert f"`{model}`" in rejection.message
    assert call.routing.route is UNROUTED


@pytest.mark.parametrize("caller", [ONLY_SMALL, Caller("none", frozenset())])
def test_a_model_that_the_key_may_not_use_is_forbidden_not_unknown(gate: ModelAccess, caller: Caller):
    call = make_call(model="org/large", caller=caller)
    rejection = gate.admit(call, 1.0)
    assert rejection is not None
    assert (rejection.kind, rejection.param) == (MODEL_NOT_ALLOWED, "model")
    assert "`org/large`" in rejection.message
    assert call.routing.route is UNROUTED


@pytest.mark.parametrize("asked", ["big", "vast-1"])
def test_a_right_to_a_model_is_one_to_its_aliases(gate: ModelAccess, asked: str):
    call = make_call(model=asked, caller=Caller("all", frozenset({"org/large"})))
    assert gate.admit(call, 1.0) is None
    routing = call.routing
    assert (routing.route.name, routing.route.encoded) == ("org/large", f'"{asked}"'.encode())
    assert (routing.candidate, call.request.model) == (LARGE.candidates[0], asked)


@pytest.mark.parametrize("asked", ["big", "vast-1"])
def test_an_alias_opens_no_model(gate: ModelAccess, asked: str):
    named_like_it = Caller("a", frozenset({"small", asked}))
    rejection = gate.admit(make_call(model=asked, caller=named_like_it), 1.0)
    assert rejection is not None
    assert rejection.kind is MODEL_NOT_ALLOWED
    assert rejection.message == f"This API key may not use the model `org/large`, which `{asked}` is an alias of."


def test_a_huge_name_is_truncated_in_the_message(gate: ModelAccess):
    rejection = gate.admit(make_call(model="x" * 1_000_000), 1.0)
    assert rejection is not None
    assert len(rejection.message) < 500
