"""Where a call may still be sent: the candidates of its model, then each fallback once."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

from gateway.core.call import Candidate, Route


class NextAttempt(NamedTuple):
    """The next attempt. `at` is its earliest time in monotonic seconds; `route` is the candidate's model."""

    candidate: Candidate
    route: Route
    at: float


class RetryPlan:
    """The attempts that one request may still make after its first one.

    `attempts` bounds the attempts at candidates of the requested model, the first one included. Untried
    candidates precede tried ones; fallbacks follow all candidates. `order` lists the eligible candidates,
    best first; if empty, all candidates in the order of the config.
    """

    def __init__(self, route: Route, attempts: int, order: Sequence[Candidate] = ()) -> None:
        self._route = route
        self.order = order or route.candidates
        self._attempts = attempts
        self._again_at: dict[Candidate, float] = {}  # tried; when each may be tried again
        self._excluded: set[Candidate] = set()  # not to be tried
        self._too_small = 0  # tokens of the largest window that overflowed
        # A first attempt at a fallback was its one attempt there.
        first = self.order[0] if self.order and self.order[0] not in route.candidates else None
        self._fallbacks = [each for each in route.fallbacks if first not in each.candidates]

    def record_failure(self, candidate: Candidate, again_at: float | None) -> None:
        """Records an attempt that failed; the candidate may be tried again at `again_at`, None is never."""
        self._attempts -= 1
        self._again_at.pop(candidate, None)
        if again_at is None or candidate not in self._route.candidates:  # a fallback has one attempt
            self._excluded.add(candidate)
        else:
            self._again_at[candidate] = again_at

    def record_overflow(self, candidate: Candidate) -> None:
        """Excludes this candidate and all whose context window is not larger."""
        self._excluded.add(candidate)
        self._too_small = max(self._too_small, candidate.context_window or 0)

    def exclude(self, candidate: Candidate) -> None:
        """Excludes a candidate that was not called."""
        self._excluded.add(candidate)

    def next(self, now: float, admits: Callable[[Candidate], bool], *, fallbacks: bool = True) -> NextAttempt | None:
        """The next attempt: now, or later if no candidate is free now; None if there is none.

        `admits` has been true for the candidate that is returned, and for no other.
        """
        if self._attempts > 0:
            for candidate in self.order:
                if candidate not in self._again_at and self._eligible(candidate) and admits(candidate):
                    return NextAttempt(candidate, self._route, now)
            for candidate, at in sorted(self._again_at.items(), key=itemgetter(1)):
                if self._eligible(candidate) and admits(candidate):
                    return NextAttempt(candidate, self._route, max(at, now))
        while fallbacks and self._fallbacks:
            route = self._fallbacks.pop(0)
            for candidate in route.candidates:
                if self._eligible(candidate) and admits(candidate):
                    return NextAttempt(candidate, route, now)
        return None

    def _eligible(self, candidate: Candidate) -> bool:
        window = candidate.context_window
        fits = not self._too_small or window is None or window > self._too_small
        return fits and candidate not in self._excluded
