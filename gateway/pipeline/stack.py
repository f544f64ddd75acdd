"""The pipeline: every gate and layer of a request, outermost first, each with the reason for its position."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.auth.authenticate import Authenticate, TokenCallers
from gateway.auth.model_access import ModelAccess
from gateway.auth.model_names import ModelNames
from gateway.cache.layer import CacheLayer
from gateway.core.call import Call, Gate, Handler, Layer, Stack
from gateway.core.caller import Caller
from gateway.limits.key_limit_gate import KeyLimitGate, limit_precheck
from gateway.limits.shared_layer import shared_limits
from gateway.pipeline.gates import admission
from gateway.queueing.layer import QueueLayer
from gateway.resilience.attempt import AttemptRunner
from gateway.resilience.layer import attempts
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.observe import RequestMetrics
from gateway.telemetry.tracing import Tracing
from gateway.usage.accounting import UsageAccounting


class StackEntry(NamedTuple):
    """A gate or a layer, with the name that `/admin/stack` shows."""

    name: str
    layer: Layer | None = None
    gate: Gate | None = None


@dataclass(frozen=True, slots=True)
class Deps:
    """The parts of the pipeline. `forward` is the terminal handler; this module knows no sockets."""

    metrics: Metrics
    access_log: Callable[[Call, float], None]
    callers: Mapping[bytes, Caller]
    names: ModelNames
    stored: Layer
    limit: KeyLimitGate
    spend: UsageAccounting
    attempt: AttemptRunner
    queue: QueueLayer
    forward: Handler
    batching: Layer = lambda inner: inner
    overflows: Layer = lambda inner: inner
    routing: Gate | None = None  # set if some model has several candidates
    cache: CacheLayer | None = None  # set if some model caches its answers
    tracing: Tracing | None = None  # set if traces are on
    tiers: Layer | None = None  # set if some model may ask both its cheap and its strong candidate
    keep: Callable[[Call, float], None] | None = None  # set if the inspector keeps calls
    bodies: Layer | None = None  # set if it keeps their bodies
    tokens: TokenCallers | None = None  # set if identity providers are configured


def build(d: Deps) -> Stack:
    """The stack of one generation, composed once; a request only calls it."""
    # Run before the body is read, so a rejection here saves the client the upload.
    door: tuple[Gate, ...] = (
        # First, so that it is held, and records the request, even if a later gate rejects it.
        RequestMetrics(d.metrics, d.access_log, d.keep),
        # Before the body, so that nobody without a key makes the gateway buffer megabytes.
        Authenticate(d.callers, d.tokens),
        # After authentication, so that strangers create no spans.
        *(() if d.tracing is None else (d.tracing,)),
        # Rejects what a key's limits reject whatever the body says, so such bodies are never read.
        *limit_precheck(d.limit, d.callers.values()),
    )
    entries: list[StackEntry] = [
        # Outermost, to see what the client sent and what it gets.
        *(() if d.bodies is None else (StackEntry("Bodies", d.bodies),)),
        # After authentication, so that strangers cannot find out which models exist.
        StackEntry("ModelAccess", gate=ModelAccess(d.names)),
        # After the right to use the model, before its limits: a cached answer uses none of a key's tokens.
        *(() if d.cache is None else (StackEntry("CacheLookup", d.cache.lookup),)),
        # Reserves what the call may use, before anything else is spent on it.
        StackEntry("KeyLimits", gate=d.limit),
        # The limits shared through Redis; before the queue, so that a rejected call never waits for a slot.
        StackEntry("SharedLimits", shared_limits(d.limit)),
        # Held after the limits and so settled before them: the limits return what the call did not use.
        StackEntry("UsageAccounting", gate=d.spend),
        # Answers from the cache. Below it, equal calls may become a single call, which pays for all.
        *(() if d.cache is None else (StackEntry("Cache", d.cache.answer),)),
        # Orders the candidates. After the limits, whose cost ceiling it respects.
        *(() if d.routing is None else (StackEntry("Router", gate=d.routing),)),
        # Around everything that an answer takes, because it may request a second answer.
        *(() if d.tiers is None else (StackEntry("Cascade", d.tiers),)),
        # Outside batching: an oversized prompt concerns only its own caller.
        StackEntry("ContextOverflow", d.overflows),
        # Below limits and accounting, which are per call: from here on several calls may share an attempt.
        StackEntry("Batching", d.batching),
        # Outside the queue, so that a call backing off between attempts holds no concurrency slot.
        StackEntry("Retry", attempts(d.attempt)),
        # Closest to the upstream: a call that leaves the queue holds a slot and is sent at once.
        StackEntry("Queue", d.queue),
        # Around the attempt only, so that its span excludes the time in the queue.
        *(() if d.tracing is None else (StackEntry("AttemptTracing", d.tracing),)),
    ]
    names = [type(gate).__name__ for gate in door] + [entry.name for entry in entries]
    handler = compose(_layers(entries), terminal=d.forward)
    # Outermost, so that the model of a stored response is known to all others; only around calls that may name one.
    return Stack(door, handler, d.stored(handler), (*names, type(d.forward).__name__))


def _layers(entries: Sequence[StackEntry]) -> Iterator[Layer]:
    """One layer per entry, with adjacent gates merged into one, which saves a frame per call."""
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
    """The layers around the terminal handler, the first layer outermost."""
    handler = terminal
    for layer in reversed(tuple(layers)):
        handler = layer(handler)
    return handler
