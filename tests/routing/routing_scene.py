"""A gate that routes, with everything around it in plain sight."""

from collections import Counter
from collections.abc import Sequence
from random import Random

from gateway.core.call import CHAT, Call, Candidate, Credentials, Price, Route, TokenEstimate
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
        given, output = (int(one * nano) for one in price)
        known = Price(given, output, given if cached is None else int(cached * nano))
    able = None if can is None else frozenset(can)
    return Candidate(upstream, "up", b'"up"', known, window, longest, able, weight)


class RoutingScene:
    """One model `m` with these candidates. `ill` are not to be called now, `engines` tell their load."""

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
        self.lines = {one.upstream: UpstreamQueue(one.upstream, permits) for one in candidates}
        self.engines: dict[str, EngineLoad] = {}
        self.ill: set[Candidate] = set()
        self.estimate = estimate
        self.estimated = 0
        self.counted: Counter[tuple[str, str, str]] = Counter()
        self.loads = UpstreamLoads(self.lines, lambda name, now: self.engines.get(name))
        self.prefixes = PrefixMap(remembered)
        self.routing = Router(
            {"m": rule},
            self.loads,
            self.prefixes,
            RequestInspectors(needs, prefix_hashes, self._estimate),
            lambda one, now: one not in self.ill,
            self._count,
            Random(seed),
        )

    def _estimate(self, call: Call) -> TokenEstimate:
        self.estimated += 1
        call.estimate = self.estimate
        return self.estimate

    def _count(self, model: str, upstream: str, reason: str) -> None:
        self.counted[model, upstream, reason] += 1

    def call(self, body: bytes = BODY, key: str = "a", ceiling: int | None = None) -> Call:
        """A call that has come as far as the gate."""
        call = Call(CHAT, "id", Credentials(None, None, None), NOW)
        call.body, call.route, call.candidate = body, self.route, self.route.candidates[0]
        call.model, call.caller = "m", Caller(key, None)
        if ceiling is not None:
            call.ceiling, call.estimate = ceiling, self.estimate
        return call

    def routed(self, call: Call | None = None, now: float = NOW) -> Call:
        """The call behind the gate; it must not be refused."""
        call = call or self.call()
        assert self.routing.admit(call, now) is None
        return call

    def order(self, call: Call | None = None) -> list[str]:
        """The upstreams in the order in which they would be tried."""
        call = self.routed(call)
        names = [one.upstream for one in call.candidates]
        assert call.candidate is not None
        assert not names or call.candidate.upstream == names[0]
        return names or [one.upstream for one in self.route.candidates]

    def refused(self, call: Call) -> Rejection:
        """What it is told."""
        refusal = self.routing.admit(call, NOW)
        assert refusal is not None
        return refusal

    def told(self, call: Call) -> str:
        """The header."""
        return call.response_notes[HEADER]

    def busy(self, upstream: str, calls: int) -> None:
        """So many calls are under way there."""
        self.lines[upstream].free = self.lines[upstream].permits - calls

    def answered(self, call: Call, seconds: float = 1.0, by: Candidate | None = None) -> None:
        """The call went where it should, or elsewhere, and took so long."""
        call.attempts, call.sent_at, call.answered_at = 1, NOW, NOW + seconds
        if by is not None:
            call.candidate = by
        call.lease.settle(call, NOW + seconds)
