"""A router with fakes around it."""

from collections import Counter
from collections.abc import Sequence
from random import Random

from kit.calls import make_call

from gateway.core.call import Call, Candidate, Price, Route, TokenEstimate
from gateway.core.caller import Caller
from gateway.core.errors import Rejection
from gateway.queueing.upstream_queue import UpstreamQueue
from gateway.routing.load import EngineLoad, UpstreamLoads
from gateway.routing.prefix_affinity import PrefixMap
from gateway.routing.prefix_hashes import prefix_hashes
from gateway.routing.router import HEADER, RequestInspectors, Router, RoutingRule
from gateway.wire.openai.capabilities import needs

NOW = 1000.0
EXPECTED = TokenEstimate(100, 100, True)
BODY = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'


def candidate(
    upstream: str,
    price: tuple[float, float] | None = (0, 0),
    *,
    window: int | None = None,
    longest: int | None = None,
    can: Sequence[str] | None = None,
    weight: int = 1,
    cached: float | None = None,
) -> Candidate:
    """A candidate; its price in dollars per million tokens, in and out."""
    nano = 10**9
    known = None
    if price is not None:
        input_price, output = (int(dollars * nano) for dollars in price)
        known = Price(input_price, output, input_price if cached is None else int(cached * nano))
    able = None if can is None else frozenset(can)
    return Candidate(upstream, "up", b'"up"', known, window, longest, able, weight)


class RoutingScene:
    """One model `m` with these candidates. `unusable` must not be called now; `engines` has engine loads."""

    def __init__(
        self,
        rule: RoutingRule,
        *candidates: Candidate,
        estimate: TokenEstimate = EXPECTED,
        permits: int = 4,
        seed: int = 1,
        remembered: int = 1000,
    ) -> None:
        self.route = Route("m", b'"m"', candidates)
        self.queues = {one.upstream: UpstreamQueue(one.upstream, permits) for one in candidates}
        self.engines: dict[str, EngineLoad] = {}
        self.unusable: set[Candidate] = set()
        self.estimate = estimate
        self.estimated = 0
        self.counted: Counter[tuple[str, str, str]] = Counter()
        self.loads = UpstreamLoads(self.queues, lambda name, now: self.engines.get(name))
        self.prefixes = PrefixMap(remembered)
        self.routing = Router(
            {"m": rule},
            self.loads,
            self.prefixes,
            RequestInspectors(needs, prefix_hashes, self._estimate),
            lambda call, candidate, now: candidate not in self.unusable,
            self._count,
            Random(seed),
        )

    def _estimate(self, call: Call) -> TokenEstimate:
        self.estimated += 1
        call.usage.estimate = self.estimate
        return self.estimate

    def _count(self, model: str, upstream: str, reason: str) -> None:
        self.counted[model, upstream, reason] += 1

    def call(self, body: bytes = BODY, key: str = "a", ceiling: int | None = None) -> Call:
        """A call that has reached the gate."""
        call = make_call(now=NOW)
        call.request.body, call.routing.route, call.routing.candidate = body, self.route, self.route.candidates[0]
        call.request.model, call.caller = "m", Caller(key, None)
        if ceiling is not None:
            call.routing.ceiling, call.usage.estimate = ceiling, self.estimate
        return call

    def routed(self, call: Call | None = None, now: float = NOW) -> Call:
        """The call after the gate, which must admit it."""
        call = call or self.call()
        assert self.routing.admit(call, now) is None
        return call

    def order(self, call: Call | None = None) -> list[str]:
        """The upstreams in the order of attempts."""
        call = self.routed(call)
        names = [one.upstream for one in call.routing.candidates]
        assert call.routing.candidate is not None
        assert not names or call.routing.candidate.upstream == names[0]
        return names or [one.upstream for one in self.route.candidates]

    def rejected(self, call: Call) -> Rejection:
        """The rejection of a call."""
        rejection = self.routing.admit(call, NOW)
        assert rejection is not None
        return rejection

    def header(self, call: Call) -> str:
        """The routing header."""
        return call.response.notes[HEADER]

    def busy(self, upstream: str, calls: int) -> None:
        """Put this many calls in flight at an upstream."""
        self.queues[upstream].free = self.queues[upstream].permits - calls

    def answered(self, call: Call, seconds: float = 1.0, by: Candidate | None = None) -> None:
        """End the call after this time, at its candidate or at `by`."""
        call.attempts, call.timing.sent_at, call.timing.answered_at = 1, NOW, NOW + seconds
        call.response.outcome = "ok"
        if by is not None:
            call.routing.candidate = by
        call.lease.settle(call, NOW + seconds)
