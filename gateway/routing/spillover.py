"""Spill-over: preferred upstreams are kept full; a call passes them by only if it would wait too long."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from gateway.core.call import Call, Candidate
from gateway.routing.load import UpstreamLoads

Usable = Callable[[Call, Candidate, float], bool]
"""Returns whether a candidate may take the call now, going by its breaker, its quota and its last rejection."""


class SpillOrder(NamedTuple):
    """An order of candidates; `wait` in seconds made the call spill over, None if it stays."""

    order: list[Candidate]
    wait: float | None


def preferred(candidates: Sequence[Candidate], *, listed: bool) -> Collection[Candidate]:
    """Return the candidates to keep full: those priced as the first one if `listed`, else as the cheapest.

    If all candidates of a list cost the same, only the first one is preferred.
    """
    levels = [_price_level(candidate) for candidate in candidates]
    anchor = levels[0] if listed else min(levels)
    matching = [candidate for candidate, level in zip(candidates, levels, strict=True) if level == anchor]
    return matching[:1] if listed and len(matching) == len(candidates) else matching


def _price_level(candidate: Candidate) -> tuple[bool, bool, int]:
    """Return a sort key; unknown prices come last."""
    price = candidate.price
    if price is None:
        return True, True, 0
    return False, price.output is None, price.input + (price.output or 0)


class SpillOver:
    """Decides when a call arrives, and again when it has waited. `estimate` fills in `call.usage.estimate`."""

    def __init__(self, loads: UpstreamLoads, usable: Usable, estimate: Callable[[Call], object]) -> None:
        self._loads = loads
        self._usable = usable
        self._estimate = estimate

    def arrange(
        self, call: Call, order: list[Candidate], homes: Collection[Candidate], bound_s: float, now: float
    ) -> SpillOrder:
        """Order preferred candidates first; spill over if even their shortest wait exceeds `bound_s`."""
        near = [candidate for candidate in order if candidate in homes]
        far = [candidate for candidate in order if candidate not in homes]
        if not near or not far:
            return SpillOrder(order, None)
        if call.usage.estimate is None and self._loads.saturated(near[0], now):
            self._estimate(call)
        wait, best = math.inf, near[0]
        for candidate in near:
            seconds = self._loads.wait(call, candidate, now)
            if seconds < wait:
                wait, best = seconds, candidate
            if seconds <= 0.0:
                break
        near = [best, *(candidate for candidate in near if candidate is not best)]
        if wait > bound_s:
            for target in far:
                if self._loads.wait(call, target, now) < wait:
                    rest = (candidate for candidate in far if candidate is not target)
                    return SpillOrder([target, *near, *rest], wait)
        return SpillOrder([*near, *far], None)

    def moves(self, call: Call, now: float) -> bool:
        """Return whether another candidate takes the call at once, after it has waited too long.

        That candidate is then first in `call.routing.candidates`, and the call moves no second time.
        """
        for target in call.routing.candidates:
            if target is call.routing.candidate or not self._usable(call, target, now):
                continue
            if self._loads.takes(call, target, now):
                call.routing.candidates = (target, *(one for one in call.routing.candidates if one is not target))
                call.routing.max_wait_s = math.inf
                return True
        return False
