"""The load of upstreams: calls in flight and queued, the engine's own metrics, and response times."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Final

from gateway.admission.engine_admission import EngineLoad as EngineLoad
from gateway.core.call import Call, Candidate
from gateway.queueing.upstream_queue import UpstreamQueue, Waiter

SATURATED_WAITING: Final = 5
"""Calls waiting inside an engine from which it counts as saturated: llm-d's default queue threshold."""
FORGET_S: Final = 10.0
"""Age at which a response time is discarded."""
SLOW_FACTOR: Final = 2.0
"""Response times up to this multiple of the fastest count as equal: calls differ that much by themselves."""
QUICK_S: Final = 0.05
"""Response times below this count as equal: a new connection alone may cost as much."""
_RECENT: Final = 5
_ENOUGH: Final = 3
"""An upstream is as fast as the median of its last _RECENT answers, unknown before _ENOUGH of them: one slow
answer must not keep it without calls, and so without answers that would show it to be fast."""


class _ResponseTimes:
    """The last response times of one upstream, in seconds; `median` is None while they are too few."""

    __slots__ = ("_seconds", "median", "updated_at")

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_RECENT)
        self.median: float | None = None
        self.updated_at = 0.0

    def learn(self, seconds: float, now: float) -> None:
        if now - self.updated_at > FORGET_S:
            self._seconds.clear()
        self._seconds.append(seconds)
        self.median = median(self._seconds) if len(self._seconds) >= _ENOUGH else None
        self.updated_at = now


class UpstreamLoads:
    """Answers questions about the load of all upstreams."""

    def __init__(
        self,
        queues: Mapping[str, UpstreamQueue],
        engine: Callable[[str, float], EngineLoad | None] | None = None,
    ) -> None:
        """`queues` is by upstream; `engine(upstream, now)` returns an engine's recent metrics or None."""
        self._queues = queues
        self._engine = engine
        self._response_times: dict[tuple[str, bool], _ResponseTimes] = {}

    def learn(self, upstream: str, stream: bool, seconds: float, now: float) -> None:
        """Record the time to a good answer, or to the first event of a stream."""
        times = self._response_times.get((upstream, stream))
        if times is None:
            times = self._response_times[upstream, stream] = _ResponseTimes()
        times.learn(seconds, now)

    def share(self, candidate: Candidate, now: float) -> float:
        """Return calls in flight and queued, relative to the concurrency limit."""
        return self.calls(candidate, now) / max(1, self._queues[candidate.upstream].permits)

    def fullness(self, upstreams: Sequence[str], calls: Sequence[int], stream: bool, now: float) -> list[float]:
        """Return the measure of `least_loaded`: the `share` with one more call, scaled up for slow upstreams.

        An upstream slower than SLOW_FACTOR times the fastest counts as that much fuller. `calls` has each
        upstream's calls.
        """
        queues = self._queues
        fullness = [(n + 1) / (queues[name].permits or 1) for name, n in zip(upstreams, calls, strict=True)]
        times = [self._response_time(name, stream, now) for name in upstreams] if self._response_times else ()
        measured = [seconds for seconds in times if seconds is not None]
        if measured and max(measured) > (fast := SLOW_FACTOR * max(QUICK_S, min(measured))):
            for number, seconds in enumerate(times):
                if seconds is not None and seconds > fast:
                    fullness[number] *= seconds / fast
        return fullness

    def saturated(self, candidate: Candidate, now: float) -> bool:
        """Return whether one more call would have to wait, in the gateway or in the engine."""
        queue = self._queues[candidate.upstream]
        engine = self._engine(queue.name, now) if self._engine is not None else None
        return (
            queue.full(now)
            or queue.calls_ahead(candidate.model, now) > 0
            or (engine is not None and engine.waiting >= SATURATED_WAITING)
        )

    def calls(self, candidate: Candidate, now: float) -> int:
        """Return the upstream's calls in flight, and queued before a newcomer for this model."""
        queue = self._queues[candidate.upstream]
        in_flight = queue.permits - queue.free
        engine = self._engine(queue.name, now) if self._engine is not None else None
        if engine is not None:  # it may have other clients
            in_flight = max(in_flight, engine.running + engine.waiting)
        return in_flight + queue.calls_ahead(candidate.model, now)

    def takes(self, call: Call, candidate: Candidate, now: float) -> bool:
        """Return whether a call would get a permit now."""
        queue, model = self._queues[candidate.upstream], candidate.model
        paced = queue.rate_wait(model, _tokens(call), now) > 0.0
        return not _full(queue, call, model, now) and not queue.calls_ahead(model, now) and not paced

    def wait(self, call: Call, candidate: Candidate, now: float) -> float:
        """Return the expected seconds before the call is processed; 0.0 if nothing is known."""
        queue, model = self._queues[candidate.upstream], candidate.model
        if _full(queue, call, model, now) or queue.calls_ahead(model, now):
            seconds = queue.expected_wait(_waiter(call, model, now), now) or 0.0
        else:
            seconds = queue.rate_wait(model, _tokens(call), now)
        engine = self._engine(queue.name, now) if self._engine is not None else None
        if engine is not None and engine.waiting > 0:
            # Little's law: the waiting share of the time equals the waiting share of the calls.
            seconds += (queue.mean_service_time or 0.0) * engine.waiting / (engine.waiting + engine.running)
        return seconds

    def _response_time(self, upstream: str, stream: bool, now: float) -> float | None:
        times = self._response_times.get((upstream, stream))
        return None if times is None or now - times.updated_at > FORGET_S else times.median


def _tokens(call: Call) -> int:
    return 1 if call.usage.estimate is None else max(1, call.usage.estimate.input + call.usage.estimate.output)


def _waiter(call: Call, model: str, now: float) -> Waiter:
    return Waiter(call.caller.name, call.priority, _tokens(call), call.timing.deadline, now, model)


def _full(queue: UpstreamQueue, call: Call, model: str, now: float) -> bool:
    return queue.full(now, call.usage.estimate, call.caller.name, model)
