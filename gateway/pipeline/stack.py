"""THE pipeline: what a request meets, from top to bottom, each entry with the reason for its place."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.auth.authenticate import Authenticate
from gateway.auth.model_access import ModelAccess
from gateway.cache.layer import CacheLayer
from gateway.core.call import Call, Gate, Handler, Layer, Route, Stack
from gateway.core.caller import Caller
from gateway.limits.gate import KeyLimitGate, limit_precheck
from gateway.limits.shared_layer import shared_limits
from gateway.pipeline.gates import admission
from gateway.queueing.layer import QueueLayer
from gateway.resilience.attempt import AttemptRunner
from gateway.resilience.layer import attempts
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.observe import RequestMetrics
from gateway.telemetry.tracing import Tracing
from gateway.usage.accounting import UsageAccounting


class Entry(NamedTuple):
    """One gate or one layer, and the name that operators see in `/admin/stack`."""

    name: str
    layer: Layer | None = None
    gate: Gate | None = None


@dataclass(frozen=True, slots=True)
class Deps:
    """What the pipeline is built from. `forward` is the terminal handler: this file knows no socket."""

    metrics: Metrics
    access_log: Callable[[Call, float], None]
    callers: Mapping[bytes, Caller]
    routes: Mapping[str, Route]
    limit: KeyLimitGate
    spend: UsageAccounting
    attempt: AttemptRunner
    queue: QueueLayer
    forward: Handler
    batching: Layer = lambda inner: inner
    overflows: Layer = lambda inner: inner
    routing: Gate | None = None  # where some model has a choice
    cache: CacheLayer | None = None  # where some model's answers are kept
    tracing: Tracing | None = None  # where traces are on
    tiers: Layer | None = None  # where some call may ask a model's cheap and its strong candidate


def build(d: Deps) -> Stack:
    """Compose once, at start-up; a request only calls."""
    # Before a byte of the body is read: a refusal here costs the client's upload nothing but its head.
    door: tuple[Gate, ...] = (
        # First, so that it is held, and records, even when a later gate refuses.
        RequestMetrics(d.metrics, d.access_log),
        # Before the body: nobody without a key makes the gateway hold megabytes.
        Authenticate(d.callers),
        # Behind it, for strangers make no spans.
        *(() if d.tracing is None else (d.tracing,)),
        # What the limits of a key refuse whatever is in the body is not worth reading.
        *limit_precheck(d.limit, d.callers.values()),
    )
    entries: list[Entry] = [
        # With the body. After the key, so that nobody learns from outside which models exist.
        Entry("ModelAccess", gate=ModelAccess(d.routes)),
        # Between the right to use the model and its limits: a cached answer takes no tokens of a key.
        *(() if d.cache is None else (Entry("CacheLookup", d.cache.look),)),
        # Reserves what the call may use, before anything else is spent on it.
        Entry("KeyLimits", gate=d.limit),
        # The limits that several processes share; a key that they reject has not waited for a slot.
        Entry("SharedLimits", shared_limits(d.limit)),
        # Held after the limits, so settled before them: they give back what the call did not use.
        Entry("UsageAccounting", gate=d.spend),
        # Answers from the cache. Below this point equal calls may become one, which pays for all of them.
        *(() if d.cache is None else (Entry("Cache", d.cache.answer),)),
        # Which candidates can serve the call, in which order. Held after the limits, whose ceiling it keeps.
        *(() if d.routing is None else (Entry("Router", gate=d.routing),)),
        # Below the choice of a tier and around everything one answer takes: it may ask for a second answer.
        *(() if d.tiers is None else (Entry("Cascade", d.tiers),)),
        # Outside batching: an oversized prompt is one caller's, and what is done to it concerns nobody else.
        Entry("ContextOverflow", d.overflows),
        # Each call has its own limits and its own bill; below this point several may share one upstream call.
        Entry("Batching", d.batching),
        # Outside the queue, so that a call waiting for its next attempt holds no slot meanwhile.
        Entry("Retry", attempts(d.attempt)),
        # Last before the upstream: a call that waits here may go, and holds no slot yet.
        Entry("Queue", d.queue),
        # Around the attempt itself, with nothing of ours but the sending inside.
        *(() if d.tracing is None else (Entry("AttemptTracing", d.tracing),)),
    ]
    names = [type(gate).__name__ for gate in door] + [entry.name for entry in entries]
    handler = compose(_layers(entries), terminal=d.forward)
    return Stack(door, handler, (*names, type(d.forward).__name__))


def _layers(entries: Sequence[Entry]) -> Iterator[Layer]:
    """One layer for each, but only one for all gates in a row: a frame less for each call."""
    gates: list[Gate] = []
    for entry in entries:
        if entry.gate is not None:
            gates.append(entry.gate)
        elif entry.layer is not None:
            if gates:
                yield admission(tuple(gates))
                gates = []
            yield entry.layer
    if gates:
        yield admission(tuple(gates))


def compose(layers: Iterable[Layer], terminal: Handler) -> Handler:
    """The first layer is outermost, as it stands on the page."""
    handler = terminal
    for layer in reversed(tuple(layers)):
        handler = layer(handler)
    return handler
