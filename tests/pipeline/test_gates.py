"""Gates in a row, and the lease that releases what they hold."""

import asyncio
from collections.abc import Callable

import pytest
from kit.calls import make_call

from gateway.core.call import Call, Handler, Reply
from gateway.core.errors import DRAINING, Rejection
from gateway.pipeline.gates import admission, admit

REJECTION = Rejection(DRAINING, "No.")
REPLY = Reply(200, b"{}")
Events = list[tuple[str, str, float]]


class Recorder:
    """A gate that holds something and records its events."""

    def __init__(self, name: str, events: Events, rejection: Rejection | None = None) -> None:
        self._name, self._events, self._rejection = name, events, rejection

    def admit(self, call: Call, now: float) -> Rejection | None:
        self._events.append((self._name, "admit", now))
        if self._rejection is None:
            call.lease.hold(self)
        return self._rejection

    def settle(self, call: Call, now: float) -> None:
        self._events.append((self._name, "settle", now))


@pytest.fixture
def events() -> Events:
    return []


@pytest.fixture
def call() -> Call:
    new_call = make_call(now=1.0)
    new_call.timing.ready_at = 2.0
    return new_call


async def served(call: Call, handler: Handler) -> Reply | Rejection:
    """Handle the call as the server does: its lease is settled at 9.0, however the call ends."""
    try:
        return await handler(call)
    finally:
        call.lease.settle(call, 9.0)


def terminal(events: Events, then: Callable[[], object] = lambda: None) -> Handler:
    async def handle(call: Call) -> Reply | Rejection:
        events.append(("terminal", "called", 0.0))
        then()
        return REPLY

    return handle


def test_gates_are_asked_in_order_and_settled_in_reverse(events: Events, call: Call):
    gates = [Recorder(name, events) for name in "abc"]
    assert admit(gates, call, 2.0) is None
    assert events == [("a", "admit", 2.0), ("b", "admit", 2.0), ("c", "admit", 2.0)]
    events.clear()
    call.lease.settle(call, 9.0)
    assert events == [("c", "settle", 9.0), ("b", "settle", 9.0), ("a", "settle", 9.0)]


def test_a_second_settle_does_nothing(events: Events, call: Call):
    admit([Recorder("a", events)], call, 2.0)
    call.lease.settle(call, 8.0)
    call.lease.settle(call, 9.0)
    assert events == [("a", "admit", 2.0), ("a", "settle", 8.0)]


def test_a_settle_that_fails_is_not_repeated(call: Call, events: Events):
    class Broken:
        def settle(self, call: Call, now: float) -> None:
            raise ZeroDivisionError

    admit([Recorder("a", events)], call, 2.0)
    call.lease.hold(Broken())
    with pytest.raises(ZeroDivisionError):
        call.lease.settle(call, 8.0)
    call.lease.settle(call, 9.0)
    assert [event for _, event, _ in events] == ["admit", "settle"]


def test_the_first_rejection_ends_the_call_and_the_rejecting_gate_holds_nothing(events: Events, call: Call):
    gates = [Recorder("a", events), Recorder("b", events, REJECTION), Recorder("c", events)]
    assert admit(gates, call, 2.0) is REJECTION
    call.lease.settle(call, 9.0)
    assert events == [("a", "admit", 2.0), ("b", "admit", 2.0), ("a", "settle", 9.0)]


def test_no_gates_admit_every_call(call: Call):
    assert admit([], call, 2.0) is None


async def test_the_layer_asks_its_gates_and_then_the_inner_handler(events: Events, call: Call):
    layer = admission([Recorder("a", events), Recorder("b", events)])
    assert await served(call, layer(terminal(events))) is REPLY
    assert events == [
        ("a", "admit", 2.0),
        ("b", "admit", 2.0),
        ("terminal", "called", 0.0),
        ("b", "settle", 9.0),
        ("a", "settle", 9.0),
    ]


async def test_a_rejected_call_never_reaches_the_inner_handler(events: Events, call: Call):
    layer = admission([Recorder("a", events), Recorder("b", events, REJECTION)])
    assert await served(call, layer(terminal(events))) is REJECTION
    assert [name for name, _, _ in events] == ["a", "b", "a"]


async def test_a_rejection_by_the_inner_handler_is_returned(events: Events, call: Call):
    async def reject(call: Call) -> Reply | Rejection:
        return REJECTION

    assert await served(call, admission([Recorder("a", events)])(reject)) is REJECTION
    assert events[-1] == ("a", "settle", 9.0)


async def test_the_layer_itself_settles_nothing(events: Events, call: Call):
    await admission([Recorder("a", events)])(terminal(events))(call)
    assert ("a", "settle", 9.0) not in events


async def test_gates_are_settled_once_when_the_handler_fails(events: Events, call: Call):
    def fail() -> None:
        raise ZeroDivisionError

    layer = admission([Recorder("a", events), Recorder("b", events)])
    with pytest.raises(ZeroDivisionError):
        await served(call, layer(terminal(events, fail)))
    assert [(name, event) for name, event, _ in events[3:]] == [("b", "settle"), ("a", "settle")]


async def test_gates_are_settled_once_when_the_call_is_cancelled(events: Events, call: Call):
    waiting = asyncio.Event()

    async def wait(call: Call) -> Reply | Rejection:
        waiting.set()
        await asyncio.get_running_loop().create_future()
        return REPLY

    layer = admission([Recorder("a", events), Recorder("b", events)])
    task = asyncio.create_task(served(call, layer(wait)))
    async with asyncio.timeout(5):
        await waiting.wait()
    assert [event for _, event, _ in events] == ["admit", "admit"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(name, event) for name, event, _ in events[2:]] == [("b", "settle"), ("a", "settle")]
