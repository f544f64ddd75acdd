"""A whole answer told as a stream, and a stream put together to the whole answer."""

import json
from typing import Any

import pytest
from doubles.replies import chat_events
from doubles.script import DONE, delta, event, piece, stop, usage
from doubles.sse import data_of

from gateway.cache.cached_answer import finished, with_id
from gateway.cache.replay import AnswerAssembler, chunks
from gateway.core.call import CHAT, COMPLETIONS, TokenUsage

MANY = 10**6


def put_together(*events: bytes, endpoint: str = CHAT, tokens: TokenUsage | None = None) -> Any:
    """The whole answer, decoded; None where there is none."""
    assembler = AnswerAssembler(endpoint, MANY)
    for one in (*events, DONE):
        assembler.feed(one)
    whole = assembler.whole(tokens)
    return None if whole is None else json.loads(whole)


def test_all_that_a_stream_tells_is_in_the_answer() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    logprob = {"token": "a", "logprob": -0.10, "bytes": [97], "top_logprobs": []}
    first = {"index": 0, "delta": {"role": "assistant", "reasoning_content": "hm"}, "finish_reason": None}
    said = {"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [logprob], "refusal": None}}
    tool = {"index": 0, "delta": {"tool_calls": [call]}}
    more = {"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"x":"é"}'}}]}}
    last = {"index": 0, "delta": {}, "finish_reason": "tool_calls", "stop_reason": 7}
    head = {
        "id": "x-1",
        "object": "chat.completion.chunk",
        "created": 5,
        "model": "m",
        "system_fingerprint": "s",
    }
    events = [event({**head, "choices": [one]}) for one in (first, said, tool, more, last)]
    counts = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    assert put_together(*events, event({**head, "choices": [], "usage": counts}), DONE) == {
        "id": "x-1",
        "object": "chat.completion",
        "created": 5,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "a",
                    "reasoning_content": "hm",
                    "tool_calls": [
                        {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x":"é"}'}}
                    ],
                },
                "logprobs": {"content": [logprob]},
                "finish_reason": "tool_calls",
                "stop_reason": 7,
            }
        ],
        "usage": counts,
        "system_fingerprint": "s",
    }


def test_choices_and_calls_of_tools_are_told_apart_by_their_index() -> None:
    def choice(index: int, text: str, finish: str | None = None) -> bytes:
        return event({"choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish}]})

    answer = put_together(choice(1, "c"), choice(0, "a"), choice(1, "d", "stop"), choice(0, "b", "stop"))
    assert [one["message"]["content"] for one in answer["choices"]] == ["ab", "cd"]
    assert [one["index"] for one in answer["choices"]] == [0, 1]


def test_usage_comes_from_elsewhere_where_the_stream_does_not_tell() -> None:
    answer = put_together(*chat_events("a"), tokens=TokenUsage(9, 8, 7, 6))
    assert answer["usage"] == {
        "prompt_tokens": 9,
        "completion_tokens": 8,
        "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 7},
        "completion_tokens_details": {"reasoning_tokens": 6},
    }
    assert (
        put_together(*chat_events("a", with_usage=True), tokens=TokenUsage(9, 8))["usage"]["total_tokens"]
        == 7
    )
    assert "usage" not in put_together(*chat_events("a"))


def test_completions() -> None:
    def chunk(text: str, finish: str | None, logprobs: Any = None) -> bytes:
        choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}
        return event(
            {"id": "t", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
        )

    one = {"tokens": ["a"], "token_logprobs": [-1.0], "top_logprobs": None, "text_offset": [0]}
    two = {"tokens": ["b"], "token_logprobs": [None], "top_logprobs": None, "text_offset": [1]}
    answer = put_together(chunk("a", None, one), chunk("b", "stop", two), DONE, endpoint=COMPLETIONS)
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [
        {
            "index": 0,
            "text": "ab",
            "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-1.0, None], "text_offset": [0, 1]},
            "finish_reason": "stop",
        }
    ]


@pytest.mark.parametrize(
    "events",
    [
        [],
        [DONE],
        [piece("a"), DONE],
        [delta({"content": "a", "poem": "b"}), stop(), DONE],
        [delta({"audio": {"id": "a"}}), stop(), DONE],
        [event({"choices": [], "news": 1}), piece("a"), stop()],
        [event({"choices": [{"index": 0, "delta": {"content": "a"}, "token_ids": [1]}]}), stop()],
        [event({"choices": [{"index": -1, "delta": {"content": "a"}, "finish_reason": "stop"}]})],
        [event({"choices": [{"index": 10**9, "delta": {"content": "a"}, "finish_reason": "stop"}]})],
        [event({"choices": [{"index": 1, "delta": {"content": "a"}, "finish_reason": "stop"}]})],
        [delta({"content": ["a"]}), stop()],
        [delta({"tool_calls": [{"function": {"name": "f"}}]}), stop()],
        [delta({"tool_calls": [{"index": 0, "custom": {"name": "f"}}]}), stop()],
        [b'data: {"choices":[{"index":0,"delta":{"content":"\\ud800"}}]}\n\n', stop()],
        [b'data: {"choices":\ndata: []}\n\n', piece("a"), stop()],
    ],
)
def test_what_would_lack_something_is_not_put_together(events: list[bytes]) -> None:
    assert put_together(*events) is None


def test_nothing_is_kept_of_a_stream_that_is_too_long() -> None:
    assembler = AnswerAssembler(CHAT, 500)
    for _ in range(10):
        assembler.feed(piece("x" * 100))
    assembler.feed(stop() + DONE)
    assert assembler.whole(None) is None


def test_nothing_is_kept_of_a_stream_that_may_lack_a_choice() -> None:
    assembler = AnswerAssembler(CHAT, MANY)
    assembler.feed(piece("a") + stop())
    assert assembler.whole(None) is None
    assembler.feed(DONE)
    assert assembler.whole(None) is not None


def test_comments_and_padding_do_not_matter() -> None:
    padded = event({"choices": [], "obfuscation": "xyz", "usage": None, "kv_transfer_params": None})
    answer = put_together(b": keep-alive\n\n", padded, b": x\r\ndata:" + piece("a")[5:], stop(), DONE)
    assert answer["choices"][0]["message"]["content"] == "a"


def test_a_stream_told_from_an_answer() -> None:
    answer = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "a", "refusal": None, "annotations": []},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1},
        "prompt_logprobs": None,
        "service_tier": "default",
    }
    head = {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "service_tier": "default",
    }

    def chunk(change: Any, finish: str | None) -> Any:
        return {**head, "choices": [{"index": 0, "delta": change, "logprobs": None, "finish_reason": finish}]}

    told = data_of(chunks(json.dumps(answer).encode(), CHAT, usage=True))
    assert told.pop() == "[DONE]"
    assert [json.loads(one) for one in told] == [
        chunk({"role": "assistant", "content": ""}, None),
        chunk({"content": "a"}, None),
        chunk({}, "stop"),
        {**head, "choices": [], "usage": {"prompt_tokens": 1}},
    ]
    assert len(data_of(chunks(json.dumps(answer).encode(), CHAT, usage=False))) == 4


def test_who_says_nothing_and_calls_a_tool_has_no_text() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    answer = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    told = data_of(chunks(json.dumps(answer).encode(), CHAT, usage=False))
    assert json.loads(told[0])["choices"][0]["delta"] == {"role": "assistant", "content": None}


def test_answers_that_came_to_their_own_end() -> None:
    def ended(finish: Any, **message: Any) -> bytes:
        return json.dumps({"choices": [{"finish_reason": finish, "message": message}]}).encode()

    assert finished(ended("stop"), tools=False)
    assert finished(b'{"choices":[{"finish_reason":"stop","text":"a"}]}', tools=False)
    for finish in ("length", "content_filter", None, "", "abort", "tool_calls"):
        assert not finished(ended(finish), tools=False), finish
    assert not finished(b'{"choices":[]}', tools=True)
    assert not finished(b"{}", tools=True)
    assert not finished(b'{"choices":[{"finish_reason":"stop"},{"finish_reason":"length"}]}', tools=True)
    assert not finished(b'{"choices":[{"finish_reason":7}]}', tools=True)
    for finish in ("stop", "tool_calls"):
        assert not finished(ended(finish, tool_calls=[{}]), tools=False)
        assert finished(ended(finish, tool_calls=[{}]), tools=True)
    assert finished(ended("function_call", function_call={}), tools=True)
    assert not finished(ended("length", tool_calls=[{}]), tools=True)
    assert finished(ended("stop", tool_calls=[]), tools=False)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"id":"chatcmpl-1-2","a":{"id":"x"}}', b'{"id":"chatcmpl-new","a":{"id":"x"}}'),
        (b'{ "i\\u0064" : "c1" , "b":1.0}', b'{ "i\\u0064" : "new" , "b":1.0}'),
        (b'{"a":{"id":"x"}}', b'{"a":{"id":"x"}}'),
        (b'{"id":7}', b'{"id":7}'),
        (b'{"id":"","b":1}', b'{"id":"new","b":1}'),
    ],
)
def test_a_new_id_and_nothing_else(before: bytes, after: bytes) -> None:
    assert with_id(before, "new") == after


def test_usage_chunks_of_the_doubles_are_read() -> None:
    assert put_together(piece("a"), stop(), usage(3, 4), DONE)["usage"]["completion_tokens"] == 4
