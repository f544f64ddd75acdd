"""When to leave an upstream alone because it fails, and how to find out that it is well again.

Closed, every call goes. Enough failures open it: no call goes for a while, each time for twice as long, until
it has been well for HEALTHY_S. Then it is half-open: one call at a time goes as a probe (Finagle's way back);
its success closes the breaker, and a rising share of the calls comes back to an upstream that may be cold
(Envoy's slow start).

Every call that goes has a ticket, its place in this history. What a call tells that set out before the last
change is no news of the upstream as it is now: a late failure does not open what a probe has closed, and
nothing but the probe itself brings the probe back.
"""

from random import Random
from typing import Final, Literal

from gateway.resilience.rolling_counter import RollingCounter

CLOSED: Final = 0
HALF_OPEN: Final = 1
OPEN: Final = 2

HEALTHY_S: Final = 30.0
"""So long after closing an upstream is as good as any: it gets all its calls, and its past is forgotten."""
FIRST_SHARE: Final = 0.1
"""The share of calls that goes right after closing."""
LAST_RESORT_S: Final = 1.0
"""One call in so many seconds goes, whatever the state, when nobody else could take it."""
JITTER: Final = 0.2
_ENOUGH: Final = 20  # attempts in the last 10 s by which a share of failures can be judged

Outcome = Literal["success", "failure", "none"]


class CircuitBreaker:
    """The breaker of one upstream. `now` is in monotonic seconds and never goes back.

    It opens after `failures` of them in a row, or when half of at least 20 attempts in the last 10 s have
    failed; first for `open_s` seconds and at most for `max_open_s`, give or take a fifth.
    """

    __slots__ = (
        "_attempts",
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
        "_probe",
        "_rng",
        "_since",
        "_slow_start_until",
        "_ticket",
    )

    def __init__(self, failures: int, open_s: float, max_open_s: float, rng: Random) -> None:
        self._failures = failures
        self._open_s = open_s
        self._max_open_s = max_open_s
        self._rng = rng
        self._ticket = 1  # the newest one
        self._since = 1  # the oldest one that still tells something; while closed all have this one
        self._slow_start_until = 0.0  # no slow start when the process starts
        self._length_s = 0.0
        self._open_until = 0.0
        self._last_resort_at = 0.0
        self._probe = 0  # the ticket of the probe that is out
        self._lengthens = True  # its failure
        self._closed = True
        self._in_a_row = 0
        self._attempts = RollingCounter()
        self._failed = RollingCounter()

    def acquire(self, now: float, last_resort: bool = False) -> int:
        """Whether a call may go: 0 is no, anything else the ticket that must come back to `record`, once.

        `last_resort` says that no other candidate could take the call.
        """
        if self._closed:
            if now >= self._slow_start_until or last_resort or self._rng.random() < self._share(now):
                return self._since
            return 0
        if now >= self._open_until and not self._probe:
            self._ticket += 1
            self._probe = self._ticket
            self._lengthens = not last_resort
        elif last_resort and now >= self._last_resort_at:
            self._ticket += 1
        else:
            return 0
        self._last_resort_at = now + LAST_RESORT_S
        return self._ticket

    def record(self, outcome: Outcome, now: float, ticket: int) -> None:
        """What became of the call with this ticket; `none`: nothing, or it never went."""
        if ticket < self._since:
            return
        if not self._closed:
            self._judge(outcome, now, ticket)
        elif outcome == "success":
            self._in_a_row = 0
            self._attempts.add(now)
        elif outcome == "failure":
            self._in_a_row += 1
            self._attempts.add(now)
            self._failed.add(now)
            if self._too_many(now):
                self._closed = False
                self._since = self._ticket + 1
                self._open(self._open_s if now >= self._slow_start_until else 2.0 * self._length_s, now)

    def state(self, now: float) -> int:
        """CLOSED, HALF_OPEN or OPEN."""
        if self._closed:
            return CLOSED
        return OPEN if now < self._open_until else HALF_OPEN

    def ready(self, now: float) -> bool:
        """Whether a call may go, if chance allows it in a slow start. Hands out nothing."""
        return self._closed or (now >= self._open_until and not self._probe)

    def wait(self, now: float) -> float:
        """Seconds until a call would go that nobody else could take; 0.0 is now."""
        if self._closed:
            return 0.0
        at = self._last_resort_at if self._probe else min(self._last_resort_at, self._open_until)
        return max(0.0, at - now)

    def _judge(self, outcome: Outcome, now: float, ticket: int) -> None:
        """A call has come back that went while the breaker was not closed."""
        if outcome == "success":
            self._close(now)
        elif ticket == self._probe:
            self._probe = 0
            if outcome == "failure":
                self._open(2.0 * self._length_s if self._lengthens else self._length_s, now)

    def _close(self, now: float) -> None:
        self._closed = True
        self._ticket += 1
        self._since = self._ticket
        self._slow_start_until = now + HEALTHY_S
        self._probe = 0
        self._in_a_row = 0
        self._attempts = RollingCounter()
        self._failed = RollingCounter()

    def _open(self, length_s: float, now: float) -> None:
        """For the first time, or once more."""
        self._length_s = min(length_s, self._max_open_s)
        # At the upper bound too the gateways of a fleet must not knock all at once.
        longest = min((1.0 + JITTER) * self._length_s, self._max_open_s)
        self._open_until = now + self._rng.uniform((1.0 - JITTER) * self._length_s, longest)
        self._last_resort_at = now + LAST_RESORT_S

    def _too_many(self, now: float) -> bool:
        if self._in_a_row >= self._failures:
            return True
        attempts = self._attempts.count(now)
        return attempts >= _ENOUGH and 2 * self._failed.count(now) >= attempts

    def _share(self, now: float) -> float:
        return 1.0 - (1.0 - FIRST_SHARE) * (self._slow_start_until - now) / HEALTHY_S
