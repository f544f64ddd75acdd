"""Which calls are traced, and what happens to them on their way. Only there where traces are on."""

from collections.abc import Awaitable, Callable
from random import Random

from gateway.core.call import Call, Handler, Reply
from gateway.core.clock import Clock
from gateway.core.errors import Rejection, UpstreamFailure
from gateway.core.trace import AttemptRecord, Trace
from gateway.wire.http import traceparent

Export = Callable[[Call, Trace, float], None]
"""Takes a traced call that is over, and the time."""


class Tracing:
    """Gate, Holder, and the innermost layer, around each attempt.

    A client that traces decides for its calls; of all others a share of `sample` is traced.
    """

    def __init__(self, sample: float, rng: Random, clock: Clock, export: Export) -> None:
        self._sample = sample
        self._rng = rng
        self._clock = clock
        self._export = export

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Everybody may pass."""
        parent = traceparent.read(call.headers.get("traceparent"))
        if parent is None and self._rng.random() < self._sample:
            call.trace = Trace(self._rng.getrandbits(128) or 1, 0, self._span_id())
        elif parent is not None and parent.sampled:
            call.trace = Trace(parent.trace_id, parent.span_id, self._span_id())
        if call.trace is not None:
            call.lease.hold(self)
        return None

    def settle(self, call: Call, now: float) -> None:
        """The call is over."""
        trace = call.trace
        if trace is None:
            return
        if not trace.attempts and call.attempts and call.candidate is not None:
            # It shared the upstream calls of others.
            began = call.sent_at
            shared = AttemptRecord(
                self._span_id(), call.candidate.upstream, call.candidate.model, call.queue_s, began
            )
            shared.ended = call.answered_at
            trace.attempts.append(shared)
            trace.waited_s = call.queue_s
        self._export(call, trace, now)

    def __call__(self, inner: Handler) -> Handler:
        """The layer around `inner`, which makes one attempt."""

        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            trace = call.trace
            return inner(call) if trace is None else self._traced(inner, call, trace)

        return handle

    async def _traced(self, inner: Handler, call: Call, trace: Trace) -> Reply | Rejection:
        if call.candidate is None:
            raise AssertionError("the gates above set it")
        upstream, model = call.candidate.upstream, call.candidate.model
        waited_s = call.queue_s - trace.waited_s
        attempt = AttemptRecord(self._span_id(), upstream, model, waited_s, self._clock())
        trace.attempts.append(attempt)
        trace.waited_s = call.queue_s
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
