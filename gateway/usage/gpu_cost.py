"""The cost of a token on a machine billed by the hour: its hourly price divided by its throughput."""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.core.call import Call, FailedUsage
from gateway.core.units import usd

_HOUR: Final = 3600
_MINUTES: Final = 60
_MILLION: Final = 1_000_000


class WorkDone(NamedTuple):
    """Tokens, input and output together: since the start, in the last hour, and in the best minute."""

    tokens: int = 0
    seconds: float = 0.0
    hour_tokens: int = 0
    hour_seconds: float = 0.0
    best_minute: int = 0

    def combined(self, other: "WorkDone") -> "WorkDone":
        """Add the work of another process on the same machine; the sum of best minutes is an upper bound."""
        return WorkDone(
            self.tokens + other.tokens,
            max(self.seconds, other.seconds),
            self.hour_tokens + other.hour_tokens,
            max(self.hour_seconds, other.hour_seconds),
            self.best_minute + other.best_minute,
        )


class Throughput:
    """Counts the tokens of one upstream, in the minute in which each call ends."""

    def __init__(self, now: float) -> None:
        self._started = now
        self._tokens = 0
        self._best = 0
        self._minutes: deque[list[int]] = deque()  # number of the minute, its tokens

    def add(self, tokens: int, now: float) -> None:
        """Count the tokens of one call."""
        minute = int((now - self._started) // 60)
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append([minute, 0])
            self._forget(minute)
        self._minutes[-1][1] += tokens
        self._tokens += tokens
        self._best = max(self._best, self._minutes[-1][1])

    def done(self, now: float) -> WorkDone:
        """Return the work done by now."""
        minute = int((now - self._started) // 60)
        self._forget(minute)
        seconds = now - self._started
        first = max(0, minute - _MINUTES + 1) * 60.0
        return WorkDone(self._tokens, seconds, sum(tokens for _, tokens in self._minutes), seconds - first, self._best)

    def _forget(self, minute: int) -> None:
        while self._minutes and self._minutes[0][0] <= minute - _MINUTES:
            self._minutes.popleft()


def as_json(gpu_hour: int, done: WorkDone, *, waiting: bool) -> dict[str, object]:
    """Return the figures in USD per million tokens, None without any; `gpu_hour` is in nano-dollars.

    `next` is the marginal cost: 0 while no call waits, because the machine has spare capacity and is paid for
    anyway; otherwise the cost in the best minute so far.
    """
    best = _per_million(gpu_hour, 60.0, done.best_minute)
    return {
        "gpu_hour_usd": usd(gpu_hour),
        "done": done._asdict(),
        "usd_per_million_tokens": {
            "last_hour": _per_million(gpu_hour, done.hour_seconds, done.hour_tokens),
            "since_start": _per_million(gpu_hour, done.seconds, done.tokens),
            "best_minute": best,
            "next": best if waiting else "0",
        },
    }


def _per_million(gpu_hour: int, seconds: float, tokens: int) -> str | None:
    return usd(round(gpu_hour * seconds / _HOUR * _MILLION / tokens)) if tokens else None


class GpuCosts:
    """The upstreams whose machine is billed by the hour."""

    def __init__(self, machines: Mapping[str, tuple[int, Throughput]]) -> None:
        """`machines`: nano-dollars an hour and throughput, by upstream name."""
        self._machines = machines

    def record_attempt(self, call: Call, attempt: FailedUsage, nanos: int | None, now: float, last: bool) -> None:
        """Count one attempt's tokens; an `accounting.AttemptRecorder`."""
        machine = self._machines.get(attempt.candidate.upstream)
        if machine is not None:
            machine[1].add(attempt.tokens.input + attempt.tokens.output, now)

    def view(self, upstream: str, waiting: int, now: float) -> dict[str, object]:
        """Return the `machine` entry of `/admin/upstreams`; empty without an hourly price."""
        machine = self._machines.get(upstream)
        if machine is None:
            return {}
        return {"machine": as_json(machine[0], machine[1].done(now), waiting=waiting > 0)}

    def __bool__(self) -> bool:
        return bool(self._machines)
