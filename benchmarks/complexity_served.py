"""The complexity router end to end: tables of right and wrong answers, served by two fake upstreams.

`python -m benchmarks.complexity --tables DIR` sends prompts of RouteLLM's tables through a real gateway. Each
upstream is right where its model was. The quality and cost at the clients is compared with the offline result for
the same order of scores and its 95 % interval of 200 bootstrap samples.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from aiohttp import ClientSession, web

from gateway.assembly.gateway import Gateway
from gateway.cli.router import dataset
from gateway.cli.router.dataset import LabelledPrompt, draw
from gateway.cli.router.evaluation import without
from gateway.cli.router.fit import again, fit
from gateway.config.load import load
from gateway.core.request_fields import RequestFields
from gateway.routing.cascade.answer_checks import CheckPolicy, doubt
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.weights import dump

LABELS: Final = 1500
SHARES: Final = (0.2, 0.5)
PRICES: Final[Mapping[str, tuple[float, float]]] = {"cheap": (0.24, 0.24), "strong": (10, 30)}
"""Dollars a million tokens, in and out: Mixtral 8x7B and GPT-4 (1106) as RouteLLM's authors paid for them."""
OUTPUT: Final = 100
"""Tokens of an answer, as both upstreams count them."""
_SAMPLES: Final = 200


class Served(NamedTuple):
    """Shares of right and of strong answers, and dollars for a thousand calls."""

    right: float
    strong: float
    dollars: float


def tokens(row: LabelledPrompt) -> int:
    """The prompt's tokens, as both upstreams count them."""
    return len(row.prompt.text) // 4 + 1


def dollars(row: LabelledPrompt, tier: str) -> float:
    """The cost of an answer at this tier."""
    given, made = PRICES[tier]
    return (tokens(row) * given + OUTPUT * made) / 1e6


def answer(row: LabelledPrompt, tier: str) -> dict[str, Any]:
    """The answer of this tier's model; the client counts `right`."""
    text = (row.answer if tier == "cheap" else "") or "An answer."
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": tokens(row), "completion_tokens": OUTPUT}
    right = row.weak if tier == "cheap" else row.strong
    return {"object": "chat.completion", "model": tier, "choices": [choice], "usage": usage, "right": right}


def body(row: LabelledPrompt) -> dict[str, Any]:
    """The request."""
    return {"model": "auto", "messages": [{"role": "user", "content": row.prompt.text}]}


def _config(ports: Mapping[str, int], model: Mapping[str, Any]) -> dict[str, Any]:
    candidates = [
        {"upstream": tier, "price": {"input": given, "output": made}} for tier, (given, made) in PRICES.items()
    ]
    return {
        "server": {"port": 0},
        "admin": {"port": 0},
        "upstreams": {tier: {"base_url": f"http://127.0.0.1:{port}/v1"} for tier, port in ports.items()},
        "models": {"auto": {"route": "complexity", "candidates": candidates, **model}},
        "usage": {"store": "off"},
    }


async def serve(rows: Sequence[LabelledPrompt], model: Mapping[str, Any]) -> Served:
    """Send the rows one after the other; `model` adds fields to the model's config."""
    known = {row.prompt.text: row for row in rows}
    runners, ports = [], {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for tier in PRICES:
                runner, ports[tier] = await _upstream(known, tier)
                runners.append(runner)
            file = Path(folder) / "sluice.yaml"
            file.write_text(json.dumps(_config(ports, model)), encoding="utf-8")
            loaded = load(file, {})
            if loaded.config is None:
                raise ValueError(loaded.problems)
            gateway = Gateway(loaded.config)
            await gateway.start()
            try:
                return await _asked(rows, f"http://127.0.0.1:{gateway.port}/v1/chat/completions")
            finally:
                await gateway.stop()
        finally:
            for runner in runners:
                await runner.cleanup()


async def _upstream(known: Mapping[str, LabelledPrompt], tier: str) -> tuple[web.AppRunner, int]:
    async def chat(request: web.Request) -> web.Response:
        asked = await request.json()
        return web.json_response(answer(known[asked["messages"][-1]["content"]], tier))

    application = web.Application()
    application.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, int(runner.addresses[0][1])


async def _asked(rows: Sequence[LabelledPrompt], url: str) -> Served:
    right = strong = paid = 0.0
    async with ClientSession() as session:
        for row in rows:
            async with session.post(url, json=body(row)) as reply:
                reply.raise_for_status()
                right += (await reply.json())["right"]
                strong += reply.headers["x-sluice-upstream"] == "strong"
                paid += float(reply.headers["x-sluice-cost-usd"])
    return Served(right / len(rows), strong / len(rows), paid / len(rows) * 1000)


class Promise(NamedTuple):
    """The offline figures, and the 95 % interval of each."""

    expected: Served
    low: Served
    high: Served

    def holds(self, measured: Served) -> bool:
        """Whether all figures are within their intervals."""
        return all(low <= one <= high for one, low, high in zip(measured, self.low, self.high, strict=True))


def promise(rows: Sequence[LabelledPrompt], strong: Callable[[np.ndarray], np.ndarray], both: bool = False) -> Promise:
    """Which of these rows get a strong answer, by number; `both`: after a cheap one."""
    table = np.array([(row.weak, row.strong, dollars(row, "cheap"), dollars(row, "strong")) for row in rows])

    def figures(drawn: np.ndarray) -> tuple[float, float, float]:
        up, one = strong(drawn), table[drawn]
        paid = np.where(up, one[:, 3] + both * one[:, 2], one[:, 2])
        return float(np.where(up, one[:, 1], one[:, 0]).mean()), float(up.mean()), float(paid.mean() * 1000)

    draws = np.random.default_rng(0).integers(0, len(rows), (_SAMPLES, len(rows)))
    every = [figures(drawn) for drawn in draws]
    low, high = np.quantile(every, [0.025, 0.975], axis=0)
    return Promise(Served(*np.mean(every, axis=0)), Served(*low), Served(*high))


def by_score(rows: Sequence[LabelledPrompt], scorer: PromptScorer, share: float) -> Promise:
    """The strong tier answers the highest scores.

    A call is ranked on arrival among the calls before it, so the number of strong answers is random, as with
    independent draws.
    """
    scores = np.array([scorer.score(row.prompt) for row in rows])
    chance = np.random.default_rng(1)

    def strong(drawn: np.ndarray) -> np.ndarray:
        ranks = np.argsort(np.argsort(-scores[drawn], kind="stable"))
        return np.asarray(ranks < chance.binomial(len(drawn), share))

    return promise(rows, strong)


def by_doubt(rows: Sequence[LabelledPrompt], terms: CheckPolicy) -> Promise:
    """The strong tier answers where the cheap answer is doubtful."""
    doubted = np.array([bool(doubt(RequestFields(), json.dumps(answer(row, "cheap")).encode(), terms)) for row in rows])
    return promise(rows, lambda drawn: doubted[drawn], both=True)


async def lines(folder: Path) -> Iterator[str]:
    """The table of the page."""
    known = dataset.tables(folder)
    mmlu, gsm8k = (draw(table.rows) for name in (dataset.MMLU, dataset.GSM8K) for table in known if table.name == name)
    calibrated = fit(mmlu[:LABELS], again(without(known, dataset.MMLU)), {})
    rows = mmlu[LABELS:]
    found = ["| calls | who | right | strong | $ a thousand |", "| --- | --- | --- | --- | --- |"]
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "weights.json"
        file.write_bytes(dump(calibrated))
        for share in SHARES:
            model = {"complexity": {"strong_share": share, "weights": str(file)}}
            title = f"{len(rows):,} of MMLU, share {share}"
            found += _pair(title, by_score(rows, PromptScorer(calibrated), share), await serve(rows, model))
    terms = CheckPolicy(("refusal", "arithmetic", "empty"))
    model = {"complexity": {"strong_share": 0}, "cascade": {"enabled": True, "checks": list(terms.checks)}}
    title = f"{len(gsm8k):,} of GSM8K, cascade"
    return iter(found + _pair(title, by_doubt(gsm8k, terms), await serve(gsm8k, model)))


def _pair(title: str, promised: Promise, measured: Served) -> list[str]:
    spans = [
        f"{_shown(number, one)} [{_shown(number, low)}, {_shown(number, high)}]"
        for number, (one, low, high) in enumerate(zip(*promised, strict=True))
    ]
    verdict = "measured, within" if promised.holds(measured) else "measured, **outside**"
    values = [_shown(number, one) for number, one in enumerate(measured)]
    return [f"| {title} | offline | {' | '.join(spans)} |", f"| | {verdict} | {' | '.join(values)} |"]


def _shown(number: int, value: float) -> str:
    return f"{value:.2f}" if number == 2 else f"{value:.1%}".replace("%", " %")


def main(folder: Path) -> None:
    """Print the table."""
    for line in asyncio.run(lines(folder)):
        print(line)
