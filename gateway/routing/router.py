"""Routing: which candidate a call goes to first, and in which order it would go on.

Filter, score, pick. Who cannot serve the call at all is out; who should not be called now comes last; the
route's own rule orders the rest, and a bound on the wait may send the call past the own upstreams.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple, Protocol

from gateway.core.call import Call, Candidate, Route, TokenEstimate
from gateway.core.errors import INSUFFICIENT_QUOTA, Rejection
from gateway.core.units import usd
from gateway.routing.eligibility import affordable, capable, expected, expected_all, incapable, roomy
from gateway.routing.load import UpstreamLoads
from gateway.routing.prefix_affinity import HashedPrefix, PrefixMap, at, place_of
from gateway.routing.spillover import SpillOver, Usable, own
from gateway.routing.strategies import cheapest, least_loaded, weighted

HEADER: Final = "x-sluice-routing"
REASONS: Final = (
    "priority", "cheapest", "weighted", "least_loaded", "complexity", "affinity", "spill", "fallback",
)  # fmt: skip
_FAR_AHEAD: Final = 8
"""A conversation leaves its replica when that has so many calls more than twice those of the emptiest one."""

_TOO_DEAR: Final = Rejection(
    INSUFFICIENT_QUOTA,
    "What is left of this key's budget for today pays for none of the upstreams that can serve this request.",
)


class RoutingRule(NamedTuple):
    """How the calls for one model are routed.

    `spill_s` is the longest wait at the own upstreams, None: any. `needs` and `measures` tell whether some
    candidate declares what it can do, and how much it holds.
    """

    kind: str
    spill_s: float | None = None
    needs: bool = False
    measures: bool = False

    @property
    def plain(self) -> bool:
        """Whether candidates are taken as listed, whatever the call."""
        return self.kind == "priority" and self.spill_s is None and not self.needs and not self.measures


class RequestInspectors(NamedTuple):
    """What a call's body tells. `estimate` fills in `call.estimate`."""

    needs: Callable[[bytes], frozenset[str]]
    beginnings: Callable[[bytes, str, str], HashedPrefix]
    estimate: Callable[[Call], TokenEstimate]


class CandidateScorer(Protocol):
    """Prefers candidates by what is asked, for the route `complexity`."""

    def pick(self, call: Call, candidates: Sequence[Candidate], now: float) -> "Selection":
        """All of these, best first. Asked once a call: it learns from each."""


class Selection(NamedTuple):
    """An order, why its first one is first (one of REASONS), and what the header tells beside it."""

    order: list[Candidate]
    reason: str
    detail: str = ""


class Router:
    """Gate: sets `call.candidate` and `call.order`."""

    def __init__(
        self,
        rules: Mapping[str, RoutingRule],
        loads: UpstreamLoads,
        prefixes: PrefixMap,
        reads: RequestInspectors,
        usable: Usable,
        counted: Callable[[str, str, str], None],
        rng: Random,
        scorers: Mapping[str, CandidateScorer] | None = None,
        fallback: Callable[[str, str], None] = lambda model, other: None,
    ) -> None:
        """`counted` is told of each pick: model, upstream, reason. `scorers` by model.

        `fallback` is told of each call that goes to another model at once: from which one, and to which.
        """
        self._rules = rules
        self._loads = loads
        self._prefixes = prefixes
        self._reads = reads
        self._usable = usable
        self._counted = counted
        self._rng = rng
        self._scorers = scorers or {}
        self._fallback = fallback
        self._spill = SpillOver(loads, usable, reads.estimate)
        self._picks = 0
        self._lately: dict[Candidate, int] = {}  # when it was last given what no other one held

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Pick, or refuse what nobody can serve."""
        route = call.route
        rule = self._rules.get(route.name) if route is not None else None
        if route is None or rule is None or (call.ceiling is None and rule.plain):
            return None
        needed = self._reads.needs(call.body) if rule.needs else frozenset()
        able = capable(route.candidates, needed)
        if not able:
            return self._elsewhere(call, route, needed, now)
        fit = self._fitting(call, rule, able)
        if isinstance(fit, Rejection):
            return fit
        picked, whole = self._pick(call, rule, fit, now)
        # Of the others it is asked when it comes to them.
        if rule.spill_s is not None or not self._usable(picked.order[0], now):
            well = [one for one in fit if self._usable(one, now)]
            if 0 < len(well) < len(fit) and rule.kind == "complexity":
                picked = picked._replace(order=[one for one in picked.order if one in well])
            elif 0 < len(well) < len(fit):
                picked, whole = self._pick(call, rule, well, now)
            if well and rule.spill_s is not None:
                picked = self._spilled(call, rule.kind, picked, fit, rule.spill_s, now)
            picked.order.extend([one for one in fit if one not in picked.order])
        first = picked.order[0]
        call.candidate, call.candidates = first, picked.order
        self._tell(call, route, picked)
        if whole is not None:
            self._prefixes.note(whole, place_of(first))
        call.lease.hold(_SelectionHold(self, whole, first))
        return None

    def spills(self, call: Call, now: float) -> bool:
        """The call has waited for `call.spill_s`: whether another candidate takes it (see `Spill.moves`)."""
        waited_s = call.max_wait_s
        if call.route is None or not self._spill.moves(call, now):
            return False
        self._tell(call, call.route, Selection(list(call.candidates), "spill", f"; waited={waited_s:.1f}s"))
        return True

    def learned(self, call: Call, picked: Candidate, whole: int | None, now: float) -> None:
        """The call is over, for which `picked` was the first choice; `whole` is its hash."""
        candidate = call.candidate
        if candidate is None or not call.attempts:
            return
        if call.answered_at > call.sent_at:
            self._loads.learn(candidate.upstream, call.stream, call.answered_at - call.sent_at, now)
        if whole is not None and candidate is not picked:
            self._prefixes.note(whole, place_of(candidate))

    def _spilled(
        self, call: Call, kind: str, picked: Selection, fit: Sequence[Candidate], bound_s: float, now: float
    ) -> Selection:
        """The same with own ones first, or past them. Of these `fit`, some may be ill now, and well later."""
        homes = own(fit, listed=kind == "priority")
        if kind == "complexity" and picked.order[0] not in homes:
            return picked  # it was found too hard for them
        if len(fit) > 1:
            call.max_wait_s = bound_s
        order, wait = self._spill.arrange(call, picked.order, homes, bound_s, now)
        if wait is None:
            return picked._replace(order=order)
        return Selection(order, "spill", f"; wait={wait:.1f}s" if wait < math.inf else "")

    def _elsewhere(self, call: Call, route: Route, needed: frozenset[str], now: float) -> Rejection | None:
        """No candidate can do what is asked: it goes to the first fallback that can, or is refused."""
        too_dear = False
        for other in route.fallbacks:
            able = capable(other.candidates, needed)
            fit = [one for one in able if affordable(call, one)]
            too_dear = too_dear or (bool(able) and not fit)
            if fit:
                # It alone, for a fallback has one call; where it fails the others come as always.
                first = next((one for one in fit if self._usable(one, now)), fit[0])
                call.candidate, call.candidates = first, (first,)
                self._fallback(route.name, other.name)
                self._tell(call, route, Selection([first], "fallback", f"; model={other.name}"))
                call.lease.hold(_SelectionHold(self, None, first))
                return None
        return _TOO_DEAR if too_dear else incapable(route.name, route.candidates, needed)

    def _fitting(
        self, call: Call, rule: RoutingRule, fit: Sequence[Candidate]
    ) -> Sequence[Candidate] | Rejection:
        """Those of `fit` that the key can pay and the call has room at."""
        if call.ceiling is not None:
            fit = [one for one in fit if affordable(call, one)]
            if not fit:
                return _TOO_DEAR
        if rule.measures and len(fit) > 1:
            fit = roomy(fit, call.estimate or self._reads.estimate(call), call.endpoint)
        return fit

    def _pick(
        self, call: Call, rule: RoutingRule, candidates: Sequence[Candidate], now: float
    ) -> tuple[Selection, int | None]:
        """The order by the route's rule, and the hash of the whole request where it is worth remembering."""
        if rule.kind == "priority":
            return Selection(list(candidates), "priority"), None
        if rule.kind == "weighted":
            return Selection(weighted(candidates, self._rng), "weighted"), None
        scorer = self._scorers.get(call.model)
        if rule.kind == "complexity" and scorer is not None:
            return scorer.pick(call, candidates, now), None
        owner = call.caller.name if call.caller is not None else ""
        beginnings = self._reads.beginnings(call.body, call.endpoint, owner)
        held = self._prefixes.find(beginnings)
        warm = at(held.place, candidates) if held is not None else None
        whole = beginnings.hashes[-1] if beginnings.hashes else None
        if rule.kind == "least_loaded":
            return self._least_loaded(call, candidates, warm, now), whole
        share = held.share if held is not None else 0.0
        return self._cheapest(call, candidates, warm, share, now), whole

    def _least_loaded(
        self, call: Call, candidates: Sequence[Candidate], warm: Candidate | None, now: float
    ) -> Selection:
        """`warm` holds the beginning of the request."""
        loads, names = self._loads, [one.upstream for one in candidates]
        calls = [loads.calls(name, now) for name in names]
        if warm is not None and self._stays(warm, candidates, calls, now):
            ranked = sorted(range(len(calls)), key=calls.__getitem__)
            others = [candidates[number] for number in ranked if candidates[number] is not warm]
            return Selection([warm, *others], "affinity")
        fullness = loads.fullness(names, calls, call.stream, now)
        order = least_loaded(candidates, fullness, self._lately, self._rng)
        self._picks += 1
        self._lately[order[0]] = self._picks
        return Selection(order, "least_loaded")

    def _cheapest(
        self, call: Call, candidates: Sequence[Candidate], warm: Candidate | None, share: float, now: float
    ) -> Selection:
        """`warm` holds this share of the request."""
        estimate = call.estimate or self._reads.estimate(call)
        cached = int(share * estimate.input)
        costs = expected_all(estimate, candidates)
        first = None
        if warm is not None:
            costs[candidates.index(warm)] = cost = expected(estimate, warm, cached)
            if costs.count(cost) > 1:
                calls = [self._loads.calls(one.upstream, now) for one in candidates]
                first = warm if self._stays(warm, candidates, calls, now) else None
        order = cheapest(
            candidates, costs, first, lambda one: self._loads.share(one.upstream, now), self._rng
        )
        best = order[0]
        nanos = costs[candidates.index(best)]
        detail = "" if nanos is None else f"; est_usd={usd(nanos)}"
        return Selection(order, "affinity" if best is warm and len(order) > 1 else "cheapest", detail)

    def _stays(self, warm: Candidate, candidates: Sequence[Candidate], calls: list[int], now: float) -> bool:
        """Whether what its cache saves is worth its load."""
        if self._loads.saturated(warm.upstream, now):
            return False
        return calls[candidates.index(warm)] <= 2 * min(calls) + _FAR_AHEAD

    def _tell(self, call: Call, route: Route, picked: Selection) -> None:
        self._counted(route.name, picked.order[0].upstream, picked.reason)
        short = call.ceiling is not None and not all(affordable(call, one) for one in route.candidates)
        call.response_notes[HEADER] = picked.reason + picked.detail + ("; budget" if short else "")


class _SelectionHold:
    """Holder: tells how the call went where it went."""

    __slots__ = ("_candidate", "_routing", "_whole")

    def __init__(self, routing: Router, whole: int | None, candidate: Candidate) -> None:
        self._routing = routing
        self._whole = whole
        self._candidate = candidate

    def settle(self, call: Call, now: float) -> None:
        self._routing.learned(call, self._candidate, self._whole, now)
