"""Whose trouble it is: the gateway's account, one model of an upstream, or the whole upstream. Real sockets."""

import json
from collections import Counter

import pytest
from doubles import replies
from doubles.call import Call
from doubles.gateway import StartGateway
from doubles.routed import routed
from doubles.script import Step
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, ask

ACCOUNT = [
    (400, "API key not valid. Please pass a valid API key."),
    (400, "Your credit balance is too low to access the API."),
    (403, "Country, region, or territory not supported"),
    (404, "Your organization has been disabled."),
    (429, "You exceeded your current quota, please check your plan and billing details."),
    (500, "Incorrect API key provided"),
]


@pytest.mark.parametrize(("status", "words"), ACCOUNT)
async def test_the_accounts_trouble_is_another_candidates_call(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, status: int, words: str
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url))
    upstream.always(replies.error(status, words))
    assert [(await ask(gateway.port, C0)).status for _ in range(3)] == [200] * 3
    assert len(upstream.calls) == 1  # it is passed over for a while


@pytest.mark.parametrize(("status", "words"), ACCOUNT)
async def test_with_no_candidate_left_it_is_a_neutral_502(
    upstream: FaultUpstream, start_gateway: StartGateway, status: int, words: str
) -> None:
    gateway = await start_gateway(routed(upstream.url))
    upstream.always(replies.error(status, words))
    answer = await ask(gateway.port, C0)
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["code"]) == (502, "upstream_auth_failed")
    assert words not in error["message"]


@pytest.mark.parametrize("status", [409, 421, 424, 425, 440, 444, 460, 498, 499])
async def test_what_would_become_a_502_moves_on(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, status: int
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url))
    upstream.always(replies.error(status, "no"))
    assert (await ask(gateway.port, C0)).status == 200
    assert (len(upstream.calls), len(other.calls)) == (1, 1)


def one_of_three_fails(call: Call) -> list[Step]:
    """An upstream with three models, of which `up-big` always fails."""
    return replies.error(500) if json.loads(call.body)["model"] == "up-big" else replies.chat()


async def test_one_failing_model_of_three_costs_the_others_nothing(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    names = ("big", "mini", "nano")
    models = {name: {"candidates": [{"upstream": "local", "model": f"up-{name}"}]} for name in names}
    gateway = await start_gateway(settings(upstream.url, models=models, retry={"attempts": 1}))
    upstream.always(one_of_three_fails)
    seen: Counter[tuple[str, int]] = Counter()
    for _ in range(20):
        for name in names:
            seen[name, (await ask(gateway.port, {**C0, "model": name})).status] += 1
    assert (seen["mini", 200], seen["nano", 200]) == (20, 20)
    assert seen["big", 500] + seen["big", 502] >= 5
    assert seen["big", 503] >= 10  # its own breaker is open


async def test_a_fallback_whose_window_is_too_small_is_not_called(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = routed(upstream.url, fallbacks=(other.url,), retry={"attempts": 1})
    config["models"]["m-x"]["candidates"][0]["context_window"] = 8192
    gateway = await start_gateway(config)
    upstream.always(replies.error(429, "busy", headers=[("retry-after", "7")]))
    long = {**C0, "messages": [{"role": "user", "content": "many words " * 7000}]}
    answer = await ask(gateway.port, long)
    assert (answer.status, answer.header("retry-after"), len(other.calls)) == (429, "7", 0)
    assert (await ask(gateway.port, C0)).status == 200  # a short prompt fits
    assert len(other.calls) == 1


TOOL_HISTORIES = [
    [{"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {}}]}],
    [{"role": "tool", "tool_call_id": "1", "content": "22 degrees"}],
    [{"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}],
    [{"role": "function", "name": "f", "content": "22"}],
    [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "22"}]}],
]


@pytest.mark.parametrize("history", TOOL_HISTORIES, ids=lambda history: history[0]["role"])
async def test_a_history_with_tools_needs_a_candidate_with_tools(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, history: list[dict[str, object]]
) -> None:
    config = routed(upstream.url, other.url)
    config["models"]["m-small"]["candidates"][0]["capabilities"] = ["json_schema"]
    config["models"]["m-small"]["candidates"][1]["capabilities"] = ["tools"]
    gateway = await start_gateway(config)
    answer = await ask(gateway.port, {**C0, "messages": [*C0["messages"], *history]})
    assert (answer.status, len(upstream.calls), len(other.calls)) == (200, 0, 1)
