"""Ranks a model's candidates into a cheap and a strong tier, and picks between them by the prompt."""

from collections.abc import Callable, Sequence
from typing import Final

from gateway.core.call import Call, Candidate, TokenEstimate
from gateway.routing.complexity.selector import STRONG, TierChooser
from gateway.routing.eligibility import expected_all
from gateway.routing.router import Selection
from gateway.wire.request_body import fields_of

_REASON: Final = "complexity"
EstimateOf = Callable[[Call], TokenEstimate]
"""Fills in `call.usage.estimate` and returns it."""


class TierRanking:
    """Candidates from the cheapest to the strongest for a call: by price, else as listed.

    Unknown or equal prices say nothing about strength. `single_tier`: the model's tiers go by price, and all
    remaining candidates cost the same, so there is nothing to choose.
    """

    __slots__ = ("ascending", "costs", "single_tier")

    def __init__(self, call: Call, candidates: Sequence[Candidate], estimate: EstimateOf) -> None:
        self.ascending = list(candidates)
        self.costs = [0] * len(candidates)
        self.single_tier = False
        if any(candidate.price is None for candidate in candidates):
            return
        expected = expected_all(call.usage.estimate or estimate(call), candidates)
        costs = [nanos for nanos in expected if nanos is not None]
        if len(costs) == len(candidates) and min(costs) < max(costs):
            ranked = sorted(range(len(costs)), key=costs.__getitem__)
            self.ascending = [candidates[number] for number in ranked]
            self.costs = [costs[number] for number in ranked]
        elif len(costs) == len(candidates) < len(call.routing.route.candidates):
            self.single_tier = TierRanking(call, call.routing.route.candidates, estimate).extra > 0

    @property
    def extra(self) -> int:
        """Expected extra cost of the strong tier over the cheap one, in nano-dollars."""
        return self.costs[-1] - self.costs[0]

    @property
    def strong(self) -> list[Candidate]:
        """The strong tier, as listed: all candidates as expensive as the most expensive one."""
        if not self.extra:
            return self.ascending[-1:]
        highest = self.costs[-1]
        return [c for c, cost in zip(self.ascending, self.costs, strict=True) if cost == highest]

    @property
    def descending(self) -> list[Candidate]:
        """The strong tier, then the others, most expensive first."""
        strong = self.strong
        return strong + [candidate for candidate in reversed(self.ascending) if candidate not in strong]


class ComplexityScorer:
    """`router.CandidateScorer` of one model."""

    __slots__ = ("_chooser", "_estimate")

    def __init__(self, chooser: TierChooser, estimate: EstimateOf) -> None:
        self._chooser = chooser
        self._estimate = estimate

    def pick(self, call: Call, candidates: Sequence[Candidate], now: float) -> Selection:
        """Return the chosen tier's candidates, then the others."""
        if len(candidates) == 1:
            return Selection(list(candidates), _REASON)
        ranked = TierRanking(call, candidates, self._estimate)
        if ranked.single_tier:
            return Selection(list(candidates), _REASON)
        caller = call.caller.name
        choice = self._chooser.choose(fields_of(call.request), caller, ranked.extra, now)
        order = ranked.descending if choice.tier == STRONG else ranked.ascending
        return Selection(order, _REASON, self._chooser.describe(choice).removeprefix(_REASON))
