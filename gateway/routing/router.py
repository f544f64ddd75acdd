"""The router: which candidate a call goes to first, and in which order it is retried.

Filter, score, pick. Candidates that cannot serve the call are excluded, those that should not be called now
come last, and the route's strategy orders the rest. A bound on the wait may spill the call over.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple, Protocol

from gateway.core.call import Call, Candidate, Considered, Route, TokenEstimate
from gateway.core.errors import INSUFFICIENT_QUOTA, Rejection
from gateway.core.request_fields import RequestFields
from gateway.core.units import usd
from gateway.routing.eligibility import affordable, capable, expected, expected_all, incapable, roomy
from gateway.routing.load import UpstreamLoads
from gateway.routing.prefix_affinity import HashedPrefix, PrefixMap, candidate_at, replica_of
from gateway.routing.spillover import SpillOver, Usable, preferred
from gateway.routing.strategies import cheapest, least_loaded, weighted
from gateway.wire.request_body import fields_of

HEADER: Final = "x-sluice-routing"
REASONS: Final = (
    "priority", "cheapest", "weighted", "least_loaded", "complexity", "affinity", "spill", "fallback",
)  # fmt: skip
_FAR_AHEAD: Final = 8
"""A conversation leaves a replica with more calls than twice those of the least loaded one plus this."""

_TOO_EXPENSIVE: Final = Rejection(
    INSUFFICIENT_QUOTA,
    "This key's remaining budget for today is too small for every upstream that can serve this request.",
)


class RoutingRule(NamedTuple):
    """How the calls for one model are routed.

    `spill_s` is the longest wait at the preferred upstreams, None: any. `needs`: some candidate declares its
    capabilities. `measures`: some candidate declares its context window.
    """

    kind: str
    spill_s: float | None = None
    needs: bool = False
    measures: bool = False

    @property
    def plain(self) -> bool:
        """Whether candidates are used as listed, whatever the call."""
        return self.kind == "priority" and self.spill_s is None and not self.needs and not self.measures


class RequestInspectors(NamedTuple):
    """Functions that inspect a request. `estimate` fills in `call.usage.estimate`."""

    needs: Callable[[RequestFields | None], frozenset[str]]
    prefixes: Callable[[RequestFields | None, str], HashedPrefix]
    estimate: Callable[[Call], TokenEstimate]


class CandidateScorer(Protocol):
    """Ranks candidates by the prompt, for the strategy `complexity`."""

    def pick(self, call: Call, candidates: Sequence[Candidate], now: float) -> "Selection":
        """Return all of these, best first. Must be called once per call, because it learns from each."""


class Selection(NamedTuple):
    """An order, the reason for its first candidate (one of REASONS), and a detail for the header."""

    order: list[Candidate]
    reason: str
    detail: str = ""


class Router:
    """Gate that sets `call.routing.candidate` and `call.routing.candidates`."""

    def __init__(
        self,
        rules: Mapping[str, RoutingRule],
        loads: UpstreamLoads,
        prefixes: PrefixMap,
        inspectors: RequestInspectors,
        usable: Usable,
        count: Callable[[str, str, str], None],
        rng: Random,
        scorers: Mapping[str, CandidateScorer] | None = None,
        fallback: Callable[[str, str], None] = lambda from_model, to_model: None,
    ) -> None:
        """`count` counts each decision (model, upstream, reason); `scorers` is by model.

        `fallback` counts each call that goes to another model at once (from model, to model).
        """
        self._rules = rules
        self._loads = loads
        self._prefixes = prefixes
        self._inspectors = inspectors
        self._usable = usable
        self._count = count
        self._rng = rng
        self._scorers = scorers or {}
        self._fallback = fallback
        self._spill = SpillOver(loads, usable, inspectors.estimate)
        self._picks = 0
        self._last_picks: dict[Candidate, int] = {}  # number of the last pick without affinity

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Pick a candidate, or reject a call that none can serve."""
        route = call.routing.route
        rule = self._rules.get(route.name)
        if rule is None or (call.routing.ceiling is None and rule.plain):
            return None
        needed = self._inspectors.needs(fields_of(call.request)) if rule.needs else frozenset()
        able = capable(route.candidates, needed)
        if not able:
            return self._use_fallback(call, route, needed, now)
        fit = self._fitting(call, rule, able)
        if isinstance(fit, Rejection):
            return fit
        call.routing.considered = Considered(fit, needed=needed)
        picked, request_hash = self._pick(call, rule, fit, now)
        # Whether the others are usable is checked when it is their turn.
        if rule.spill_s is not None or not self._usable(call, picked.order[0], now):
            usable = [candidate for candidate in fit if self._usable(call, candidate, now)]
            if 0 < len(usable) < len(fit) and rule.kind == "complexity":
                picked = picked._replace(order=[one for one in picked.order if one in usable])
            elif 0 < len(usable) < len(fit):
                picked, request_hash = self._pick(call, rule, usable, now)
            if len(usable) < len(fit):
                unusable = [candidate for candidate in fit if candidate not in usable]
                call.routing.considered = call.routing.considered._replace(unusable=unusable)
            if usable and rule.spill_s is not None:
                picked = self._spilled(call, rule.kind, picked, fit, rule.spill_s, now)
            picked.order.extend([candidate for candidate in fit if candidate not in picked.order])
        first = picked.order[0]
        call.routing.candidate, call.routing.candidates = first, picked.order
        self._announce(call, route, picked)
        if request_hash is not None:
            self._prefixes.note(request_hash, replica_of(first))
        call.lease.hold(_SelectionHold(self, request_hash, first))
        return None

    def spills(self, call: Call, now: float) -> bool:
        """Return whether another candidate takes a call that has waited `call.routing.max_wait_s`."""
        waited_s = call.routing.max_wait_s
        if not self._spill.moves(call, now):
            return False
        picked = Selection(list(call.routing.candidates), "spill", f"; waited={waited_s:.1f}s")
        self._announce(call, call.routing.route, picked)
        return True

    def record_end(self, call: Call, picked: Candidate, request_hash: int | None, now: float) -> None:
        """Learn from a call at its end; `picked` was its first choice."""
        candidate = call.routing.candidate
        if not call.attempts:
            return
        # A refusal is no answer: it comes at once, and a caller who leaves after it has no attempt under way.
        timing = call.timing
        answered = call.response.outcome == "ok" or timing.first_token_at >= timing.sent_at
        if answered and timing.answered_at > timing.sent_at > 0.0:
            seconds = timing.answered_at - timing.sent_at
            self._loads.learn(candidate.upstream, call.request.stream, seconds, now)
        if request_hash is not None and candidate is not picked:
            self._prefixes.note(request_hash, replica_of(candidate))

    def _spilled(
        self, call: Call, kind: str, picked: Selection, fit: Sequence[Candidate], bound_s: float, now: float
    ) -> Selection:
        """Return the selection with preferred candidates first, or past them.

        `fit` includes candidates that are not usable now, so that the preferred ones stay the same.
        """
        homes = preferred(fit, listed=kind == "priority")
        if kind == "complexity" and picked.order[0] not in homes:
            return picked  # too hard for the preferred ones
        if len(fit) > 1:
            call.routing.max_wait_s = bound_s
        order, wait = self._spill.arrange(call, picked.order, homes, bound_s, now)
        if wait is None:
            return picked._replace(order=order)
        return Selection(order, "spill", f"; wait={wait:.1f}s" if wait < math.inf else "")

    def _use_fallback(self, call: Call, route: Route, needed: frozenset[str], now: float) -> Rejection | None:
        """Send a call that no candidate can serve to the first fallback that can, or reject it."""
        too_expensive = False
        for fallback in route.fallbacks:
            able = capable(fallback.candidates, needed)
            fit = [candidate for candidate in able if affordable(call, candidate)]
            too_expensive = too_expensive or (bool(able) and not fit)
            if fit:
                # A single candidate: a fallback gets one attempt, and after a failure the next ones follow.
                first = next((candidate for candidate in fit if self._usable(call, candidate, now)), fit[0])
                call.routing.candidate, call.routing.candidates = first, (first,)
                self._fallback(route.name, fallback.name)
                self._announce(call, route, Selection([first], "fallback", f"; model={fallback.name}"))
                call.lease.hold(_SelectionHold(self, None, first))
                return None
        return _TOO_EXPENSIVE if too_expensive else incapable(route.name, route.candidates, needed)

    def _fitting(self, call: Call, rule: RoutingRule, fit: Sequence[Candidate]) -> Sequence[Candidate] | Rejection:
        """Return those of `fit` that the key can pay for and that have room for the call."""
        if call.routing.ceiling is not None:
            fit = [candidate for candidate in fit if affordable(call, candidate)]
            if not fit:
                return _TOO_EXPENSIVE
        if rule.measures and len(fit) > 1:
            fit = roomy(fit, call.usage.estimate or self._inspectors.estimate(call), call.request.endpoint)
        return fit

    def _pick(
        self, call: Call, rule: RoutingRule, candidates: Sequence[Candidate], now: float
    ) -> tuple[Selection, int | None]:
        """Return the order by the route's strategy, and the request's hash if it is worth remembering."""
        if rule.kind == "priority":
            return Selection(list(candidates), "priority"), None
        if rule.kind == "weighted":
            return Selection(weighted(candidates, self._rng), "weighted"), None
        scorer = self._scorers.get(call.routing.route.name)
        if rule.kind == "complexity" and scorer is not None:
            return scorer.pick(call, candidates, now), None
        owner = call.caller.name
        prefixes = self._inspectors.prefixes(fields_of(call.request), owner)
        match = self._prefixes.find(prefixes)
        warm = candidate_at(match.replica, candidates) if match is not None else None
        request_hash = prefixes.hashes[-1] if prefixes.hashes else None
        if rule.kind == "least_loaded":
            return self._least_loaded(call, candidates, warm, now), request_hash
        share = match.share if match is not None else 0.0
        return self._cheapest(call, candidates, warm, share, now), request_hash

    def _least_loaded(
        self, call: Call, candidates: Sequence[Candidate], warm: Candidate | None, now: float
    ) -> Selection:
        """`warm` has cached a prefix of the request."""
        loads, names = self._loads, [candidate.upstream for candidate in candidates]
        calls = [loads.calls(candidate, now) for candidate in candidates]
        if warm is not None and self._stays(warm, candidates, calls, now):
            self._compared(call, candidates, "calls", calls)
            ranked = sorted(range(len(calls)), key=calls.__getitem__)
            rest = [candidates[number] for number in ranked if candidates[number] is not warm]
            return Selection([warm, *rest], "affinity")
        fullness = loads.fullness(names, calls, call.request.stream, now)
        self._compared(call, candidates, "load", fullness)
        order = least_loaded(candidates, fullness, self._last_picks, self._rng)
        self._picks += 1
        self._last_picks[order[0]] = self._picks
        return Selection(order, "least_loaded")

    def _cheapest(
        self, call: Call, candidates: Sequence[Candidate], warm: Candidate | None, share: float, now: float
    ) -> Selection:
        """`warm` has cached this share of the request."""
        estimate = call.usage.estimate or self._inspectors.estimate(call)
        cached = int(share * estimate.input)
        costs = expected_all(estimate, candidates)
        first = None
        if warm is not None:
            costs[candidates.index(warm)] = cost = expected(estimate, warm, cached)
            if costs.count(cost) > 1:
                calls = [self._loads.calls(candidate, now) for candidate in candidates]
                first = warm if self._stays(warm, candidates, calls, now) else None
        order = cheapest(candidates, costs, first, lambda candidate: self._loads.share(candidate, now), self._rng)
        self._compared(call, candidates, "usd", costs)
        best = order[0]
        nanos = costs[candidates.index(best)]
        detail = "" if nanos is None else f"; est_usd={usd(nanos)}"
        return Selection(order, "affinity" if best is warm and len(order) > 1 else "cheapest", detail)

    @staticmethod
    def _compared(call: Call, candidates: Sequence[Candidate], unit: str, values: Sequence[float | None]) -> None:
        needed = frozenset() if call.routing.considered is None else call.routing.considered.needed
        call.routing.considered = Considered(candidates, unit, values, needed)

    def _stays(self, warm: Candidate, candidates: Sequence[Candidate], calls: list[int], now: float) -> bool:
        """Return whether the replica's cache is worth its load."""
        if self._loads.saturated(warm, now):
            return False
        return calls[candidates.index(warm)] <= 2 * min(calls) + _FAR_AHEAD

    def _announce(self, call: Call, route: Route, picked: Selection) -> None:
        """Count the decision, and set its header."""
        self._count(route.name, picked.order[0].upstream, picked.reason)
        over_budget = call.routing.ceiling is not None and not all(affordable(call, one) for one in route.candidates)
        call.response.notes[HEADER] = picked.reason + picked.detail + ("; budget" if over_budget else "")


class _SelectionHold:
    """Holder that reports the end of the call to the router."""

    __slots__ = ("_candidate", "_request_hash", "_router")

    def __init__(self, router: Router, request_hash: int | None, candidate: Candidate) -> None:
        self._router = router
        self._request_hash = request_hash
        self._candidate = candidate

    def settle(self, call: Call, now: float) -> None:
        self._router.record_end(call, self._candidate, self._request_hash, now)
