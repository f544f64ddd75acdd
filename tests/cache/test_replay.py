"""A complete answer replayed as a stream, and a stream assembled into a complete answer."""

import json
from typing import Any

import pytest
from doubles.replies import chat_events
from doubles.script import DONE, delta, event, piece, stop, usage
from doubles.sse import data_of

from gateway.cache.cached_answer import finished, replace_id
from gateway.cache.replay import chunks
from gateway.cache.stream_assembly import AnswerAssembler
from gateway.core.call import TokenUsage
from gateway.wire.openai.chat import CHAT
from gateway.wire.openai.completions import COMPLETIONS

MANY = 10**6


def assembled(*events: bytes, endpoint: str = CHAT, tokens: TokenUsage | None = None) -> Any:
    """Return the decoded answer, or None."""
    assembler = AnswerAssembler(endpoint, MANY)
    for part in (*events, DONE):
        assembler.feed(part)
    answer = assembler.answer(tokens)
    return None if answer is None else json.loads(answer)


def test_everything_in_a_stream_is_in_the_answer() -> None:
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
    assert assembled(*events, event({**head, "choices": [], "usage": counts}), DONE) == {
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


def test_choices_and_tool_calls_are_matched_by_index() -> None:
    def choice(index: int, text: str, finish: str | None = None) -> bytes:
        return event({"choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish}]})

    answer = assembled(choice(1, "c"), choice(0, "a"), choice(1, "d", "stop"), choice(0, "b", "stop"))
    assert [one["message"]["content"] for one in answer["choices"]] == ["ab", "cd"]
    assert [one["index"] for one in answer["choices"]] == [0, 1]


def test_usage_is_passed_in_when_the_stream_has_none() -> None:
    answer = assembled(*chat_events("a"), tokens=TokenUsage(9, 8, 7, 6))
    assert answer["usage"] == {
        "prompt_tokens": 9,
        "completion_tokens": 8,
        "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 7},
        "completion_tokens_details": {"reasoning_tokens": 6},
    }
    assert assembled(*chat_events("a", with_usage=True), tokens=TokenUsage(9, 8))["usage"]["total_tokens"] == 7
    assert "usage" not in assembled(*chat_events("a"))


def test_completions() -> None:
    def chunk(text: str, finish: str | None, logprobs: Any = None) -> bytes:
        choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}
        return event({"id": "t", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]})

    one = {"tokens": ["a"], "token_logprobs": [-1.0], "top_logprobs": None, "text_offset": [0]}
    two = {"tokens": ["b"], "token_logprobs": [None], "top_logprobs": None, "text_offset": [1]}
    answer = assembled(chunk("a", None, one), chunk("b", "stop", two), DONE, endpoint=COMPLETIONS)
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
def test_an_incomplete_or_unknown_stream_is_not_assembled(events: list[bytes]) -> None:
    assert assembled(*events) is None


def test_a_stream_over_the_limit_is_not_assembled() -> None:
    assembler = AnswerAssembler(CHAT, 500)
    for _ in range(10):
        assembler.feed(piece("x" * 100))
    assembler.feed(stop() + DONE)
    assert assembler.answer(None) is None


def test_a_stream_without_done_is_not_assembled() -> None:
    assembler = AnswerAssembler(CHAT, MANY)
    assembler.feed(piece("a") + stop())
    assert assembler.answer(None) is None
    assembler.feed(DONE)
    assert assembler.answer(None) is not None


def test_comments_and_padding_do_not_matter() -> None:
    padded = event({"choices": [], "obfuscation": "xyz", "usage": None, "kv_transfer_params": None})
    answer = assembled(b": keep-alive\n\n", padded, b": x\r\ndata:" + piece("a")[5:], stop(), DONE)
    assert answer["choices"][0]["message"]["content"] == "a"


def test_an_answer_replayed_as_a_stream() -> None:
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

    events = data_of(chunks(json.dumps(answer).encode(), CHAT, usage=True))
    assert events.pop() == "[DONE]"
    assert [json.loads(one) for one in events] == [
        chunk({"role": "assistant", "content": ""}, None),
        chunk({"content": "a"}, None),
        chunk({}, "stop"),
        {**head, "choices": [], "usage": {"prompt_tokens": 1}},
    ]
    assert len(data_of(chunks(json.dumps(answer).encode(), CHAT, usage=False))) == 4


def test_a_message_with_only_tool_calls_has_null_content() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    answer = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    events = data_of(chunks(json.dumps(answer).encode(), CHAT, usage=False))
    assert json.loads(events[0])["choices"][0]["delta"] == {"role": "assistant", "content": None}


def test_finished_answers() -> None:
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
def test_replace_id_changes_only_the_id(before: bytes, after: bytes) -> None:
    assert replace_id(before, "new") == after


def test_a_usage_chunk_is_read() -> None:
    assert assembled(piece("a"), stop(), usage(3, 4), DONE)["usage"]["completion_tokens"] == 4
