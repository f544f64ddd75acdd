"""A circuit breaker: when to stop calling an upstream that fails, and when to start again.

A closed breaker admits every call. Enough failures open it: it admits none for a while, each time for twice
as long, until the upstream has been healthy for HEALTHY_S. Then the breaker is half-open and admits one call
at a time as a probe (as Finagle does). A success closes it, and the share of admitted calls rises slowly,
because the upstream may be cold (Envoy's slow start).

Every admitted call has a permit, a number that orders it in this history. The outcome of a call that was
admitted before the last change of state is ignored: a late failure does not open a breaker that a probe has
closed, and only the probe itself ends the probe.
"""

import math
from random import Random
from typing import Final, Literal

from gateway.resilience.rolling_counter import RollingCounter

CLOSED: Final = 0
HALF_OPEN: Final = 1
OPEN: Final = 2

HEALTHY_S: Final = 30.0
"""This long after closing, the upstream gets all its calls and its past is forgotten."""
FIRST_SHARE: Final = 0.1
"""The share of calls admitted right after closing."""
LAST_RESORT_S: Final = 1.0
"""Whatever the state, one call in this many seconds is admitted if no other candidate could take it."""
JITTER: Final = 0.2
_MIN_ATTEMPTS: Final = 20  # in the last 10 s, for a share of failures to mean anything

Outcome = Literal["success", "failure", "none"]


class CircuitBreaker:
    """The breaker of one model at one endpoint. `now` is in monotonic seconds and never goes back.

    It opens after `failures` failures in a row, or when half of at least 20 attempts in the last 10 s have
    failed: first for `open_s` seconds, at most for `max_open_s`, plus or minus 20 %.
    """

    __slots__ = (
        "_attempts",
        "_by_host",
        "_closed",
        "_failed",
        "_failures",
        "_in_a_row",
        "_last_resort_at",
        "_length_s",
        "_lengthens",
        "_max_open_s",
        "_open_s",
        "_open_until",
        "_permit",
        "_probe",
        "_rng",
        "_since",
        "_slow_start_until",
        "opened_at",
    )

    def __init__(self, failures: int, open_s: float, max_open_s: float, rng: Random) -> None:
        self._failures = failures
        self._open_s = open_s
        self._max_open_s = max_open_s
        self._rng = rng
        self._permit = 1  # the newest one
        self._since = 1  # the oldest permit whose outcome counts; while closed, every call has this one
        self._slow_start_until = 0.0  # no slow start when the process starts
        self._length_s = 0.0
        self._open_until = 0.0
        self._last_resort_at = 0.0
        self._probe = 0  # the permit of the probe under way, 0 if there is none
        self._lengthens = True  # whether its failure doubles the time
        self._closed = True
        self._in_a_row = 0
        self._attempts = RollingCounter()
        self._failed = RollingCounter()
        self._by_host = 0  # failures of the whole upstream that others have met
        self.opened_at = 0.0
        """When it last opened."""

    def acquire(self, now: float, last_resort: bool = False) -> int:
        """A permit for one call, to be passed to `record` exactly once; 0 if the call is not admitted.

        `last_resort` says that no other candidate could take the call.
        """
        if self._closed:
            if now >= self._slow_start_until or last_resort or self._rng.random() < self._admitted_share(now):
                return self._since
            return 0
        if now >= self._open_until and not self._probe:
            self._permit += 1
            self._probe = self._permit
            self._lengthens = not last_resort
        elif last_resort and now >= self._last_resort_at:
            self._permit += 1
        else:
            return 0
        self._last_resort_at = now + LAST_RESORT_S
        return self._permit

    def record(self, outcome: Outcome, now: float, permit: int) -> None:
        """Records the outcome of the call with this permit; `none` if it says nothing about the upstream."""
        if permit < self._since:
            return
        if not self._closed:
            self._record_not_closed(outcome, now, permit)
        elif outcome == "success":
            self._in_a_row = 0
            self._attempts.add(now)
        elif outcome == "failure":
            self._in_a_row += 1
            self._attempts.add(now)
            self._failed.add(now)
            if self._must_open(now):
                self.open(now)

    def open(self, now: float) -> None:
        """Opens it, if it is closed."""
        if self._closed:
            self._closed = False
            self._since = self._permit + 1
            self._open(self._open_s if now >= self._slow_start_until else 2.0 * self._length_s, now)

    def hold(self) -> None:
        """Admit no call until `reset`, not even as a last resort. Outcomes of calls under way are ignored."""
        self._closed = False
        self._since = self._permit + 1
        self._probe = 0
        self._by_host = 0
        self._open_until = self._last_resort_at = math.inf

    def reset(self, now: float) -> None:
        """Close it as if nothing had ever failed."""
        self._close(now)
        self._by_host = 0
        self._slow_start_until = now

    def record_host_failure(self, now: float, *, out: bool = False) -> None:
        """Counts another breaker's failure that is the whole upstream's; `out` opens this one at once."""
        if self._closed:
            self._by_host += 1
            if out:
                self.open(now)
            else:
                self.record("failure", now, self._since)

    def host_recovered(self, now: float) -> None:
        """Forgets the host's failures, as the upstream has answered another model; a probe may go at once."""
        if self._by_host:
            self._by_host = 0
            self._in_a_row = 0
            if not self._closed:
                self._open_until = min(self._open_until, now)

    @property
    def is_open(self) -> bool:
        """Whether it is open or half-open."""
        return not self._closed

    def state(self, now: float) -> int:
        """CLOSED, HALF_OPEN or OPEN."""
        if self._closed:
            return CLOSED
        return OPEN if now < self._open_until else HALF_OPEN

    def ready(self, now: float) -> bool:
        """Whether a call would be admitted, slow start aside. Takes no permit."""
        return self._closed or (now >= self._open_until and not self._probe)

    def wait(self, now: float) -> float:
        """Seconds until a call is admitted that no other candidate could take."""
        if self._closed:
            return 0.0
        at = self._last_resort_at if self._probe else min(self._last_resort_at, self._open_until)
        return LAST_RESORT_S if at == math.inf else max(0.0, at - now)

    def _record_not_closed(self, outcome: Outcome, now: float, permit: int) -> None:
        """Records a call while the breaker is open or half-open."""
        if outcome == "success":
            self._close(now)
        elif permit == self._probe:
            self._probe = 0
            if outcome == "failure":
                self._open(2.0 * self._length_s if self._lengthens else self._length_s, now)

    def _close(self, now: float) -> None:
        self._closed = True
        self._permit += 1
        self._since = self._permit
        self._slow_start_until = now + HEALTHY_S
        self._probe = 0
        self._in_a_row = 0
        self._attempts = RollingCounter()
        self._failed = RollingCounter()

    def _open(self, length_s: float, now: float) -> None:
        self.opened_at = now
        self._length_s = min(length_s, self._max_open_s)
        # Jitter also at the upper bound: the gateways of a fleet must not probe all at once.
        longest = min((1.0 + JITTER) * self._length_s, self._max_open_s)
        self._open_until = now + self._rng.uniform((1.0 - JITTER) * self._length_s, longest)
        self._last_resort_at = now + LAST_RESORT_S

    def _must_open(self, now: float) -> bool:
        if self._in_a_row >= self._failures:
            return True
        attempts = self._attempts.count(now)
        return attempts >= _MIN_ATTEMPTS and 2 * self._failed.count(now) >= attempts

    def _admitted_share(self, now: float) -> float:
        return 1.0 - (1.0 - FIRST_SHARE) * (self._slow_start_until - now) / HEALTHY_S
