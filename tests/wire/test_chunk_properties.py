"""A relayed stream does not depend on how it was cut, and only the model's name changes in it."""

import json
from typing import Any, NamedTuple

from doubles.sse import data_of
from hypothesis import given
from hypothesis import strategies as st
from kit.pieces import cut, examples

from gateway.core.call import TokenUsage
from gateway.wire.openai.chunks import ChunkReader

PUBLIC = "team/small"
NAME = json.dumps(PUBLIC).encode()
MARK = "@name@"
UPSTREAM_NAMES = st.sampled_from(["up", "up", "up", "org/\u00e9", 'q"uote', "model", PUBLIC])
CONTENTS = st.sampled_from(["", "hi", "ß안\U0001f642", '{"model":"x"}', '"model": "y"', '\\u00"model":', "a\nb", "\\"])
SEPARATORS = st.sampled_from([None, (",", ":")])


class Event(NamedTuple):
    """What an upstream sends, and what a client must get for it."""

    sent: bytes
    passed: bytes


@st.composite
def chunks(draw: st.DrawFn) -> Event:
    """One chunk in one `data:` line, its model's name anywhere in it."""
    choice: dict[str, Any] = {"delta": {"content": draw(CONTENTS)}, "finish_reason": None}
    if draw(st.integers(0, 5)) == 0:
        choice["finish_reason"] = "stop"
    chunk = draw(st.permutations(list({"id": "c1", "model": MARK, "choices": [choice], "x": None}.items())))
    whole = dict(chunk)
    if draw(st.integers(0, 3)) == 0:
        whole["usage"] = {"prompt_tokens": draw(st.integers(0, 9)), "completion_tokens": 2}
    if draw(st.integers(0, 3)) == 0:
        whole["nested"] = {"model": "inner"}
    text = json.dumps(whole, ensure_ascii=draw(st.booleans()), separators=draw(SEPARATORS))
    framed = draw(st.sampled_from(["data: ", "data:", "event: chunk\ndata: "])) + text
    end = draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"]))
    framed = framed.replace("\n", end) + end + end
    sent = framed.replace(json.dumps(MARK), json.dumps(draw(UPSTREAM_NAMES)))
    return Event(sent.encode(), framed.encode().replace(json.dumps(MARK).encode(), NAME))


def _same(event: bytes) -> Event:
    return Event(event, event)


OTHERS = st.sampled_from(
    [
        _same(b": keep-alive\n\n"),
        _same(b":\r\n\r\n"),
        Event(b"data: : keepalive\n\n", b""),
        Event(b"data:\n\n", b""),
        Event(b"id: 7\nretry: 1000\n\n", b""),
        Event(b'id: 7\ndata: {"x":1}\n\n', b'data: {"x":1}\n\n'),
        Event(b": note\nevent: ping\n\n", b": note\n\n"),
    ]
)
LASTS = st.sampled_from(
    [
        Event(b"", b""),
        _same(b"data: [DONE]\n\n"),
        _same(b"data:[DONE]\r\n\r\n"),
        Event(b'data: {"error":{"message":"boom"}}\n\n', b""),
        Event(b'data: {"choi', b""),
    ]
)


@st.composite
def streams(draw: st.DrawFn) -> list[Event]:
    """A stream; after its end comes more, which is nobody's business."""
    body = draw(st.lists(chunks() | chunks() | OTHERS, max_size=6))
    last = draw(LASTS)
    ended = b"DONE" in last.sent or b"error" in last.sent
    late = [Event(event.sent, b"") for event in draw(st.lists(chunks(), max_size=2))] if ended else []
    return [*body, last, *late]


def read(pieces: list[bytes], *, strip_usage: bool = False) -> tuple[bytes, ChunkReader]:
    """All that passes, and the reader for what it has seen."""
    reader = ChunkReader(PUBLIC, NAME, strip_usage=strip_usage)
    passed = b"".join(map(reader.feed, pieces)) + reader.end()
    return passed, reader


def summary(reader: ChunkReader) -> tuple[object, ...]:
    return reader.begun, reader.complete(1), reader.error, reader.tokens, reader.generated


def _sent(events: list[Event]) -> bytes:
    return b"".join(event.sent for event in events)


@examples(200)
@given(streams().flatmap(lambda events: st.tuples(st.just(events), cut(_sent(events)))))
def test_only_the_name_changes_however_it_was_cut(case: tuple[list[Event], list[bytes]]):
    events, pieces = case
    passed, reader = read(pieces)
    assert passed == b"".join(event.passed for event in events)
    assert summary(reader) == summary(read([event.sent for event in events])[1])


@examples(100)
@given(streams())
def test_one_piece_is_like_one_piece_per_event(events: list[Event]):
    whole, apart = read([_sent(events)]), read([event.sent for event in events])
    assert whole[0] == apart[0]
    assert summary(whole[1]) == summary(apart[1])


@examples(100)
@given(streams())
def test_a_client_finds_in_every_event_what_the_upstream_put_there(events: list[Event]):
    passed, reader = read([_sent(events)])
    got = [json.loads(data) for data in data_of(passed) if data != "[DONE]"]
    said = [
        json.loads(data)
        for data in data_of(b"".join(event.sent for event in events if event.passed))
        if data.startswith("{")
    ]
    assert [{**one, "model": PUBLIC} if "model" in one else one for one in said] == got
    assert reader.complete(1) == (
        any(choice["finish_reason"] for one in said for choice in one.get("choices", [])) or b"[DONE]" in passed
    )
    assert reader.tokens == _tokens([one for one in said if "usage" in one])


def _tokens(reported: list[dict[str, Any]]) -> TokenUsage | None:
    if not reported:
        return None
    usage = reported[-1]["usage"]
    return TokenUsage(usage["prompt_tokens"], usage["completion_tokens"])


NULLS = st.sampled_from([',"usage":null', ', "usage": null', ',"usage" : null', ',"\\u0075sage":null', ""])
COUNTED = ',"usage":{"prompt_tokens":7,"completion_tokens":2}'


@st.composite
def counted_streams(draw: st.DrawFn) -> list[Event]:
    """A stream whose upstream was asked for usage by the gateway, and what its client must get of it."""
    null, model = draw(NULLS), '"model":"up"'
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    events = []
    for content in draw(st.lists(CONTENTS | st.just('"usage":null,') | st.just("usage"), max_size=40)):
        choices = draw(st.sampled_from([1, 1, 1, 2]))
        choice = json.dumps({"delta": {"content": content}, "finish_reason": None}, ensure_ascii=False)
        deeper = draw(st.sampled_from(["", ',"x":{"a":1,"usage":null}']))
        usage = draw(st.sampled_from([null] * 5 + [COUNTED]))
        head = f'data: {{"id":"c1",{model},"choices":[{",".join([choice] * choices)}]{deeper}'
        events.append((head + usage + "}", head + "}"))
    last = f'data: {{"id":"c1",{model},"choices":[{{"delta":{{}},"finish_reason":"stop"}}]'
    events.append((last + draw(st.sampled_from([null, COUNTED])) + "}", last + "}"))
    if draw(st.booleans()):
        events.append((f'data: {{"id":"c1",{model},"choices":[]{COUNTED}}}', ""))
    events.append(("data: [DONE]", "data: [DONE]"))
    return [
        Event(
            (sent + end + end).encode(),
            (passed + end + end).encode().replace(b'"up"', NAME) if passed else b"",
        )
        for sent, passed in events
    ]


@examples(150)
@given(counted_streams().flatmap(lambda events: st.tuples(st.just(events), cut(_sent(events)))))
def test_usage_that_the_client_did_not_ask_for_leaves_no_trace(case: tuple[list[Event], list[bytes]]):
    events, pieces = case
    passed, reader = read(pieces, strip_usage=True)
    assert passed == b"".join(event.passed for event in events)
    assert reader.complete(1)
    apart = read([event.sent for event in events], strip_usage=True)
    assert (passed, summary(reader)) == (apart[0], summary(apart[1]))
    assert (reader.tokens == TokenUsage(7, 2)) == (COUNTED.encode() in _sent(events))
