"""The tiers of a model with a cheap and a strong candidate, and the choice between them by what is asked."""

from collections.abc import Callable, Sequence
from typing import Final

from gateway.core.call import Call, Candidate, TokenEstimate
from gateway.routing.complexity.selector import STRONG, Chooser
from gateway.routing.eligibility import expected_all
from gateway.routing.router import Selection

_REASON: Final = "complexity"
EstimateOf = Callable[[Call], TokenEstimate]
"""Fills in `call.estimate` and gives it."""


class TierRanking:
    """Candidates from the cheapest to the strongest one for a call: by price, else as they are listed.

    A price that is not known, or the same for all, says nothing of strength. `alike`: these are left of a
    model whose tiers go by price, and all of them cost the same. There is nothing to choose between then.
    """

    __slots__ = ("alike", "ascending", "costs")

    def __init__(self, call: Call, candidates: Sequence[Candidate], estimate: EstimateOf) -> None:
        self.ascending = list(candidates)
        self.costs = [0] * len(candidates)
        self.alike = False
        if any(one.price is None for one in candidates):
            return
        expected = expected_all(call.estimate or estimate(call), candidates)
        costs = [nanos for nanos in expected if nanos is not None]
        if len(costs) == len(candidates) and min(costs) < max(costs):
            ranked = sorted(range(len(costs)), key=costs.__getitem__)
            self.ascending = [candidates[number] for number in ranked]
            self.costs = [costs[number] for number in ranked]
        elif call.route is not None and len(costs) == len(candidates) < len(call.route.candidates):
            self.alike = TierRanking(call, call.route.candidates, estimate).extra > 0

    @property
    def extra(self) -> int:
        """Nano-dollars that the strong tier is expected to cost more than the cheap one."""
        return self.costs[-1] - self.costs[0]

    @property
    def strong(self) -> list[Candidate]:
        """The strong tier, as listed: all that cost as much as the dearest one."""
        if not self.extra:
            return self.ascending[-1:]
        most = self.costs[-1]
        return [one for one, cost in zip(self.ascending, self.costs, strict=True) if cost == most]

    @property
    def descending(self) -> list[Candidate]:
        """The strong tier, then the others, dearest first."""
        strong = self.strong
        return strong + [one for one in reversed(self.ascending) if one not in strong]


class ComplexityScorer:
    """`policy.route.Scorer` of one model."""

    __slots__ = ("_chooser", "_estimate")

    def __init__(self, chooser: Chooser, estimate: EstimateOf) -> None:
        self._chooser = chooser
        self._estimate = estimate

    def pick(self, call: Call, candidates: Sequence[Candidate], now: float) -> Selection:
        """The tier that suits what is asked, then the other ones."""
        if len(candidates) == 1:
            return Selection(list(candidates), _REASON)
        ranked = TierRanking(call, candidates, self._estimate)
        if ranked.alike:
            return Selection(list(candidates), _REASON)
        caller = call.caller.name if call.caller is not None else ""
        choice = self._chooser.choose(call.body, caller, ranked.extra, now)
        order = ranked.descending if choice.tier == STRONG else ranked.ascending
        return Selection(order, _REASON, self._chooser.tell(choice).removeprefix(_REASON))
