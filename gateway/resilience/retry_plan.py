"""Where a call may still go: the candidates of its model, then one call to each fallback."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gateway.core.call import Candidate, Route


class NextAttempt(NamedTuple):
    """The next call to an upstream. `at` is when it may go, in monotonic seconds; `route` whose it is."""

    candidate: Candidate
    route: Route
    at: float


class RetryPlan:
    """The calls that one request has left, after its first one.

    `attempts` bounds the calls to the candidates of the model asked for, the first one included. Candidates
    that were not tried go before those that were; a model's fallbacks come after all its candidates. `order`
    has those candidates that may be tried, best first; empty: all, as listed.
    """

    def __init__(self, route: Route, attempts: int, order: Sequence[Candidate] = ()) -> None:
        self._route = route
        self.order = order or route.candidates
        self._attempts = attempts
        self._again_at: dict[Candidate, float] = {}  # tried; may be tried again from then on
        self._out: set[Candidate] = set()  # not to be tried (again)
        self._too_small = 0  # tokens of the largest window that overflowed
        # A call that began at a fallback has had its one call there.
        begun = self.order[0] if self.order and self.order[0] not in route.candidates else None
        self._fallbacks = [one for one in route.fallbacks if begun not in one.candidates]

    def record_failure(self, candidate: Candidate, again_at: float | None) -> None:
        """This candidate has failed; None: it is not to be tried again."""
        self._attempts -= 1
        self._again_at.pop(candidate, None)
        if again_at is None or candidate not in self._route.candidates:  # a fallback has one call
            self._out.add(candidate)
        else:
            self._again_at[candidate] = again_at

    def record_overflow(self, candidate: Candidate) -> None:
        """The call is too long for this candidate, and for every one whose window is not larger."""
        self._out.add(candidate)
        self._too_small = max(self._too_small, candidate.context_window or 0)

    def exclude(self, candidate: Candidate) -> None:
        """It had no place for this call, and has not been called."""
        self._out.add(candidate)

    def next(
        self, now: float, admits: Callable[[Candidate], bool], *, fallbacks: bool = True
    ) -> NextAttempt | None:
        """Where to go now or, with nowhere else to go, later. `admits` is asked of the one that is given."""
        if self._attempts > 0:
            for candidate in self.order:
                if candidate not in self._again_at and self._open(candidate) and admits(candidate):
                    return NextAttempt(candidate, self._route, now)
            for candidate, at in sorted(self._again_at.items(), key=lambda one: one[1]):
                if self._open(candidate) and admits(candidate):
                    return NextAttempt(candidate, self._route, max(at, now))
        while fallbacks and self._fallbacks:
            route = self._fallbacks.pop(0)
            for candidate in route.candidates:
                if self._open(candidate) and admits(candidate):
                    return NextAttempt(candidate, route, now)
        return None

    def _open(self, candidate: Candidate) -> bool:
        window = candidate.context_window
        fits = not self._too_small or window is None or window > self._too_small
        return fits and candidate not in self._out
