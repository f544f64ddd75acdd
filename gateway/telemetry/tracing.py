"""Decides which calls are traced, and records their attempts. Part of the pipeline only if tracing is on."""

from collections.abc import Awaitable, Callable
from random import Random

from gateway.core.call import Call, Handler, Reply
from gateway.core.clock import Clock
from gateway.core.errors import Rejection, UpstreamFailure
from gateway.core.trace import AttemptRecord, Trace
from gateway.wire.http import traceparent

Export = Callable[[Call, Trace, float], None]
"""Receives a finished traced call, its trace and the time."""


class Tracing:
    """A gate, a holder, and the innermost layer around each attempt.

    A client's `traceparent` decides for its own calls; all others are traced with probability `sample`.
    """

    def __init__(self, sample: float, rng: Random, clock: Clock, export: Export) -> None:
        self._sample = sample
        self._rng = rng
        self._clock = clock
        self._export = export

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Admit the call, and start its trace if it is traced."""
        parent = traceparent.read(call.request.headers.get("traceparent"))
        if parent is None and self._rng.random() < self._sample:
            call.trace = Trace(self._rng.getrandbits(128) or 1, 0, self._span_id())
        elif parent is not None and parent.sampled:
            call.trace = Trace(parent.trace_id, parent.span_id, self._span_id())
        if call.trace is not None:
            call.lease.hold(self)
        return None

    def settle(self, call: Call, now: float) -> None:
        """Export the trace of a finished call."""
        trace = call.trace
        if trace is None:
            return
        if not trace.attempts and call.attempts:
            # Its answer came from an upstream call shared with other callers.
            upstream, model = call.routing.candidate.upstream, call.routing.candidate.model
            shared = AttemptRecord(self._span_id(), upstream, model, call.timing.queue_s, call.timing.sent_at)
            shared.ended = call.timing.answered_at
            trace.attempts.append(shared)
            trace.waited_s = call.timing.queue_s
        self._export(call, trace, now)

    def __call__(self, inner: Handler) -> Handler:
        """Wrap `inner`, which makes one attempt."""

        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            trace = call.trace
            return inner(call) if trace is None else self._traced(inner, call, trace)

        return handle

    async def _traced(self, inner: Handler, call: Call, trace: Trace) -> Reply | Rejection:
        upstream, model = call.routing.candidate.upstream, call.routing.candidate.model
        waited_s = call.timing.queue_s - trace.waited_s
        attempt = AttemptRecord(self._span_id(), upstream, model, waited_s, self._clock())
        trace.attempts.append(attempt)
        trace.waited_s = call.timing.queue_s
        reply = None
        try:
            reply = await inner(call)
        except UpstreamFailure as failure:
            attempt.error = failure.kind.code
            raise
        finally:
            if not isinstance(reply, Reply) or reply.stream is None:
                attempt.ended = self._clock()
        return reply

    def _span_id(self) -> int:
        return self._rng.getrandbits(64) or 1
