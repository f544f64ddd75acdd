"""The cost of a routing decision: eight candidates, a body of about 1.4 KB. Run as `python -m benchmarks.route`.

One process, one core, no sockets: the gate with real queues and the real inspection of the body. Printed is the
fastest of many short runs, as the machine may be busy.
"""

from collections.abc import Callable
from random import Random
from time import perf_counter
from typing import Final

from benchmarks.arguments import arguments
from gateway.core.call import Call, Candidate, ClientRequest, Price, Route
from gateway.core.caller import Caller
from gateway.queueing.upstream_queue import UpstreamQueue
from gateway.routing.load import UpstreamLoads
from gateway.routing.prefix_affinity import PrefixMap
from gateway.routing.prefix_hashes import prefix_hashes
from gateway.routing.router import RequestInspectors, Router, RoutingRule
from gateway.telemetry.metrics import Metrics
from gateway.usage.estimates import TokenEstimates
from gateway.usage.estimator import Estimator
from gateway.wire.openai.capabilities import needs
from gateway.wire.openai.chat import CHAT

CANDIDATES: Final = 8
RULES: Final = {
    "cheapest": RoutingRule("cheapest", needs=True, measures=True),
    "weighted": RoutingRule("weighted"),
    "least_loaded": RoutingRule("least_loaded"),
    "priority with spill_after": RoutingRule("priority", spill_s=2.0),
}
_TURN: Final = '{"role":"user","content":"' + "word " * 60 + '"},{"role":"assistant","content":"' + "so " * 20 + '"},'
BODY: Final = (
    '{"model":"m","messages":[{"role":"system","content":"'
    + "rule " * 60
    + '"},'
    + 2 * _TURN
    + '{"role":"user","content":"And then?"}],"max_tokens":200}'
).encode()


class Decision:
    """One model with its candidates, and calls that reach the gate."""

    def __init__(self, rule: RoutingRule, *, estimated: bool) -> None:
        """`estimated`: the calls have an estimate, as with limited keys."""
        metrics, rng = Metrics(), Random(1)
        able = frozenset({"tools", "vision"})
        self._candidates = tuple(
            Candidate(f"u{n}", "up", b'"up"', Price(n * 10**8, n * 10**9, n * 10**7), 8192, 4096, able)
            for n in range(CANDIDATES)
        )
        self._route = Route("m", b'"m"', self._candidates)
        self._estimates = TokenEstimates(Estimator(), metrics)
        self._estimated = estimated
        lines = {one.upstream: UpstreamQueue(one.upstream, 64) for one in self._candidates}
        reads = RequestInspectors(needs, prefix_hashes, self._estimates.make)
        self._routing = Router(
            {"m": rule},
            UpstreamLoads(lines),
            PrefixMap(),
            reads,
            lambda candidate, endpoint, now: True,
            metrics.routing_decisions.count,
            rng,
        )
        self._caller = Caller("key", None)

    def calls(self, number: int) -> list[Call]:
        """Calls as they reach the gate."""
        made = []
        for _ in range(number):
            call = Call(ClientRequest(CHAT, "id"), 1000.0)
            call.request.body, call.routing.route, call.routing.candidate = BODY, self._route, self._candidates[0]
            call.request.model, call.caller = "m", self._caller
            if self._estimated:
                self._estimates.make(call)
            made.append(call)
        return made

    def seconds(self, number: int = 100, runs: int = 400) -> float:
        """Seconds of one decision, the fastest of `runs`."""
        admit: Callable[[Call, float], object] = self._routing.admit
        best = 1.0
        for _ in range(runs):
            calls = self.calls(number)
            began = perf_counter()
            for call in calls:
                admit(call, 1000.0)
            best = min(best, (perf_counter() - began) / number)
        return best


def main() -> None:
    """Print the figures."""
    print(f"{CANDIDATES} candidates, a body of {len(BODY)} bytes; µs for one decision")
    for name, rule in RULES.items():
        alone, with_estimate = (Decision(rule, estimated=known).seconds() * 1e6 for known in (True, False))
        print(f"{name}: {alone:.1f}, with the estimate of its tokens {with_estimate:.1f}")


if __name__ == "__main__":
    arguments(__doc__)
    main()
