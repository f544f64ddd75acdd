"""`route: complexity` end to end: who is called, what client and log are told, what a reload keeps."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from doubles import replies
from doubles.gateway import StartGateway
from doubles.routed import routed
from doubles.settings import AUTH
from doubles.upstream import FaultUpstream
from doubles.vocabulary import ask
from msgspec.structs import replace

from gateway.assembly.gateway import Gateway
from gateway.assembly.reload import ConfigSource
from gateway.config.load import load
from gateway.config.model import Config
from gateway.routing.complexity.weights import dump, shipped

EASY = "What is the capital of France?"
HARD = (
    "Design a distributed rate limiter for several regions, compare token buckets with sliding windows, and "
    "explain which consistency guarantees each of them needs when a region is cut off, and how to test it."
)


@pytest.fixture
async def strong() -> AsyncIterator[FaultUpstream]:
    """The dear upstream."""
    async with FaultUpstream() as one:
        yield one


def price(input: float, output: float) -> dict[str, float]:
    return {"input": input, "output": output}


def config(cheap: FaultUpstream, strong: FaultUpstream, **complexity: Any) -> dict[str, Any]:
    """The dear candidate is listed first: what counts is the price."""
    made = routed(strong.url, cheap.url)
    small = made["models"]["m-small"]
    small |= {"route": "complexity", "complexity": complexity}
    small["candidates"][0]["price"] = price(10, 30)
    small["candidates"][1]["price"] = price(0.1, 0.3)
    return made


def asking(text: str) -> dict[str, Any]:
    return {"model": "m-small", "messages": [{"role": "user", "content": text}]}


def loaded(made: dict[str, Any], folder: Path) -> Config:
    file = folder / "sluice.yaml"
    file.write_text(yaml.safe_dump(made), encoding="utf-8")
    found = load(file, {})
    assert found.config is not None, found.problems
    return found.config


async def test_route_13_hard_prompts_go_to_the_strong_candidate_and_easy_ones_to_the_cheap_one(
    upstream: FaultUpstream,
    strong: FaultUpstream,
    start_gateway: StartGateway,
) -> None:
    gateway = await start_gateway(config(upstream, strong))
    easy = await ask(gateway.port, asking(EASY))
    hard = await ask(gateway.port, asking(HARD))
    assert (easy.header("x-sluice-upstream"), hard.header("x-sluice-upstream")) == ("b", "a")
    assert (easy.header("x-sluice-routing") or "").startswith('complexity; tier=cheap; by=score; for="')
    told = hard.header("x-sluice-routing") or ""
    assert told.startswith('complexity; tier=strong; by=score; for="')
    await gateway.counted("sluice_routing_decisions_total", 1, upstream="a", reason="complexity")
    await gateway.counted("sluice_routing_decisions_total", 1, upstream="b", reason="complexity")


@pytest.mark.parametrize(("share", "called"), [(0, (4, 0)), (1, (0, 4))])
async def test_the_share_is_what_the_config_says(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway, share: float, called: Any
) -> None:
    gateway = await start_gateway(config(upstream, strong, strong_share=share))
    for text in (EASY, HARD, "Hello", HARD + " Twice."):
        assert (await ask(gateway.port, asking(text))).status == 200
    assert (len(upstream.calls), len(strong.calls)) == called


async def test_without_prices_the_first_one_is_the_cheap_one(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway
) -> None:
    made = config(strong, upstream)  # now `a` is `upstream`
    for one in made["models"]["m-small"]["candidates"]:
        del one["price"]
    gateway = await start_gateway(made)
    assert (await ask(gateway.port, asking(EASY))).header("x-sluice-upstream") == "a"
    assert (await ask(gateway.port, asking(HARD))).header("x-sluice-upstream") == "b"


async def test_a_strong_candidate_that_fails_is_replaced_by_the_cheap_one_and_left_alone(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config(upstream, strong, strong_share=1))
    strong.reply(replies.error(429, headers=[("retry-after", "30")]))
    answer = await ask(gateway.port, asking(HARD))
    assert (answer.header("x-sluice-upstream"), answer.header("x-sluice-attempts")) == ("b", "2")
    answer = await ask(gateway.port, asking(HARD))
    assert (answer.header("x-sluice-upstream"), answer.header("x-sluice-attempts")) == ("b", "1")
    assert len(strong.calls) == 1


async def test_the_purse_pays_for_strong_answers_until_it_is_empty(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config(upstream, strong, strong_share=1, usd_per_day="0.000001"))
    assert (await ask(gateway.port, asking(HARD))).header("x-sluice-upstream") == "b"
    gateway = await start_gateway(config(upstream, strong, strong_share=1, usd_per_day=1000))
    assert (await ask(gateway.port, asking(HARD))).header("x-sluice-upstream") == "a"


async def test_a_key_has_its_cap(upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway) -> None:
    made = config(upstream, strong, strong_share=1, max_strong_share_per_key=0)
    made["keys"] = [{"name": "team-a", "key": AUTH[1].removeprefix("Bearer ")}]
    gateway = await start_gateway(made)
    answer = await ask(gateway.port, asking(HARD), [AUTH])
    assert answer.header("x-sluice-upstream") == "b"
    assert "; by=cap; " in (answer.header("x-sluice-routing") or "")


async def test_a_conversation_stays_strong_over_a_reload(
    upstream: FaultUpstream, strong: FaultUpstream, tmp_path: Path
) -> None:
    made = config(upstream, strong)
    gateway = Gateway(loaded(made, tmp_path))
    await gateway.start()
    try:
        first = asking(HARD)
        assert (await ask(gateway.port, first)).header("x-sluice-upstream") == "a"
        made["log"]["level"] = "warning"
        await gateway.reload(loaded(made, tmp_path))
        first["messages"] += [
            {"role": "assistant", "content": "Done."},
            {"role": "user", "content": "Thanks"},
        ]
        answer = await ask(gateway.port, first)
        assert answer.header("x-sluice-upstream") == "a"
        assert "; by=session; " in (answer.header("x-sluice-routing") or "")
        made["models"]["m-small"]["complexity"]["strong_share"] = 0.2  # other settings begin anew
        await gateway.reload(loaded(made, tmp_path))
        assert (await ask(gateway.port, first)).header("x-sluice-upstream") == "b"
    finally:
        await gateway.stop()


async def test_calibrated_weights_decide_and_another_file_is_taken_by_a_reload(
    upstream: FaultUpstream, strong: FaultUpstream, tmp_path: Path
) -> None:
    file = tmp_path / "weights.json"
    file.write_bytes(dump(shipped()))
    made = config(upstream, strong, weights=str(file))
    gateway = Gateway(loaded(made, tmp_path))
    await gateway.start()
    try:
        assert (await ask(gateway.port, asking(EASY))).header("x-sluice-upstream") == "b"
        eager = replace(shipped(), bias=shipped().bias + 100.0)  # every prompt scores above the percentiles
        file.write_bytes(dump(eager))
        await gateway.reload(loaded(made, tmp_path))
        assert (await ask(gateway.port, asking(EASY))).header("x-sluice-upstream") == "a"
    finally:
        await gateway.stop()


@pytest.mark.parametrize("content", [None, b"{}", dump(shipped()).replace(b"0", b"1", 1)])
def test_a_file_of_weights_that_is_of_no_use_is_a_problem_of_the_config(tmp_path: Path, content: bytes | None) -> None:
    weights = tmp_path / "w.json"
    if content is not None:
        weights.write_bytes(content)
    model = {
        "route": "complexity",
        "complexity": {"weights": str(weights)},
        "candidates": [{"upstream": "local"}, {"upstream": "local", "model": "big"}],
    }
    made = {"upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}}, "models": {"mx": model}}
    file = tmp_path / "sluice.yaml"
    file.write_text(yaml.safe_dump(made), encoding="utf-8")
    found = ConfigSource(file, {}, {}).read()
    assert found.config is None
    assert [problem.path for problem in found.problems] == ["models.mx.complexity.weights"]
