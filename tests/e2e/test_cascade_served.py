"""A cascade end to end: which answer the client gets, what it is told, and who is paid."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from doubles import replies
from doubles.gateway import StartGateway
from doubles.rawclient import Answer
from doubles.routed import routed
from doubles.script import RST, Step, Until, compact, full
from doubles.settings import AUTH, KEY
from doubles.upstream import FaultUpstream
from doubles.vocabulary import COMPLETIONS, ask

from gateway.config.load import load

EASY: dict[str, Any] = {"model": "m-small", "messages": [{"role": "user", "content": "Add 17 and 25."}]}
WRONG = "17 + 25 = 43"
RIGHT = "17 + 25 = 42"


@pytest.fixture
async def strong() -> AsyncIterator[FaultUpstream]:
    """The dear upstream."""
    async with FaultUpstream() as one:
        one.always(said(RIGHT, model="up-b"))
        yield one


def said(text: str | None, finish: str = "stop", model: str = "up-a", **message: Any) -> list[Step]:
    """A whole answer with usage of 5 and 2 tokens."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, **message},
        "finish_reason": finish,
    }
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    return [full(compact({"object": "chat.completion", "model": model, "choices": [choice], "usage": usage}))]


def config(cheap: FaultUpstream, strong: FaultUpstream, **fields: Any) -> dict[str, Any]:
    """Every call goes to the cheap one first."""
    cascade, keys = fields.pop("cascade", {}), fields.pop("keys", [])
    made = routed(cheap.url, strong.url, **fields)
    small = made["models"]["m-small"]
    small |= {
        "route": "complexity",
        "complexity": {"strong_share": 0},
        "cascade": {"enabled": True, **cascade},
    }
    small["candidates"][0]["price"] = {"input": 1, "output": 2}
    small["candidates"][1]["price"] = {"input": 10, "output": 20}
    return {**made, "keys": keys}


def text(answer: Answer) -> str:
    assert answer.status == 200
    return str(json.loads(answer.body)["choices"][0]["message"]["content"])


async def test_a_doubtful_answer_is_replaced_by_the_strong_one_and_both_are_paid(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway
) -> None:
    made = config(upstream, strong, keys=[{"name": "team-a", "key": KEY, "limits": {"usd_per_day": 1}}])
    gateway = await start_gateway(made)
    upstream.always(said(WRONG))
    answer = await ask(gateway.port, EASY, [AUTH])
    assert text(answer) == RIGHT
    assert answer.header("x-sluice-routing") == "cascade; escalated=arithmetic"
    assert (answer.header("x-sluice-attempts"), answer.header("x-sluice-upstream")) == ("2", "b")
    assert answer.header("x-sluice-cost-usd") == "0.000099"  # 9 at the cheap one, 90 at the strong one
    await gateway.counted("sluice_cascade_requests_total", 1, model="m-small", result="escalated")
    await gateway.counted("sluice_cost_usd_total", 9e-6, upstream="a")
    await gateway.counted("sluice_cost_usd_total", 90e-6, upstream="b")
    await gateway.counted("sluice_budget_remaining_usd", 1 - 99e-6, key="team-a")
    await gateway.counted("sluice_retries_total", 0)


async def test_a_good_answer_is_kept(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config(upstream, strong))
    upstream.always(said(RIGHT))
    answer = await ask(gateway.port, EASY)
    assert text(answer) == RIGHT
    assert (answer.header("x-sluice-routing") or "").startswith("complexity; tier=cheap")
    assert (answer.header("x-sluice-attempts"), len(strong.calls)) == ("1", 0)
    await gateway.counted("sluice_cascade_requests_total", 1, result="kept")


JSON = {"response_format": {"type": "json_object"}}
SCHEMA = {
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object", "required": ["a"]}},
    }
}
LOGPROBS = {"content": [{"token": "x", "logprob": -3.0}, {"token": "y", "logprob": -1.0}]}


def unsure() -> list[Step]:
    choice = {
        "message": {"role": "assistant", "content": "x"},
        "finish_reason": "stop",
        "logprobs": LOGPROBS,
    }
    return [full(compact({"object": "chat.completion", "model": "up-a", "choices": [choice]}))]


DOUBTFUL: dict[str, tuple[list[Step], dict[str, Any]]] = {
    "finish": (said("It is", "length"), {}),
    "empty": (said(" \n"), {}),
    "refusal": (said("I'm sorry, but I cannot help with that."), {}),
    "json": (said('{"a": 1'), JSON),
    "json, another shape": (said('{"b": 1}'), SCHEMA),
    "arithmetic": (said(WRONG), {}),
    "logprob": (unsure(), {"logprobs": True}),
}


@pytest.mark.parametrize("name", DOUBTFUL)
async def test_each_check_escalates_and_only_where_it_is_on(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway, name: str
) -> None:
    check = name.partition(",")[0]
    script, more = DOUBTFUL[name]
    upstream.always(script)
    others = {"finish", "empty", "refusal", "json", "arithmetic", "logprob"} - {check}
    on = {"checks": [check], "min_logprob": -1.5}
    gateway = await start_gateway(config(upstream, strong, cascade=on))
    answer = await ask(gateway.port, {**EASY, **more})
    assert answer.header("x-sluice-routing") == f"cascade; escalated={check}"
    gateway = await start_gateway(config(upstream, strong, cascade={**on, "checks": sorted(others)}))
    answer = await ask(gateway.port, {**EASY, **more})
    assert (answer.header("x-sluice-routing") or "").startswith("complexity; tier=cheap")


GOOD: dict[str, tuple[list[Step], dict[str, Any]]] = {
    "the client's own cap": (said("It is", "length"), {"max_tokens": 2}),
    "a call of a tool": (said(None, "tool_calls", tool_calls=[{"id": "c", "type": "function"}]), JSON),
    "JSON of the right shape": (said('{"a": 1}'), SCHEMA),
    "an answer in a shape of its own": ([full(b'{"object":"x","choices":[{"odd":1}]}')], {}),
}


@pytest.mark.parametrize("name", GOOD)
async def test_what_is_not_doubtful(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway, name: str
) -> None:
    script, more = GOOD[name]
    upstream.always(script)
    gateway = await start_gateway(config(upstream, strong))
    assert (await ask(gateway.port, {**EASY, **more})).status == 200
    assert not strong.calls
    await gateway.counted("sluice_cascade_requests_total", 1, result="kept")


FAILING: dict[str, list[Step]] = {
    "a 500": replies.error(500),
    "a 429": replies.error(429, headers=[("retry-after", "99")]),
    "a reset": [RST],
    "a 400": replies.error(400),
}


@pytest.mark.parametrize("name", FAILING)
async def test_a_strong_one_that_fails_leaves_the_cheap_answer(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway, name: str
) -> None:
    gateway = await start_gateway(config(upstream, strong, fallbacks=(upstream.url,), retry={"attempts": 1}))
    upstream.always(said(WRONG))
    strong.always(FAILING[name])
    answer = await ask(gateway.port, EASY)
    assert text(answer) == WRONG
    assert answer.header("x-sluice-routing") == "cascade; failed=arithmetic"
    assert (answer.header("x-sluice-upstream"), answer.header("x-sluice-upstream-model")) == ("a", "up-a")
    assert (answer.header("x-sluice-attempts"), answer.header("x-sluice-cost-usd")) == ("2", "0.000009")
    assert len(upstream.calls) == 1  # no fallback: there is an answer already
    await gateway.counted("sluice_cascade_requests_total", 1, result="failed")
    await gateway.counted("sluice_cost_usd_total", 9e-6)
    await gateway.outcome("ok")


async def test_what_the_failing_strong_one_has_used_is_paid_too(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config(upstream, strong, retry={"attempts": 1}))
    upstream.always(said(WRONG))
    body = {"error": {"message": "no"}, "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
    strong.always([full(compact(body), 500)])
    answer = await ask(gateway.port, EASY)
    assert (text(answer), answer.header("x-sluice-cost-usd")) == (WRONG, "0.000099")


async def test_what_already_looks_hard_goes_to_the_strong_one_at_once(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway
) -> None:
    made = config(upstream, strong)
    made["models"]["m-small"]["complexity"]["strong_share"] = 1
    gateway = await start_gateway(made)
    strong.always(said(WRONG, model="up-b"))
    answer = await ask(gateway.port, EASY)
    assert (text(answer), len(upstream.calls)) == (WRONG, 0)
    assert (answer.header("x-sluice-routing") or "").startswith("complexity; tier=strong")
    await gateway.counted("sluice_cascade_requests_total", 1, result="skipped")


async def test_a_cheap_one_that_fails_is_replaced_by_the_strong_one_and_nobody_looks_at_that(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config(upstream, strong))
    upstream.always(replies.error(500))
    strong.always(said(WRONG, model="up-b"))
    answer = await ask(gateway.port, EASY)
    assert (text(answer), len(strong.calls)) == (WRONG, 1)
    await gateway.counted("sluice_cascade_requests_total", 1, result="skipped")


async def test_streams_and_completions_have_no_part_in_it(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config(upstream, strong))
    upstream.reply(replies.chat_stream(WRONG, model="up-a"), replies.completion(WRONG, model="up-a"))
    assert (await ask(gateway.port, {**EASY, "stream": True})).status == 200
    body = {"model": "m-small", "prompt": "Add 17 and 25."}
    assert (await ask(gateway.port, body, path=COMPLETIONS)).status == 200
    assert not strong.calls
    await gateway.counted("sluice_cascade_requests_total", 0)


async def test_a_key_that_has_no_money_for_two_answers_keeps_the_first(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway
) -> None:
    keys = [{"name": "team-a", "key": KEY, "limits": {"usd_per_day": "0.0001"}}]
    gateway = await start_gateway(config(upstream, strong, keys=keys))
    upstream.always(said(WRONG))
    answer = await ask(gateway.port, {**EASY, "max_tokens": 10}, [AUTH])
    assert (text(answer), len(strong.calls)) == (WRONG, 0)


async def test_there_is_no_second_answer_when_the_deadline_is_near(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway
) -> None:
    made = config(upstream, strong)
    made["upstreams"]["b"]["timeouts"] = {"total": "50ms"}
    gateway = await start_gateway(made)
    gate = asyncio.Event()
    upstream.always([Until(gate), *said(WRONG)])
    asyncio.get_running_loop().call_later(0.1, gate.set)
    answer = await ask(gateway.port, EASY)
    assert (text(answer), len(strong.calls)) == (WRONG, 0)
    assert answer.header("x-sluice-routing") == "cascade; failed=arithmetic"


async def test_the_cache_keeps_the_answer_that_the_client_got(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config(upstream, strong, cache={"enabled": True}))
    upstream.always(said(WRONG))
    for _ in range(2):
        assert text(await ask(gateway.port, {**EASY, "temperature": 0})) == RIGHT
    assert (len(upstream.calls), len(strong.calls)) == (1, 1)


async def test_a_model_without_tiers_cannot_have_one(tmp_path: Path) -> None:
    model = {"cascade": {"enabled": True}, "shadow": {"share": 0.1}, "candidates": [{"upstream": "u"}]}
    made = {"upstreams": {"u": {"base_url": "http://127.0.0.1:1/v1"}}, "models": {"m": model}}
    file = tmp_path / "sluice.yaml"
    file.write_text(yaml.safe_dump(made), encoding="utf-8")
    problems = load(file, {}).problems
    assert [one.path for one in problems] == ["models.m.cascade.enabled", "models.m.shadow.share"]


async def test_a_doubtful_answer_that_nobody_replaced_is_not_kept(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway
) -> None:
    made = config(upstream, strong, retry={"attempts": 1}, cache={"enabled": True})
    gateway = await start_gateway(made)
    upstream.always(said(WRONG))
    strong.reply(replies.error(500))
    for expected in (WRONG, RIGHT, RIGHT):
        assert text(await ask(gateway.port, {**EASY, "temperature": 0})) == expected
    assert (len(upstream.calls), len(strong.calls)) == (2, 2)
