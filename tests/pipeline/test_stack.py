"""The order of the pipeline."""

import asyncio
import hashlib
from random import Random

import pytest

from gateway.auth.authenticate import Authenticate
from gateway.auth.model_names import ModelNames
from gateway.core.budget_calendar import Calendar
from gateway.core.call import Call, Candidate, ClientRequest, Credentials, Handler, Layer, Reply, Route, TokenEstimate
from gateway.core.caller import Caller
from gateway.core.errors import MODEL_NOT_ALLOWED, MODEL_NOT_FOUND, Rejection
from gateway.limits.key_limit_gate import KeyLimitGate
from gateway.pipeline.gates import admit
from gateway.pipeline.stack import Deps, Stack, build, compose
from gateway.queueing.layer import QueueLayer
from gateway.queueing.upstream_queue import UpstreamQueue
from gateway.queueing.waiting_room import WaitingRoom
from gateway.resilience.attempt import AttemptRunner, RetryMetrics, RetryPolicy, UpstreamHealth
from gateway.resilience.circuit_breaker import CircuitBreaker
from gateway.resilience.retry_budget import RetryBudget
from gateway.resilience.upstream_breakers import UpstreamBreakers
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.observe import RequestMetrics
from gateway.usage.accounting import UsageAccounting
from gateway.wire.openai.chat import CHAT

KEY = "sk-a"
REPLY = Reply(200, b"{}")
ROUTES = {
    name: Route(name, f'"{name}"'.encode(), (Candidate("local", name, f'"{name}"'.encode()),))
    for name in ("small", "large")
}


class Terminal:
    """Stands in for the upstream."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def __call__(self, call: Call) -> Reply | Rejection:
        self.calls.append(call)
        return REPLY


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def logged() -> list[Call]:
    return []


@pytest.fixture
def stack(terminal: Terminal, logged: list[Call]) -> Stack:
    callers = {hashlib.sha256(KEY.encode()).digest(): Caller("team-a", frozenset({"small"}))}
    metrics, calendar = Metrics(), Calendar("UTC", 0.0, 0.0)
    limit = KeyLimitGate(lambda call: TokenEstimate(1, 1, False), calendar, metrics)
    spend = UsageAccounting(calendar, lambda call: None, metrics, (), always=False)
    queues = {"local": UpstreamQueue("local", 1)}
    health = {
        "local": UpstreamHealth(
            UpstreamBreakers(lambda: CircuitBreaker(5, 1.0, 1.0, Random(1))), RetryBudget(0.1), 60.0
        )
    }
    counts = RetryMetrics(lambda *labels: lambda calls: None, *[lambda *labels: None] * 2)
    attempt = AttemptRunner(health, RetryPolicy(1, 0.0, 0.0), counts, lambda: 1.0, asyncio.sleep, Random(1))
    queue = QueueLayer(WaitingRoom(1), queues, lambda: 1.0, lambda upstream: lambda seconds: None, lambda call: None)
    return build(
        Deps(
            metrics,
            lambda call, now: logged.append(call),
            callers,
            ModelNames(ROUTES, {}),
            lambda inner: inner,
            limit,
            spend,
            attempt,
            queue,
            terminal,
        )
    )


def make_call(model: str = "small", key: str | None = KEY) -> Call:
    call = Call(ClientRequest(CHAT, "id", Credentials(None, key, None)), 1.0)
    call.request.model = model
    return call


def test_request_metrics_come_first_and_record_what_later_gates_reject(stack: Stack, logged: list[Call]):
    assert isinstance(stack.door[0], RequestMetrics)
    call = make_call(key="wrong")
    assert admit(stack.door, call, 1.0) is not None
    call.lease.settle(call, 2.0)
    assert logged == [call]


def test_authentication_comes_before_the_body_and_the_model(stack: Stack):
    assert any(isinstance(gate, Authenticate) for gate in stack.door)
    assert stack.entries.index("Authenticate") < stack.entries.index("ModelAccess")
    assert "ModelAccess" not in [type(gate).__name__ for gate in stack.door]


def test_the_entries_list_the_pipeline_and_end_with_the_terminal(stack: Stack):
    assert stack.entries[: len(stack.door)] == tuple(type(gate).__name__ for gate in stack.door)
    assert stack.entries[0] == "RequestMetrics"
    assert stack.entries[-1] == "Terminal"
    assert stack.entries.count("Terminal") == 1


async def test_an_admitted_call_reaches_the_terminal(stack: Stack, terminal: Terminal):
    call = make_call()
    assert admit(stack.door, call, 1.0) is None
    assert await stack.handle(call) is REPLY
    assert terminal.calls == [call]
    assert call.routing.route is ROUTES["small"]
    assert call.caller is not None
    assert call.caller.name == "team-a"


@pytest.mark.parametrize(("model", "kind"), [("unknown", MODEL_NOT_FOUND), ("large", MODEL_NOT_ALLOWED)])
async def test_a_call_for_a_model_that_the_key_may_not_use_does_not_reach_the_terminal(
    stack: Stack, terminal: Terminal, model: str, kind: object
):
    call = make_call(model)
    assert admit(stack.door, call, 1.0) is None
    rejection = await stack.handle(call)
    assert isinstance(rejection, Rejection)
    assert rejection.kind is kind
    assert terminal.calls == []


async def test_the_first_layer_is_outermost(terminal: Terminal):
    passed: list[str] = []

    def layer(name: str) -> Layer:
        def wrap(inner: Handler) -> Handler:
            async def handle(call: Call) -> Reply | Rejection:
                passed.append(f"{name} in")
                reply = await inner(call)
                passed.append(f"{name} out")
                return reply

            return handle

        return wrap

    assert await compose((layer("outer"), layer("inner")), terminal)(make_call()) is REPLY
    assert passed == ["outer in", "inner in", "inner out", "outer out"]


def test_without_layers_the_terminal_is_the_handler(terminal: Terminal):
    assert compose((), terminal) is terminal
