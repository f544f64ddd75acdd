"""CPU time of a decision of `route: complexity`, on bodies of several sizes: `python -m benchmarks.complexity`.

With `--tables DIR` quality and dollars through a gateway instead, see `complexity_served.py`.
"""

import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from benchmarks.arguments import parser_of
from gateway.core.call import CHAT, Call, Candidate, Credentials, Price, Route
from gateway.core.caller import Caller
from gateway.queueing.upstream_queue import UpstreamQueue
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.selector import Chooser
from gateway.routing.complexity.tiers import ComplexityScorer
from gateway.routing.complexity.weights import shipped
from gateway.routing.load import UpstreamLoads
from gateway.routing.prefix_affinity import PrefixMap
from gateway.routing.prefix_hashes import prefix_hashes
from gateway.routing.router import RequestInspectors, Router, RoutingRule
from gateway.telemetry.metrics import Metrics, counter
from gateway.usage.estimates import TokenEstimates
from gateway.usage.estimator import Estimator
from gateway.wire.openai.capabilities import needs

_ENGLISH = (
    "A shop sells {0} boxes a day for {1} dollars each, and every third box is returned. "
    "If the rent is {2} dollars, how much is left after a week, and would a price of {3} be better? "
)
_KOREAN = (
    "가게는 하루에 상자 {0}개를 {1}달러에 판다. 임대료가 {2}달러라면 일주일 뒤 얼마가 남는지 증명하시오. "
)
_PASSES = 15
_CHOOSER = Chooser(PromptScorer(shipped()), 0.3)


def bodies() -> Iterator[tuple[str, list[bytes]]]:
    """Named sets of bodies, each of a hundred different ones."""
    for name, text in (("English", _ENGLISH), ("Korean", _KOREAN)):
        for repeats in (1, 4, 12):
            yield f"{name}, one turn", [_chat(_filled(text, seed, repeats)) for seed in range(100)]
        for turns in (8, 64):
            said = [_filled(text, seed, 2) for seed in range(turns)]
            yield f"{name}, {turns} messages", [_chat(*said, _filled(text, seed, 4)) for seed in range(100)]
        big = 32_000 // len(text.encode())
        yield f"{name}, one long turn", [_chat(_filled(text, seed, big)) for seed in range(100)]


def unplain() -> Iterator[tuple[str, list[bytes]]]:
    """Bodies with escapes, one a line or one a syllable, which take longer to read."""
    for name, text in (("English", _ENGLISH), ("Korean", _KOREAN)):
        big = 32_000 // len(text.encode())
        yield (
            f"{name}, one long turn in lines",
            [_chat(_filled(text, seed, big, "\n")) for seed in range(100)],
        )
    for repeats in (12, 125):
        made = [_chat(_filled(_KOREAN, seed, repeats), escape=True) for seed in range(100)]
        yield "Korean, every syllable escaped", made


def _filled(text: str, seed: int, repeats: int, between: str = "") -> str:
    return between.join(text.format(*(seed * 7 + at + k for k in range(4))) for at in range(repeats))


def _chat(*turns: str, escape: bool = False) -> bytes:
    roles = ("user", "assistant")
    messages = [{"role": roles[(len(turns) - 1 - at) % 2], "content": turn} for at, turn in enumerate(turns)]
    body = {"model": "auto", "messages": messages, "max_tokens": 500}
    return json.dumps(body, ensure_ascii=escape).encode()


def main() -> None:
    """Print a table: for each body the shortest of several decisions, then the spread over the bodies."""
    parser = parser_of(__doc__)
    parser.add_argument("--tables", type=Path, help="a folder with RouteLLM's tables: quality and dollars")
    folder = parser.parse_args().tables
    if folder is not None:
        from benchmarks.complexity_served import main as served  # which needs numpy

        served(folder)
        return
    print("| body | bytes | p50 us | p99 us | gate p50 us | gate p99 us |\n" + "| --- " * 6 + "|")
    decisions: list[float] = []
    gates: list[float] = []
    for name, made in bodies():
        took, gate = _shortest(_decide, made), _shortest(_GATE.admit, made)
        decisions, gates = decisions + took, gates + gate
        print(f"| {name} | {len(made[0]):,} | {_shown(took)} | {_shown(gate)} |")
    print(f"| all of these | | {_shown(decisions)} | {_shown(gates)} |")
    for name, made in unplain():
        took, gate = _shortest(_decide, made), _shortest(_GATE.admit, made)
        print(f"| {name} | {len(made[0]):,} | {_shown(took)} | {_shown(gate)} |")


class _Gate:
    """The gate that routes, for a model with two priced candidates and calls without an estimate."""

    def __init__(self) -> None:
        metrics = Metrics()
        cheap, strong = (
            Candidate(name, name, b'"x"', Price(price, price, price))
            for name, price in (("cheap", 10**8), ("strong", 10**10))
        )
        self._route = Route("auto", b'"auto"', (cheap, strong))
        estimates = TokenEstimates(Estimator(), metrics)
        self._routing = Router(
            {"auto": RoutingRule("complexity")},
            UpstreamLoads({name: UpstreamQueue(name, 64) for name in ("cheap", "strong")}),
            PrefixMap(),
            RequestInspectors(needs, prefix_hashes, estimates.make),
            lambda one, now: True,
            counter(metrics.routing_decisions),
            Random(1),
            {"auto": ComplexityScorer(Chooser(PromptScorer(shipped()), 0.3), estimates.make)},
        )

    def admit(self, body: bytes, key: str, now: float) -> float:
        """Seconds of CPU of one call's passing."""
        call = Call(CHAT, "id", Credentials(None, None, None), now)
        call.body, call.model, call.caller = body, "auto", Caller(key, None)
        call.route, call.candidate = self._route, self._route.candidates[0]
        began = time.thread_time()
        self._routing.admit(call, now)
        return time.thread_time() - began


_GATE = _Gate()


def _decide(body: bytes, key: str, now: float) -> float:
    """Seconds of CPU of one decision, body to tier."""
    began = time.thread_time()
    _CHOOSER.choose(body, key, 1000, now)
    return time.thread_time() - began


def _shortest(took: Callable[[bytes, str, float], float], made: list[bytes]) -> list[float]:
    """Of each body. Every pass is over all of them, so that none is warm from the time before."""
    shortest = [math.inf] * len(made)
    for again in range(_PASSES):
        for at, body in enumerate(made):
            shortest[at] = min(shortest[at], took(body, f"team-{at % 7}", again + at * 0.01))
    return shortest


def _shown(took: list[float]) -> str:
    cuts = statistics.quantiles(took, n=100)
    return f"{cuts[49] * 1e6:.0f} | {cuts[98] * 1e6:.0f}"


if __name__ == "__main__":
    main()
