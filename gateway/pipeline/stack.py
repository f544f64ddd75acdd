"""THE pipeline: what a request meets, from top to bottom, each entry with the reason for its place."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.auth.authenticate import Authenticate
from gateway.auth.model_access import ModelAccess
from gateway.cache.layer import Cache
from gateway.core.call import Call, Gate, Handler, Layer, Route, Stack
from gateway.core.caller import Caller
from gateway.limits.gate import Limit, full
from gateway.limits.shared_layer import shared_limits
from gateway.pipeline.gates import admission
from gateway.queueing.layer import Queue
from gateway.resilience.attempt import Attempt
from gateway.resilience.layer import attempts
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.observe import Observe
from gateway.telemetry.tracing import Tracing
from gateway.usage.accounting import Spend


@dataclass(frozen=True, slots=True)
class Deps:
    """What the pipeline is built from. `forward` is the terminal handler: this file knows no socket."""

    metrics: Metrics
    access_log: Callable[[Call, float], None]
    callers: Mapping[bytes, Caller]
    routes: Mapping[str, Route]
    limit: Limit
    spend: Spend
    attempt: Attempt
    queue: Queue
    forward: Handler
    batching: Layer = lambda inner: inner
    overflows: Layer = lambda inner: inner
    routing: Gate | None = None  # where some model has a choice
    cache: Cache | None = None  # where some model's answers are kept
    tracing: Tracing | None = None  # where traces are on
    tiers: Layer | None = None  # where some call may ask a model's cheap and its strong candidate


def build(d: Deps) -> Stack:
    """Compose once, at start-up; a request only calls."""
    # Before a byte of the body is read: a refusal here costs the client's upload nothing but its head.
    door: tuple[Gate, ...] = (
        # First, so that it is held, and records, even when a later gate refuses.
        Observe(d.metrics, d.access_log),
        # Before the body: nobody without a key makes the gateway hold megabytes.
        Authenticate(d.callers),
        # Behind it, for strangers make no spans.
        *(() if d.tracing is None else (d.tracing,)),
        # What the limits of a key refuse whatever is in the body is not worth reading.
        *full(d.limit, d.callers.values()),
    )
    # With the body.
    gates: tuple[Gate, ...] = (
        # After the key, so that nobody learns from outside which models exist.
        ModelAccess(d.routes),
        # Reserves what the call may use, before anything else is spent on it.
        d.limit,
    )
    cache = d.cache
    layers: tuple[Layer, ...] = (
        *((admission(gates),) if cache is None else _looking(gates, cache)),
        # What many processes share is asked for here; keys that it refuses have not waited for a slot.
        shared_limits(d.limit),
        # Held after the limits, so settled before them: they give back what it finds was not used.
        admission((d.spend,)),
        # Gives what is kept. Else from here on calls for the same may be one, which pays for all of them.
        *(() if cache is None else (cache.answer,)),
        # Who can serve the call, and who first. Held after the limits, whose ceiling it keeps.
        *(() if d.routing is None else (admission((d.routing,)),)),
        # Behind the choice of a tier, and around all that one answer takes: it may ask for a second one.
        *(() if d.tiers is None else (d.tiers,)),
        # Outside batching: who does not fit is one caller, and what is made of its call is nobody else's.
        d.overflows,
        # Each call has its own limits and its own bill; from here on several may be one.
        d.batching,
        # Outside the queue, so that a call which waits for its next attempt holds no slot meanwhile.
        attempts(d.attempt),
        # Last before the upstream: who waits here has every right to go, and holds no slot of it yet.
        d.queue,
        # Around the attempt itself, with nothing of ours but the sending in it.
        *(() if d.tracing is None else (d.tracing,)),
    )
    return Stack(door, compose(layers, terminal=d.forward), tuple(_names(d, (*door, *gates))))


def _names(d: Deps, gates: tuple[Gate, ...]) -> list[str]:
    """All entries, from top to bottom."""
    names = [type(gate).__name__ for gate in gates]
    if d.cache is not None:
        names.insert(-1, "Look")
    optional = {"Cache": d.cache, "Routing": d.routing, "Tiers": d.tiers}
    names += ["SharedLimits", "Spend", *(name for name, there in optional.items() if there is not None)]
    return [*names, "Overflows", "Batching", "Attempts", "Queue", type(d.forward).__name__]


def _looking(gates: tuple[Gate, ...], cache: Cache) -> tuple[Layer, ...]:
    """Between who may use the model and its limits: an answer that is there takes no tokens of a key."""
    *first, limit = gates
    return admission(first), cache.look, admission((limit,))


def compose(layers: tuple[Layer, ...], terminal: Handler) -> Handler:
    """The first layer is outermost, as it stands on the page."""
    handler = terminal
    for layer in reversed(layers):
        handler = layer(handler)
    return handler
