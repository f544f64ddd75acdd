"""CPU time of a decision of `route: complexity`, on bodies of several sizes: `python -m benchmarks.complexity`.

Every body is decided once, in a random order of all of them: CPU time of single, cold decisions. With `--tables DIR` it measures quality and cost through a gateway instead, see `complexity_served.py`.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

from msgspec.structs import replace

from benchmarks.arguments import parser_of
from gateway.core.call import Call, Candidate, ClientRequest, Price, Route
from gateway.core.caller import Caller
from gateway.queueing.upstream_queue import UpstreamQueue
from gateway.routing.complexity.features import grams, read
from gateway.routing.complexity.prompt import peek
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.selector import TierChooser
from gateway.routing.complexity.tiers import ComplexityScorer
from gateway.routing.complexity.weights import Weights, shipped
from gateway.routing.load import UpstreamLoads
from gateway.routing.prefix_affinity import PrefixMap
from gateway.routing.prefix_hashes import prefix_hashes
from gateway.routing.router import RequestInspectors, Router, RoutingRule
from gateway.telemetry.metrics import Metrics
from gateway.usage.estimates import TokenEstimates
from gateway.usage.estimator import Estimator
from gateway.wire.openai.capabilities import needs
from gateway.wire.openai.chat import CHAT
from gateway.wire.request_body import read_fields

_ENGLISH = (
    "A shop sells {0} boxes a day for {1} dollars each, and every third box is returned. "
    "If the rent is {2} dollars, how much is left after a week, and would a price of {3} be better? "
)
_KOREAN = "가게는 하루에 상자 {0}개를 {1}달러에 판다. 임대료가 {2}달러라면 일주일 뒤 얼마가 남는지 증명하시오. "
_BOUNDED = 4096
"""The size of the bodies that the target is about."""

_WARM_UP = 100
_GRAMS = 8000


def bodies() -> Iterator[tuple[str, list[bytes]]]:
    """Named sets of bodies, each of a hundred different ones."""
    for name, text in (("English", _ENGLISH), ("Korean", _KOREAN)):
        for repeats in (1, 4, 12):
            yield (
                f"{name}, one turn of {repeats * 2} sentences",
                [_chat(_filled(text, seed, repeats)) for seed in range(100)],
            )
        for turns in (8, 64):
            said = [_filled(text, seed, 2) for seed in range(turns)]
            yield f"{name}, {turns} messages", [_chat(*said, _filled(text, seed, 4)) for seed in range(100)]
        big = 32_000 // len(text.encode())
        yield f"{name}, one long turn", [_chat(_filled(text, seed, big)) for seed in range(100)]


def unplain() -> Iterator[tuple[str, list[bytes]]]:
    """Bodies with escapes, one per line or per syllable, which take longer to read."""
    for name, text in (("English", _ENGLISH), ("Korean", _KOREAN)):
        big = 32_000 // len(text.encode())
        yield (
            f"{name}, one long turn in lines",
            [_chat(_filled(text, seed, big, "\n")) for seed in range(100)],
        )
    for repeats in (12, 125):
        made = [_chat(_filled(_KOREAN, seed, repeats), escape=True) for seed in range(100)]
        yield f"Korean, every syllable escaped, {repeats * 2} sentences", made


def _filled(text: str, seed: int, repeats: int, between: str = "") -> str:
    return between.join(text.format(*(seed * 7 + at + k for k in range(4))) for at in range(repeats))


def _chat(*turns: str, escape: bool = False) -> bytes:
    roles = ("user", "assistant")
    messages = [{"role": roles[(len(turns) - 1 - at) % 2], "content": turn} for at, turn in enumerate(turns)]
    body = {"model": "auto", "messages": messages, "max_tokens": 500}
    return json.dumps(body, ensure_ascii=escape).encode()


def main() -> None:
    """Print a table: the spread over the bodies of one kind, and of all bodies up to 4 KB."""
    parser = parser_of(__doc__)
    parser.add_argument("--tables", type=Path, help="a folder with the public tables: quality and dollars")
    folder = parser.parse_args().tables
    if folder is not None:
        from benchmarks.complexity_served import main as served  # which needs numpy

        served(folder)
        return
    made = [(name, body) for name, kind in (*bodies(), *unplain()) for body in kind]
    Random(1).shuffle(made)
    measured = [
        _once(made, _decided_with(shipped())),
        _once(made, _decided_with(_calibrated(body for _, body in made))),
        _once(made, _Gate().admit),
    ]
    print(
        "| body | bytes | p50 us | p99 us | calibrated p50 us | p99 us | gate p50 us | p99 us |\n" + "| --- " * 8 + "|"
    )
    for kind in dict.fromkeys(name for name, _ in sorted(made, key=_by_size)):
        rows = [at for at, (name, _) in enumerate(made) if name == kind]
        size = sorted(len(made[at][1]) for at in rows)[len(rows) // 2]
        _print_row(kind, f"{size:,}", [[took[at] for at in rows] for took in measured])
    rows = [at for at, (_, body) in enumerate(made) if len(body) <= _BOUNDED]
    _print_row("all up to 4 KB", "", [[took[at] for at in rows] for took in measured])


def _by_size(row: tuple[str, bytes]) -> tuple[str, int]:
    return row[0].partition(",")[0], len(row[1])


def _print_row(name: str, size: str, measured: list[list[float]]) -> None:
    print(f"| {name} | {size} | {' | '.join(map(_shown, measured))} |")


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
            lambda candidate, endpoint, now: True,
            metrics.routing_decisions.count,
            Random(1),
            {"auto": ComplexityScorer(TierChooser(PromptScorer(shipped()), 0.3), estimates.make)},
        )

    def admit(self, body: bytes, key: str, now: float) -> float:
        """CPU seconds for one call to pass."""
        call = Call(ClientRequest(CHAT, "id"), now)
        call.request.body, call.request.model, call.caller = body, "auto", Caller(key, None)
        call.routing.route, call.routing.candidate = self._route, self._route.candidates[0]
        began = time.thread_time()
        self._routing.admit(call, now)
        return time.thread_time() - began


def _calibrated(made: Iterable[bytes]) -> Weights:
    """Weights that know every word of these bodies, and as many as a calibration may have."""
    peeked = [peek(body) for body in made]
    known = dict.fromkeys(gram for one in peeked if one is not None for gram in grams(read(one.prompt).words))
    texts = [gram if isinstance(gram, str) else " ".join(gram) for gram in known][:_GRAMS]
    texts += [f"filler{number}" for number in range(_GRAMS - len(texts))]
    return replace(shipped(), grams=dict.fromkeys(texts, (0.01, 4.0)))


def _decided_with(weights: Weights) -> Callable[[bytes, str, float], float]:
    chooser = TierChooser(PromptScorer(weights), 0.3)

    def decide(body: bytes, key: str, now: float) -> float:
        """CPU seconds of one decision, from body to tier."""
        began = time.thread_time()
        chooser.choose(read_fields(body), key, 1000, now)
        return time.thread_time() - began

    return decide


def _once(made: list[tuple[str, bytes]], took: Callable[[bytes, str, float], float]) -> list[float]:
    """Time each body once. Some others come first, so that the code is warm and the bodies are not."""
    for _, body in made[-_WARM_UP:]:
        took(body.replace(b"dollars", b"euros"), "warm", 0.0)
    return [took(body, f"team-{at % 7}", at * 0.01) for at, (_, body) in enumerate(made)]


def _shown(took: list[float]) -> str:
    cuts = statistics.quantiles(took, n=100)
    return f"{cuts[49] * 1e6:.0f} | {cuts[98] * 1e6:.0f}"


if __name__ == "__main__":
    main()
