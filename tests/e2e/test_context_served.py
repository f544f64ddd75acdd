"""Calls that do not fit a context window, on the wire: what the client is told, and what is done for it."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from doubles import replies
from doubles.call import Call
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import Answer
from doubles.routed import routed
from doubles.script import Script, compact, full, stream
from doubles.settings import AUTH, KEY, OTHER_KEY
from doubles.sse import contents
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, COMPLETIONS, EMBEDDINGS, S0, ask

WORDS = {
    "vllm": "This model's maximum context length is {limit} tokens. However, your request has {needed} input "
    "tokens. Please reduce the length of the input messages.",
    "openai": "This model's maximum context length is {limit} tokens. However, your messages resulted in "
    "{needed} tokens. Please reduce the length of the messages.",
    "llama.cpp": "request ({needed} tokens) exceeds the available context size ({limit} tokens), try increasing it",
}
MUTE = "Please reduce the length of the messages or completion."
SPREAD = 1.3
"""The engine's tokens are not quite as many as the gateway would guess."""


class Engine:
    """What an engine with a window of `limit` tokens answers; four characters are `SPREAD` of one."""

    def __init__(self, limit: int, words: str = WORDS["vllm"]) -> None:
        self.limit = limit
        self.words = words

    def tokens(self, asked: Mapping[str, Any]) -> int:
        if "prompt" in asked:
            return int(len(asked["prompt"]) / 4 * SPREAD)
        return sum(int(len(json.dumps(one["content"])) / 4 * SPREAD) + 4 for one in asked["messages"])

    def __call__(self, call: Call) -> Script:
        needed = self.tokens(call.json())
        if needed <= self.limit:
            return replies.ordinary(call)
        return replies.error(400, self.words.format(limit=self.limit, needed=needed), code=400)


def said(role: str, words: int) -> dict[str, Any]:
    return {"role": role, "content": "word " * words}


TALK = [
    {"role": "system", "content": "rules"},
    *(said(role, 100) for _ in range(20) for role in ("user", "assistant")),
    {"role": "user", "content": "and now?"},
]
LONG = {**C0, "messages": TALK}


def acting(url: str, action: str, **more: Any) -> dict[str, Any]:
    """A model that does this about overflows."""
    config = routed(url, **more)
    config["models"]["m-small"]["on_overflow"] = action
    return config


def with_model(
    config: dict[str, Any], name: str, url: str, window: int | None, price: float | None = None
) -> dict[str, Any]:
    """One more public model, of an upstream of the same name."""
    candidate: dict[str, Any] = {"upstream": name, "model": f"up-{name}", "context_window": window}
    if price is not None:
        candidate["price"] = {"input": price, "output": price}
    config["upstreams"][name] = {"base_url": url}
    config["models"][f"m-{name}"] = {"candidates": [candidate]}
    return config


async def counted(gateway: InProcessGateway, action: str, count: int = 1) -> None:
    await gateway.counted("sluice_context_overflows_total", count, model="m-small", action=action)
    await gateway.counted("sluice_context_overflows_total", count)


def message(answer: Answer) -> str:
    text = answer.error["message"]
    assert isinstance(text, str)
    return text


# error: the client hears what it needs to know.


@pytest.mark.parametrize("words", WORDS)
async def test_route_01_the_numbers_and_the_models_that_would_do_are_told(
    upstream: FaultUpstream, start_gateway: StartGateway, words: str
) -> None:
    config = acting(upstream.url, "error", windows=(4096,))
    for name, window in (("x", 131072), ("y", 4999), ("z", None)):
        with_model(config, name, upstream.url, window)
    gateway = await start_gateway(config)
    upstream.always(replies.error(400, WORDS[words].format(limit=4096, needed=5000), code=400))
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert message(answer).startswith(WORDS[words].format(limit=4096, needed=5000))
    assert message(answer).endswith(
        "It needs 5000 tokens, the limit is 4096, 904 too many. Models here with a large enough context "
        "window: `m-x` (131072)."
    )
    assert answer.header("x-sluice-overflow") is None
    assert len(upstream.calls) == 1
    await counted(gateway, "error")


async def test_a_key_hears_nothing_of_models_that_it_may_not_use(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = with_model(acting(upstream.url, "error", windows=(4096,)), "x", upstream.url, 131072)
    config["keys"] = [{"name": "all", "key": KEY}, {"name": "one", "key": OTHER_KEY, "models": ["m-small"]}]
    gateway = await start_gateway(config)
    upstream.always(Engine(10))
    assert "`m-x`" in message(await ask(gateway.port, LONG, [AUTH]))
    other_key = ("authorization", f"Bearer {OTHER_KEY}")
    assert "m-x" not in message(await ask(gateway.port, LONG, [other_key]))


async def test_a_stream_hears_the_same_before_it_begins(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(with_model(acting(upstream.url, "error"), "x", upstream.url, 131072))
    upstream.always(Engine(10))
    answer = await ask(gateway.port, LONG | {"stream": True})
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert "`m-x` (131072)" in message(answer)


# fallback: another model with room.


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_cheapest_model_with_room_answers(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, streamed: bool
) -> None:
    config = acting(upstream.url, "fallback", windows=(500,), retry={"attempts": 1, "budget": 0})
    with_model(config, "x", upstream.url, 100000, 3.0)
    with_model(config, "y", other.url, 100000, 0.5)
    with_model(config, "z", upstream.url, 501, 0.1)
    gateway = await start_gateway(config)
    upstream.always(Engine(500))
    for _ in range(5):  # more than any reserve of a budget
        answer = await ask(gateway.port, LONG | {"stream": streamed})
        assert (answer.status, answer.complete) == (200, True)
        assert answer.header("x-sluice-overflow") == "fallback; model=m-y"
        assert (answer.header("x-sluice-upstream"), answer.header("x-sluice-upstream-model")) == ("y", "up-y")
        assert b'"model":"m-small"' in answer.body
    assert other.calls[0].json() == LONG | {"stream": streamed, "model": "up-y"}
    assert (len(upstream.calls), len(other.calls)) == (5, 5)
    await gateway.counted("sluice_fallbacks_total", 5, from_model="m-small", to_model="m-y")
    await counted(gateway, "fallback", 5)


async def test_listed_fallbacks_come_first(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = acting(upstream.url, "fallback", fallbacks=(other.url,))
    with_model(config, "w", upstream.url, 100000, 0.0)
    gateway = await start_gateway(config)
    upstream.always(Engine(500))
    answer = await ask(gateway.port, LONG)
    assert (answer.status, answer.header("x-sluice-upstream")) == (200, "x")
    assert answer.header("x-sluice-overflow") is None
    await gateway.counted("sluice_context_overflows_total", 0)


async def test_a_model_that_refuses_is_passed_over_and_the_overflow_told_in_the_end(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = acting(upstream.url, "fallback")
    with_model(config, "x", other.url, 100000, 0.1)
    with_model(config, "y", other.url, 200000, 0.2)
    gateway = await start_gateway(config)
    upstream.always(Engine(500))
    other.reply(replies.error(404, "no such endpoint"))
    answer = await ask(gateway.port, LONG)
    assert (answer.status, answer.header("x-sluice-overflow")) == (200, "fallback; model=m-y")
    other.always(replies.error(404, "no such endpoint"))
    answer = await ask(gateway.port, LONG)
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert answer.header("x-sluice-overflow") is None
    assert "maximum context length is 500" in message(answer)
    await gateway.counted("sluice_context_overflows_total", 1, action="error")


async def test_a_model_whose_window_is_smaller_than_declared_is_not_named(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = with_model(acting(upstream.url, "fallback"), "x", other.url, 100000)
    gateway = await start_gateway(config)
    upstream.always(Engine(500))
    other.always(Engine(600))
    for _ in range(2):
        answer = await ask(gateway.port, LONG)
        assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
        assert "m-x" not in message(answer)
    assert len(other.calls) == 2


async def test_a_failure_of_the_larger_model_is_told_as_one(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(with_model(acting(upstream.url, "fallback"), "x", other.url, 100000))
    upstream.always(Engine(500))
    other.always(replies.error(500))
    answer = await ask(gateway.port, LONG)
    assert (answer.status, answer.header("x-sluice-overflow")) == (502, None)
    await counted(gateway, "fallback")


async def test_without_a_larger_model_it_is_an_error(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(with_model(acting(upstream.url, "fallback"), "x", upstream.url, None))
    upstream.always(Engine(500))
    answer = await ask(gateway.port, LONG)
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    await counted(gateway, "error")


# drop_oldest: a shorter conversation.


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("words", WORDS)
async def test_the_oldest_messages_are_dropped_as_many_as_must(
    upstream: FaultUpstream, start_gateway: StartGateway, words: str, streamed: bool
) -> None:
    gateway = await start_gateway(acting(upstream.url, "drop_oldest"))
    engine = Engine(4000, WORDS[words])
    upstream.always(engine)
    answer = await ask(gateway.port, LONG | {"stream": streamed})
    assert (answer.status, answer.complete) == (200, True)
    sent = upstream.calls[1].json()
    dropped = len(TALK) - len(sent["messages"])
    assert sent == LONG | {
        "stream": streamed,
        "model": "up-a",
        "messages": [TALK[0], *TALK[1 + dropped :]],
    }
    assert sent["messages"][1]["role"] == "user"
    assert 3000 < engine.tokens(sent) <= 4000
    note = answer.header("x-sluice-overflow") or ""
    assert note.startswith(f"drop_oldest; dropped_messages={dropped}; dropped_tokens=")
    gone = engine.tokens(LONG) - engine.tokens(sent)
    assert abs(int(note.rpartition("=")[2]) - gone) < gone * 0.1
    assert answer.header("x-sluice-attempts") == str(len(upstream.calls)) == "2"
    await counted(gateway, "drop_oldest")


async def test_the_answer_keeps_its_room(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    """vLLM counts `max_tokens` in."""
    gateway = await start_gateway(acting(upstream.url, "drop_oldest"))
    engine = Engine(3000)

    def strict(call: Call) -> Script:
        asked = call.json()
        given, cap = engine.tokens(asked), asked["max_tokens"]
        if given + cap <= 3000:
            return replies.ordinary(call)
        return replies.error(
            400,
            "This model's maximum context length is 3000 tokens. However, you requested "
            f"{given + cap} tokens ({given} in the messages, {cap} in the completion).",
        )

    upstream.always(strict)
    answer = await ask(gateway.port, LONG | {"max_tokens": 2000})
    assert answer.status == 200
    assert 500 < engine.tokens(upstream.calls[1].json()) <= 1000
    answer = await ask(gateway.port, LONG | {"max_tokens": 3000})
    assert answer.status == 400
    assert "the part that must stay is too long" in message(answer)


async def test_a_second_cut_goes_by_the_upstreams_second_count(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    """The kept messages weigh more than the gateway could know."""
    talk = [*TALK[:-3], {"role": "user", "content": "word " * 50 + "!" * 600}, *TALK[-2:]]

    class Odd(Engine):
        def tokens(self, asked: Mapping[str, Any]) -> int:
            return super().tokens(asked) + 3 * sum(one["content"].count("!") for one in asked["messages"])

    upstream.always(engine := Odd(4000))
    gateway = await start_gateway(acting(upstream.url, "drop_oldest"))
    answer = await ask(gateway.port, LONG | {"messages": talk})
    assert (answer.status, len(upstream.calls)) == (200, 3)
    first, second = (call.json() for call in upstream.calls[1:])
    assert engine.tokens(first) > 4000 >= engine.tokens(second)
    dropped = len(talk) - len(second["messages"])
    assert f"dropped_messages={dropped};" in (answer.header("x-sluice-overflow") or "")
    await counted(gateway, "drop_oldest")


async def test_tools_and_their_answers_go_together(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    tool_call = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    pair = [
        {"role": "assistant", "content": None, "tool_calls": [tool_call]},
        {"role": "tool", "tool_call_id": "t1", "content": "word " * 900},
    ]
    talk = [TALK[0], said("user", 5), *pair, said("assistant", 5), said("user", 5), *pair]
    gateway = await start_gateway(acting(upstream.url, "drop_oldest"))
    upstream.always(Engine(2200))
    answer = await ask(gateway.port, LONG | {"messages": talk})
    assert answer.status == 200
    assert upstream.calls[1].json()["messages"] == [talk[0], *talk[5:]]


async def test_what_must_stay_does_not_fit_and_the_client_hears_so(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(acting(upstream.url, "drop_oldest"))
    upstream.always(Engine(50))
    answer = await ask(gateway.port, LONG | {"messages": [said("system", 400), *TALK[1:]]})
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert "the part that must stay is too long" in message(answer)
    assert answer.header("x-sluice-overflow") is None
    assert len(upstream.calls) == 1
    await counted(gateway, "error")


async def test_without_a_limit_nothing_is_guessed_but_a_declared_window_will_do(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(acting(upstream.url, "drop_oldest"))
    upstream.always(Engine(4000, MUTE))
    answer = await ask(gateway.port, LONG)
    assert answer.status == 400
    assert "the limit is not known" in message(answer)
    told = await start_gateway(acting(upstream.url, "drop_oldest", windows=(4000,)))
    assert (await ask(told.port, LONG)).status == 200


@pytest.mark.parametrize("action", ["drop_oldest", "middle_out"])
async def test_embeddings_are_never_made_of_less(
    upstream: FaultUpstream, start_gateway: StartGateway, action: str
) -> None:
    gateway = await start_gateway(acting(upstream.url, action))
    upstream.always(replies.error(400, WORDS["openai"].format(limit=512, needed=9000)))
    answer = await ask(gateway.port, {"model": "m-small", "input": "word " * 9000}, path=EMBEDDINGS)
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert len(upstream.calls) == 1


# middle_out: a shorter text.


async def test_the_middle_of_the_last_message_is_cut_out(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    text = " ".join(map(str, range(4000)))
    gateway = await start_gateway(acting(upstream.url, "middle_out"))
    upstream.always(engine := Engine(2000))
    answer = await ask(gateway.port, LONG | {"messages": [TALK[0], {"role": "user", "content": text}]})
    assert answer.status == 200
    sent = upstream.calls[-1].json()
    content = sent["messages"][1]["content"]
    assert content.startswith("0 1 2 3 4 5")
    assert content.endswith("3998 3999")
    assert "\n[...]\n" in content
    assert 1000 < engine.tokens(sent) <= 2000
    assert (answer.header("x-sluice-overflow") or "").startswith("middle_out; dropped_tokens=")
    await counted(gateway, "middle_out")


async def test_and_of_a_prompt(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(acting(upstream.url, "middle_out"))
    upstream.always(Engine(1000))
    body = {"model": "m-small", "prompt": "word " * 3000, "max_tokens": 5, "seed": 1}
    answer = await ask(gateway.port, body, path=COMPLETIONS)
    assert answer.status == 200
    sent = upstream.calls[-1].json()
    assert {**sent, "prompt": ""} == {**body, "model": "up-a", "prompt": ""}


# Calls that share one.


@pytest.mark.parametrize("action", ["middle_out", "fallback"])
async def test_of_a_batch_only_the_one_that_is_too_long_is_changed_and_shares_no_other(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, action: str
) -> None:
    # A batch that is not full would be held for longer than the test has.
    batching = {"policy": "window", "max_size": 2, "max_wait": "10m", "max_tokens": 100000}
    config = with_model(
        acting(upstream.url, action, batching=batching, upstream={"kind": "vllm"}), "x", other.url, 100000
    )
    gateway = await start_gateway(config)
    engine = Engine(1000)

    def each(call: Call) -> Script:
        prompt = call.json()["prompt"]
        if isinstance(prompt, str):
            return engine(call)
        return replies.error(400, WORDS["vllm"].format(limit=1000, needed=4000))

    upstream.always(each)
    bodies = [{"model": "m-small", "prompt": "word " * count, "max_tokens": 5} for count in (10, 3000)]
    async with asyncio.timeout(20):
        short, long = await asyncio.gather(*(ask(gateway.port, one, path=COMPLETIONS) for one in bodies))
    assert (short.status, long.status) == (200, 200)
    assert (short.header("x-sluice-overflow"), short.header("x-sluice-attempts")) == (None, "2")
    assert (long.header("x-sluice-overflow") or "").startswith(action)
    assert long.header("x-sluice-attempts") == "3"
    assert isinstance(upstream.calls[0].json()["prompt"], list)
    assert all(isinstance(one.json()["prompt"], str) for one in (*upstream.calls[1:], *other.calls))
    await counted(gateway, action)


async def test_of_a_shared_answer_each_hears_of_its_own_end(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    batching = {"policy": "window", "max_size": 2, "max_wait": "10m"}
    gateway = await start_gateway(acting(upstream.url, "error", batching=batching, upstream={"kind": "vllm"}))

    def both(call: Call) -> Script:
        ends = {"long": "length", "short": "stop"}
        choices = [
            {"index": at, "text": "x", "finish_reason": ends[prompt], "logprobs": None}
            for at, prompt in enumerate(call.json()["prompt"])
        ]
        return [full(compact({"id": "t", "object": "text_completion", "model": "up-a", "choices": choices}))]

    upstream.always(both)
    bodies = [{"model": "m-small", "prompt": one, "max_tokens": 5} for one in ("long", "short")]
    async with asyncio.timeout(20):
        cut, whole = await asyncio.gather(*(ask(gateway.port, one, path=COMPLETIONS) for one in bodies))
    assert (cut.header("x-sluice-truncated"), whole.header("x-sluice-truncated")) == (
        "length; cause=cap",
        None,
    )
    assert len(upstream.calls) == 1


# finish_reason length.


def cut_short(given: int, written: int) -> Script:
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "length"}
    usage = {"prompt_tokens": given, "completion_tokens": written, "total_tokens": given + written}
    return [full(compact({"id": "c", "model": "up-a", "choices": [choice], "usage": usage}))]


@pytest.mark.parametrize(
    ("more", "usage", "cause"),
    [
        ({"max_tokens": 7}, (100, 7), "cap"),
        ({"max_completion_tokens": 7}, (100, 7), "cap"),
        ({"max_tokens": 5000}, (4000, 96), "window"),
        ({}, (4000, 95), "window"),
        ({}, (100, 2048), "cap"),
    ],
)
async def test_an_answer_that_was_cut_short_tells_by_what(
    upstream: FaultUpstream, start_gateway: StartGateway, more: Any, usage: tuple[int, int], cause: str
) -> None:
    gateway = await start_gateway(acting(upstream.url, "error", windows=(4096,)))
    upstream.always(cut_short(*usage))
    answer = await ask(gateway.port, C0 | more)
    assert (answer.status, answer.header("x-sluice-truncated")) == (200, f"length; cause={cause}")
    await gateway.counted("sluice_truncated_responses_total", 1, model="m-small", cause=cause)
    await gateway.counted("sluice_truncated_responses_total", 1)


async def test_of_a_stream_the_metric_tells(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(acting(upstream.url, "error", windows=(4096,)))
    events = replies.chat_events("po", "ng", with_usage=True)
    upstream.always(stream(*(event.replace(b'"stop"', b'"length"') for event in events)))
    answer = await ask(gateway.port, S0 | {"max_tokens": 2, "stream_options": {"include_usage": True}})
    assert (contents(answer.body), answer.header("x-sluice-truncated")) == ("pong", None)
    await gateway.counted("sluice_truncated_responses_total", 1, model="m-small", cause="cap")


async def test_where_no_window_is_declared_the_upstreams_own_words_tell_it(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(acting(upstream.url, "error"))
    upstream.reply(replies.error(400, WORDS["openai"].format(limit=4096, needed=9000)))
    assert (await ask(gateway.port, C0)).status == 400
    upstream.reply(cut_short(100, 2048))
    assert (await ask(gateway.port, C0)).header("x-sluice-truncated") == "length; cause=cap"
    upstream.reply(cut_short(2048, 2047))
    assert (await ask(gateway.port, C0)).header("x-sluice-truncated") == "length; cause=window"


async def test_a_call_of_a_tool_that_was_cut_short_is_passed_as_it_is(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(acting(upstream.url, "error"))
    cut = b'{"id":"c","model":"m-small","choices":[{"index":0,"message":{"role":"assistant","content":null,'
    cut += b'"tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{\\"a\\": [1, "}}]},'
    cut += b'"finish_reason":"length"}]}'
    upstream.always([full(cut)])
    answer = await ask(gateway.port, C0 | {"max_tokens": 3})
    assert (answer.body, answer.header("x-sluice-truncated")) == (cut, "length; cause=cap")


async def test_a_whole_answer_says_nothing_of_its_end(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(acting(upstream.url, "error"))
    assert (await ask(gateway.port, C0)).header("x-sluice-truncated") is None
    assert (await ask(gateway.port, S0)).header("x-sluice-truncated") is None
    await gateway.counted("sluice_truncated_responses_total", 0)
