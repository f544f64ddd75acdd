"""The order of the pipeline, and why it must be so."""

import asyncio
import hashlib
from random import Random

import pytest

from gateway.auth.authenticate import Authenticate
from gateway.core.budget_calendar import Calendar
from gateway.core.call import CHAT, Call, Candidate, Credentials, Handler, Layer, Reply, Route, TokenEstimate
from gateway.core.caller import Caller
from gateway.core.errors import MODEL_NOT_ALLOWED, MODEL_NOT_FOUND, Rejection
from gateway.limits.gate import KeyLimitGate
from gateway.pipeline.gates import admit
from gateway.pipeline.stack import Deps, Stack, build, compose
from gateway.queueing.layer import QueueLayer
from gateway.queueing.upstream_queue import UpstreamQueue
from gateway.queueing.waiting_room import WaitingRoom
from gateway.resilience.attempt import AttemptRunner, RetryMetrics, RetryPolicy, UpstreamHealth
from gateway.resilience.circuit_breaker import CircuitBreaker
from gateway.resilience.retry_budget import RetryBudget
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.observe import RequestMetrics
from gateway.usage.accounting import UsageAccounting

KEY = "sk-a"
REPLY = Reply(200, b"{}")
ROUTES = {
    name: Route(name, f'"{name}"'.encode(), (Candidate("local", name, f'"{name}"'.encode()),))
    for name in ("small", "large")
}


class Terminal:
    """Where the sockets would be."""

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
    lines, waited = {"local": UpstreamQueue("local", 1)}, {"local": lambda seconds: None}
    health = {"local": UpstreamHealth(CircuitBreaker(5, 1.0, 1.0, Random(1)), RetryBudget(0.1), 60.0)}
    counts = RetryMetrics(lambda *labels: lambda calls: None, *[lambda *labels: None] * 2)
    attempt = AttemptRunner(health, RetryPolicy(1, 0.0, 0.0), counts, lambda: 1.0, asyncio.sleep, Random(1))
    queue = QueueLayer(WaitingRoom(1), lines, lambda: 1.0, waited, lambda call: None)
    return build(
        Deps(
            metrics,
            lambda call, now: logged.append(call),
            callers,
            ROUTES,
            limit,
            spend,
            attempt,
            queue,
            terminal,
        )
    )


def call(model: str = "small", key: str | None = KEY) -> Call:
    one = Call(CHAT, "id", Credentials(None, key, None), 1.0)
    one.model = model
    return one


def test_observe_is_first_so_that_it_records_what_others_refuse(stack: Stack, logged: list[Call]):
    assert isinstance(stack.door[0], RequestMetrics)
    one = call(key="wrong")
    assert admit(stack.door, one, 1.0) is not None
    one.lease.settle(one, 2.0)
    assert logged == [one]


def test_the_key_is_asked_for_at_the_door_before_the_body_and_the_model(stack: Stack):
    assert any(isinstance(gate, Authenticate) for gate in stack.door)
    assert stack.entries.index("Authenticate") < stack.entries.index("ModelAccess")
    assert "ModelAccess" not in [type(gate).__name__ for gate in stack.door]


def test_the_entries_are_the_pipeline_the_terminal_last(stack: Stack):
    assert stack.entries[: len(stack.door)] == tuple(type(gate).__name__ for gate in stack.door)
    assert stack.entries[0] == "RequestMetrics"
    assert stack.entries[-1] == "Terminal"
    assert stack.entries.count("Terminal") == 1


async def test_a_good_call_reaches_the_terminal(stack: Stack, terminal: Terminal):
    one = call()
    assert admit(stack.door, one, 1.0) is None
    assert await stack.handle(one) is REPLY
    assert terminal.calls == [one]
    assert one.route is ROUTES["small"]
    assert one.caller is not None
    assert one.caller.name == "team-a"


@pytest.mark.parametrize(("model", "kind"), [("unknown", MODEL_NOT_FOUND), ("large", MODEL_NOT_ALLOWED)])
async def test_a_call_for_no_model_of_this_key_does_not(
    stack: Stack, terminal: Terminal, model: str, kind: object
):
    one = call(model)
    assert admit(stack.door, one, 1.0) is None
    refusal = await stack.handle(one)
    assert isinstance(refusal, Rejection)
    assert refusal.kind is kind
    assert terminal.calls == []


async def test_layers_are_composed_as_they_stand_on_the_page(terminal: Terminal):
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

    assert await compose((layer("outer"), layer("inner")), terminal)(call()) is REPLY
    assert passed == ["outer in", "inner in", "inner out", "outer out"]


def test_without_layers_the_terminal_is_the_handler(terminal: Terminal):
    assert compose((), terminal) is terminal
