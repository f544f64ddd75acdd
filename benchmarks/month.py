"""`python -m benchmarks.month`: a month of made-up traffic through `sluice report`; writes the pages in docs/.

The traffic is invented: requests, answers, prices and repeats come from a fixed seed, repeats by Zipf's law. The
code that handles it is the gateway's: cache, single flights, routing, prices, the ledger, its file and the
report, without sockets and on a clock that the traffic advances. An answer takes the same tokens from every
candidate.
"""

import asyncio
import json
import random
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.arguments import arguments
from benchmarks.month_traffic import BEGINS, Ask, Kind, traffic
from gateway.assembly import upstreams as assembly
from gateway.assembly.cache import CacheFactory
from gateway.assembly.routing import rules
from gateway.auth.model_access import ModelAccess
from gateway.auth.model_names import ModelNames
from gateway.cli.report.markdown import Page
from gateway.cli.report.messages import LANGUAGES, Language
from gateway.cli.report.waterfall_svg import svg
from gateway.config.load import load
from gateway.config.model import Config
from gateway.core.budget_calendar import Calendar
from gateway.core.call import Call, Candidate, ClientRequest, Handler, Reply, TokenUsage
from gateway.core.caller import Caller
from gateway.core.errors import Rejection
from gateway.pipeline.gates import admission
from gateway.pipeline.stack import compose
from gateway.pricing.resolver import Pricing
from gateway.queueing.upstream_queue import UpstreamQueue
from gateway.reporting.figures import ReportFigures, figures
from gateway.reporting.period import Period
from gateway.reporting.sources import machines, prices
from gateway.routing.load import UpstreamLoads
from gateway.routing.prefix_affinity import PrefixMap
from gateway.routing.prefix_hashes import prefix_hashes
from gateway.routing.router import RequestInspectors, Router
from gateway.telemetry.metrics import Metrics
from gateway.usage.accounting import LedgerEntries, UsageAccounting
from gateway.usage.call_usage import add_failed_usage, charge
from gateway.usage.estimates import TokenEstimates
from gateway.usage.estimator import Estimator
from gateway.usage.ledger import Ledger
from gateway.usage.sqlite_store import SqliteUsageStore
from gateway.usage.store import UsageSummary
from gateway.wire.json import splice
from gateway.wire.openai.capabilities import needs
from gateway.wire.openai.chat import CHAT

SEED: Final = 20261101
PERIOD: Final = Period("2026-11-01", "2026-11-30")
DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
MARK: Final = "<!-- What follows is written by `python -m benchmarks.month`. -->\n\n"

CONFIG: Final = """
upstreams:
  local: {base_url: "http://127.0.0.1:8000/v1", kind: vllm, gpu_hour_usd: 0.02}
  alpha: {base_url: "http://127.0.0.1:8001/v1"}
  beta: {base_url: "http://127.0.0.1:8002/v1"}
  trial: {base_url: "http://127.0.0.1:8003/v1"}
models:
  assistant:
    route: cheapest
    cache: {enabled: true, ttl: 24h}
    candidates:
      - {upstream: alpha, model: alpha-large, price: {input: 2.5, output: 10, cached_input: 0.25}}
      - {upstream: alpha, model: alpha-medium, price: {input: 0.8, output: 6, cached_input: 0.4}}
      - {upstream: beta, model: beta-large, price: {input: 1.1, output: 4.4, cached_input: 0.275}}
  faq:
    baseline: assistant
    cache: {enabled: true, ttl: 24h}
    candidates:
      - {upstream: local, model: small-8b}
      - {upstream: beta, model: beta-small, price: {input: 0.15, output: 0.6}}
  drafts:
    baseline: {price: {input: 3, output: 15}}
    candidates:
      - {upstream: alpha, model: alpha-small, price: {input: 0.4, output: 1.6, cached_input: 0.1}}
  experiment:
    candidates: [{upstream: trial, model: nobody-knows}]
"""


class Providers:
    """Providers that answer everything; a prefix seen within five minutes is read from their prompt cache."""

    def __init__(self, time: "Time") -> None:
        self._time = time
        self._warm: dict[tuple[Candidate, str], float] = {}

    async def __call__(self, call: Call) -> Reply:
        """The terminal handler: one call in fifty fails at first and costs its input."""
        asked = json.loads(call.request.body)
        given, system, made, fails = (asked["metadata"][name] for name in ("in", "system", "out", "fails"))
        await asyncio.sleep(0)  # others come meanwhile
        candidates = list(
            call.routing.candidates or (call.routing.route.candidates if call.routing.route is not None else ())
        )
        call.routing.candidate = candidates[0]
        if fails and len(candidates) > 1:
            call.attempts += 1
            add_failed_usage(call, candidates[0], TokenUsage(given, 1))
            call.routing.candidate = candidates[1]
        call.attempts += 1
        cached = self._cached(call.routing.candidate, call.request.model, system)
        body = _answer(call.routing.candidate.model, given, made)
        charge(call, TokenUsage(given, made, cached), body)
        call.response.finish = "stop"
        return Reply(200, body)

    def _cached(self, candidate: Candidate, model: str, system: int) -> int:
        now = self._time.now
        last = self._warm.get((candidate, model), -1e9)
        self._warm[candidate, model] = now
        return system if system >= 1024 and now - last < 300 else 0


class Time:
    """A clock that advances only when it is set."""

    def __init__(self) -> None:
        self.now = BEGINS

    def __call__(self) -> float:
        return self.now


class Month:
    """The layers for one config, and the calls that go through them."""

    def __init__(self, config: Config, ledger: Ledger) -> None:
        rng, metrics, self._time = random.Random(SEED), Metrics(), Time()
        pricing = Pricing(self._time)
        routes = assembly.routes(config, lambda one, upstream: pricing.resolve(one, upstream).price)
        estimate = TokenEstimates(Estimator(), metrics).make
        books = LedgerEntries(ledger)
        spend = UsageAccounting(
            Calendar("UTC", BEGINS, BEGINS),
            estimate,
            metrics,
            (),
            always=True,
            on_attempt=(books.record_attempt,),
        )
        self._caches = CacheFactory(metrics, self._time, rng, books.record_avoided)
        self._access = ModelAccess(ModelNames(routes, {}))
        self._handle = self._composed(config, spend, _routing(config, estimate, metrics, rng))

    def _composed(self, config: Config, spend: UsageAccounting, routing: Router) -> Handler:
        cache = self._caches.layer(config)
        if cache is None:
            raise AssertionError("the config keeps answers")
        layers = (
            admission((self._access,)),
            cache.lookup,
            admission((spend,)),
            cache.answer,
            admission((routing,)),
        )
        return compose(layers, Providers(self._time))

    async def run(self) -> None:
        """Run the whole month."""
        rng = random.Random(SEED)
        for number, ask in enumerate(traffic(rng)):
            self._time.now = ask.at
            body = _request(ask, number, rng)
            names = [f"{number}-{copy}" for copy in range(ask.copies)]
            await asyncio.gather(*(self._call(ask.kind, body, name) for name in names))
        await self._caches.close()

    async def _call(self, kind: Kind, body: bytes, name: str) -> None:
        call = Call(ClientRequest(CHAT, name), self._time.now)
        call.request.body, call.request.model, call.caller = body, kind.model, Caller(kind.key, None)
        call.request.spans = splice.model_spans(body)
        reply = await self._handle(call)
        if isinstance(reply, Rejection):
            raise AssertionError(reply.message)
        call.response.outcome = "truncated" if b'"breaks": true' in body else "ok"
        call.lease.settle(call, self._time.now)


def _routing(config: Config, estimate: Any, metrics: Metrics, rng: random.Random) -> Router:
    loads = UpstreamLoads({name: UpstreamQueue(name, 64) for name in config.upstreams})
    reads = RequestInspectors(needs, prefix_hashes, estimate)
    return Router(
        rules(config),
        loads,
        PrefixMap(),
        reads,
        lambda candidate, endpoint, now: True,
        metrics.routing_decisions.count,
        rng,
    )


def _request(ask: Ask, number: int, rng: random.Random) -> bytes:
    """A request body; exact requests of a kind for the same question are equal, all others differ."""
    kind = ask.kind
    mine = random.Random(f"{SEED} {kind.model} {ask.question}" if kind.exact else f"{SEED} {number}")
    asked, made = mine.randint(*kind.asked), mine.randint(*kind.answered)
    fails, breaks = mine.random() < 0.02, not kind.exact and mine.random() < 0.01
    metadata = {
        "in": kind.system + asked,
        "system": kind.system,
        "out": made,
        "fails": fails,
        "breaks": breaks,
    }
    question = f"question {ask.question}" if kind.exact else f"question {number}"
    body = {
        "model": kind.model,
        "temperature": 0 if kind.exact else 1,
        "messages": [
            {"role": "system", "content": f"{kind.model} " * 40},
            {"role": "user", "content": question + " word" * asked},
        ],
        "max_tokens": 2000,
        "metadata": metadata,
    }
    return json.dumps(body).encode()


def _answer(model: str, given: int, made: int) -> bytes:
    message = {"role": "assistant", "content": "word"}
    usage = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
    choices = [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": model}
    return json.dumps({**answer, "choices": choices, "usage": usage}).encode()


async def _month(folder: Path) -> tuple[Config, UsageSummary]:
    file = folder / "sluice.yaml"
    file.write_text(CONFIG, encoding="utf-8")
    config = load(file, {}).config
    if config is None:
        raise AssertionError("the config is right")
    store = SqliteUsageStore(str(folder / "usage.db"))
    ledger = Ledger(store, 3600.0, unix=lambda: BEGINS)
    await ledger.start()
    await Month(config, ledger).run()
    await ledger.stop()
    again = SqliteUsageStore(str(folder / "usage.db"))
    books = await again.summary(PERIOD.first, PERIOD.last)
    await again.close()
    return config, books


def report() -> ReportFigures:
    """The month's figures."""
    with tempfile.TemporaryDirectory() as folder:
        config, books = asyncio.run(_month(Path(folder)))
    priced = list(prices(config, Pricing(lambda: BEGINS)))
    return figures(books, PERIOD, priced, list(machines(config, books, PERIOD, PERIOD.ends)))


def pages(found: ReportFigures) -> dict[str, str]:
    """The generated part of each page in docs/, and the pictures, by file."""
    made = {}
    for language in LANGUAGES:
        ending = _ending(language)
        made[f"savings{ending}.svg"] = svg(found, language)
        text = Page(found, language, f"savings{ending}.svg").text()
        made[f"savings{ending}.md"] = text.replace("\n## ", "\n#### ").replace("# ", "### ", 1)
    return made


def _ending(language: Language) -> str:
    return "" if language == "en" else f".{language}"


def written(name: str) -> str:
    """The part that a file in docs/ has now."""
    text = (DOCS / name).read_text(encoding="utf-8")
    return text.partition(MARK)[2] if name.endswith(".md") else text


def main() -> None:
    """Write the generated parts after the hand-written ones."""
    for name, text in pages(report()).items():
        file = DOCS / name
        before = file.read_text(encoding="utf-8").partition(MARK)[0] + MARK if name.endswith(".md") else ""
        file.write_text(before + text, encoding="utf-8")
        print(file.relative_to(DOCS.parent))


if __name__ == "__main__":
    arguments(__doc__)
    main()
