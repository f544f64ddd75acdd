"""How full an upstream is: what is under way there, what its engine says, how fast it answers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from gateway.core.call import Call
from gateway.queueing.upstream_queue import UpstreamQueue, Waiter

SATURATED_WAITING: Final = 5
"""Calls waiting inside an engine from which on it counts as saturated: llm-d's default for its queues."""
FORGET_S: Final = 10.0
"""A time to answer older than this says nothing any more."""
SLOWER: Final = 2.0
"""Up to so many times the fastest one's time all are alike: calls differ that much by themselves."""
QUICK_S: Final = 0.05
"""Whoever answers within this time is fast: a new connection alone may make such a difference."""
_SMOOTHING: Final = 0.2


class EngineLoad(NamedTuple):
    """What an engine tells of itself: calls that run and that wait in it, the used share of its KV cache."""

    running: int
    waiting: int
    kv: float | None


class UpstreamLoads:
    """`lines` has every upstream; `engine(upstream, now)` what its engine said lately, None if nothing."""

    def __init__(
        self,
        lines: Mapping[str, UpstreamQueue],
        engine: Callable[[str, float], EngineLoad | None] | None = None,
    ) -> None:
        """`engine` None: no engine is asked."""
        self._lines = lines
        self._engine = engine
        self._answers: dict[tuple[str, bool], tuple[float, float]] = {}  # seconds, smoothed, and when learned

    def learn(self, upstream: str, stream: bool, seconds: float, now: float) -> None:
        """A call was answered, or a stream begun, so long after it was sent."""
        before = self._of(upstream, stream, now)
        mean = seconds if before is None else before + _SMOOTHING * (seconds - before)
        self._answers[upstream, stream] = mean, now

    def share(self, upstream: str, now: float) -> float:
        """Calls under way and waiting, by the calls that it may have under way."""
        return self.calls(upstream, now) / max(1, self._lines[upstream].permits)

    def fullness(
        self, upstreams: Sequence[str], calls: Sequence[int], stream: bool, now: float
    ) -> list[float]:
        """What `least_loaded` goes by: the share that one more call would make, more for the slow ones.

        One that takes more than SLOWER times as long as the fastest counts as so many times fuller. `calls`
        has what each has under way.
        """
        lines = self._lines
        found = [(own + 1) / (lines[name].permits or 1) for name, own in zip(upstreams, calls, strict=True)]
        times = [self._of(name, stream, now) for name in upstreams] if self._answers else ()
        known = [seconds for seconds in times if seconds is not None]
        if known and max(known) > (fast := SLOWER * max(QUICK_S, min(known))):
            for number, seconds in enumerate(times):
                if seconds is not None and seconds > fast:
                    found[number] *= seconds / fast
        return found

    def saturated(self, upstream: str, now: float) -> bool:
        """Whether one more call would have to wait there, in the gateway or in the engine."""
        line = self._lines[upstream]
        engine = self._engine(upstream, now) if self._engine is not None else None
        return (
            line.free <= 0 or line.waiting > 0 or (engine is not None and engine.waiting >= SATURATED_WAITING)
        )

    def calls(self, upstream: str, now: float) -> int:
        """Calls under way and waiting."""
        line = self._lines[upstream]
        own = line.permits - line.free
        engine = self._engine(upstream, now) if self._engine is not None else None
        if engine is not None:  # others may call it, too
            own = max(own, engine.running + engine.waiting)
        return own + line.waiting

    def takes(self, call: Call, upstream: str, now: float) -> bool:
        """Whether a call would get a permit there now."""
        line = self._lines[upstream]
        paced = line.pace is not None and line.pace.wait(_tokens(call), now) > 0.0
        return line.free > 0 and not line.waiting and not paced

    def wait(self, call: Call, upstream: str, now: float) -> float:
        """Seconds that the call would wait there before it is worked on; 0.0 also where nothing is known."""
        line = self._lines[upstream]
        seconds = 0.0
        if line.free <= 0 or line.waiting:
            seconds = line.expected_wait(_waiter(call, now), now) or 0.0
        elif line.pace is not None:
            seconds = line.pace.wait(_tokens(call), now)
        engine = self._engine(upstream, now) if self._engine is not None else None
        if engine is not None and engine.waiting > 0:
            # Little's law: of the time in the engine the same part is waiting as of the calls in it.
            seconds += (line.mean_service_time or 0.0) * engine.waiting / (engine.waiting + engine.running)
        return seconds

    def _of(self, upstream: str, stream: bool, now: float) -> float | None:
        known = self._answers.get((upstream, stream))
        return None if known is None or now - known[1] > FORGET_S else known[0]


def _tokens(call: Call) -> int:
    return 1 if call.estimate is None else max(1, call.estimate.input + call.estimate.output)


def _waiter(call: Call, now: float) -> Waiter:
    key = "" if call.caller is None else call.caller.name
    return Waiter(key, call.priority, _tokens(call), call.deadline, now)
