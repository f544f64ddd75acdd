"""What a token costs on a machine that is paid by the hour: its price divided by what it really does."""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.core.call import Call, FailedUsage
from gateway.core.units import usd

_HOUR: Final = 3600
_MINUTES: Final = 60
_MILLION: Final = 1_000_000


class WorkDone(NamedTuple):
    """Tokens, in and out alike: since the start, in the last hour, and in the best minute there was."""

    tokens: int = 0
    seconds: float = 0.0
    hour_tokens: int = 0
    hour_seconds: float = 0.0
    best_minute: int = 0

    def with_other(self, other: "WorkDone") -> "WorkDone":
        """Of two processes that use the same machine. Their best minutes may have been different ones."""
        return WorkDone(
            self.tokens + other.tokens,
            max(self.seconds, other.seconds),
            self.hour_tokens + other.hour_tokens,
            max(self.hour_seconds, other.hour_seconds),
            self.best_minute + other.best_minute,
        )


class Throughput:
    """Counts the tokens of one upstream. Those of a call count in the minute in which it ends."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._tokens = 0
        self._best = 0
        self._minutes: deque[list[int]] = deque()  # number of the minute, its tokens

    def add(self, tokens: int, now: float) -> None:
        """A call has used so many."""
        minute = int((now - self._began) // 60)
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append([minute, 0])
            self._forget(minute)
        self._minutes[-1][1] += tokens
        self._tokens += tokens
        self._best = max(self._best, self._minutes[-1][1])

    def done(self, now: float) -> WorkDone:
        """What it has done by now."""
        minute = int((now - self._began) // 60)
        self._forget(minute)
        seconds = now - self._began
        first = max(0, minute - _MINUTES + 1) * 60.0
        return WorkDone(
            self._tokens, seconds, sum(one[1] for one in self._minutes), seconds - first, self._best
        )

    def _forget(self, minute: int) -> None:
        while self._minutes and self._minutes[0][0] <= minute - _MINUTES:
            self._minutes.popleft()


def as_json(gpu_hour: int, done: WorkDone, *, waiting: bool) -> dict[str, object]:
    """The figures, in USD for a million tokens, from nano-dollars an hour; None where nothing was done.

    `next`: while nobody waits, the machine has room, is paid for anyhow, and one more token costs nothing.
    While calls wait it costs what a token costs in the best minute that was seen.
    """
    full = _per_million(gpu_hour, 60.0, done.best_minute)
    return {
        "gpu_hour_usd": usd(gpu_hour),
        "done": done._asdict(),
        "usd_per_million_tokens": {
            "last_hour": _per_million(gpu_hour, done.hour_seconds, done.hour_tokens),
            "since_start": _per_million(gpu_hour, done.seconds, done.tokens),
            "best_minute": full,
            "next": full if waiting else "0",
        },
    }


def _per_million(gpu_hour: int, seconds: float, tokens: int) -> str | None:
    return usd(round(gpu_hour * seconds / _HOUR * _MILLION / tokens)) if tokens else None


class GpuCosts:
    """The upstreams whose machine is paid by the hour."""

    def __init__(self, machines: Mapping[str, tuple[int, Throughput]]) -> None:
        """By name: nano-dollars an hour, and what has been done there."""
        self._of = machines

    def paid(self, call: Call, one: FailedUsage, nanos: int | None, now: float, last: bool) -> None:
        """An attempt is over (see `layers/spend.py`)."""
        machine = self._of.get(one.candidate.upstream)
        if machine is not None:
            machine[1].add(one.tokens.input + one.tokens.output, now)

    def view(self, upstream: str, waiting: int, now: float) -> dict[str, object]:
        """What `/admin/upstreams` shows of it; nothing of an upstream that states no price."""
        machine = self._of.get(upstream)
        if machine is None:
            return {}
        return {"machine": as_json(machine[0], machine[1].done(now), waiting=waiting > 0)}

    def __bool__(self) -> bool:
        return bool(self._of)
