"""Spill-over: the own upstreams are kept full; a call goes past them only where it would wait too long."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from gateway.core.call import Call, Candidate
from gateway.routing.load import UpstreamLoads

Usable = Callable[[Candidate, float], bool]
"""Whether a candidate may be called now, as far as its breaker and its last refusal tell."""


class SpillOrder(NamedTuple):
    """An order of candidates; `wait`, in seconds, sends the call past the own ones, None lets it stay."""

    order: list[Candidate]
    wait: float | None


def own(candidates: Sequence[Candidate], *, listed: bool) -> Collection[Candidate]:
    """Those to be kept full: all that cost as little as the first one as `listed`, else as the cheapest one.

    In a list whose candidates all cost the same it is the first one alone.
    """
    levels = [_level(one) for one in candidates]
    anchor = levels[0] if listed else min(levels)
    found = [one for one, level in zip(candidates, levels, strict=True) if level == anchor]
    return found[:1] if listed and len(found) == len(candidates) else found


def _level(candidate: Candidate) -> tuple[bool, bool, int]:
    """What is not known ranks behind what is."""
    price = candidate.price
    if price is None:
        return True, True, 0
    return False, price.output is None, price.input + (price.output or 0)


class SpillOver:
    """Decides when a call comes, and again when it has waited. `estimate` fills in `call.estimate`."""

    def __init__(self, loads: UpstreamLoads, usable: Usable, estimate: Callable[[Call], object]) -> None:
        self._loads = loads
        self._usable = usable
        self._estimate = estimate

    def arrange(
        self, call: Call, order: list[Candidate], homes: Collection[Candidate], bound_s: float, now: float
    ) -> SpillOrder:
        """Own ones first, who has no wait before all; past them where even the shortest wait is too long."""
        near = [one for one in order if one in homes]
        far = [one for one in order if one not in homes]
        if not near or not far:
            return SpillOrder(order, None)
        if call.estimate is None and self._loads.saturated(near[0].upstream, now):
            self._estimate(call)
        wait, home = math.inf, near[0]
        for one in near:
            seconds = self._loads.wait(call, one.upstream, now)
            if seconds < wait:
                wait, home = seconds, one
            if seconds <= 0.0:
                break
        near = [home, *(one for one in near if one is not home)]
        if wait > bound_s:
            for one in far:
                if self._loads.wait(call, one.upstream, now) < wait:
                    return SpillOrder([one, *near, *(other for other in far if other is not one)], wait)
        return SpillOrder([*near, *far], None)

    def moves(self, call: Call, now: float) -> bool:
        """The call has waited so long: whether another candidate takes it at once.

        `call.order` then begins with that one, and the call moves no second time.
        """
        for one in call.candidates:
            if one is call.candidate or not self._usable(one, now):
                continue
            if self._loads.takes(call, one.upstream, now):
                call.candidates = (one, *(other for other in call.candidates if other is not one))
                call.max_wait_s = math.inf
                return True
        return False
