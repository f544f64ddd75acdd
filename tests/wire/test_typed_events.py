"""Streams of typed events: what each wire's reader sees, passes and holds back."""

import json
from typing import Any, NamedTuple

import pytest
from doubles.script import Script
from doubles.sse import data_of
from doubles.wires import audio, images, messages, responses
from doubles.wires.streams import Event, broken_streams, named
from hypothesis import given
from hypothesis import strategies as st
from kit.pieces import cut, examples

from gateway.core.tokens import TokenUsage
from gateway.wire.anthropic import messages as messages_wire
from gateway.wire.openai import media
from gateway.wire.openai import responses as responses_wire
from gateway.wire.openai.chunks import InvalidChunk
from gateway.wire.openai.sse import EventTooLarge
from gateway.wire.openai.typed_events import EventTypes, TypedEventReader

NAME = b'"team/small"'
PONG = responses.message("pong")


class Wire(NamedTuple):
    """A wire: its types, a complete stream, the same as clients must get it, its usage, its own error event."""

    types: EventTypes
    sent: list[bytes]
    passed: list[bytes]
    tokens: TokenUsage
    error: Event


def _wire(types: EventTypes, sent: list[bytes], tokens: TokenUsage, error: Event) -> Wire:
    return Wire(types, sent, [event.replace(b'"model":"up"', b'"model":' + NAME) for event in sent], tokens, error)


WIRES = {
    "responses": _wire(
        responses_wire.EVENTS,
        responses.events(responses.response("up", PONG, responses.function_call("look", '{"model":1}'))),
        TokenUsage(12, 5, 4, 2),
        responses.ERROR,
    ),
    "messages": _wire(
        messages_wire.EVENTS,
        messages.events(messages.message("up", messages.text("pong"), messages.tool_use("look", {"model": 1}))),
        TokenUsage(15, 5, 4, 0, 3),
        messages.ERROR,
    ),
    "images": _wire(media.IMAGE_EVENTS, images.events(), TokenUsage(10, 20), messages.ERROR),
    "edits": _wire(media.IMAGE_EVENTS, images.events("image_edit"), TokenUsage(10, 20), messages.ERROR),
    "speech": _wire(media.SPEECH_EVENTS, audio.speech_events(), TokenUsage(3, 40), messages.ERROR),
    "transcripts": _wire(media.TRANSCRIPT_EVENTS, audio.transcript_events(), TokenUsage(14, 6), messages.ERROR),
}
OTHERS = [
    (b"data: [DONE]\n\n", b""),
    (b": keep-alive\n\n", b": keep-alive\n\n"),
    (b"event: note\n\n", b""),
    (b": note\nid: 7\ndata: x\n\n", b": note\n\n"),
    (b'event: new.kind\ndata: {"x":1}\n\n', b'event: new.kind\ndata: {"x":1}\n\n'),
    (b'id: 7\nevent: new.kind\nretry: 9\ndata: {"x":1}\n\n', b'event: new.kind\ndata: {"x":1}\n\n'),
    (b'data: {"type":"new.kind",\ndata:  "x":1}\n\n', b'data: {"type":"new.kind",\ndata:  "x":1}\n\n'),
    (b'id: 7\ndata: {"type":"new.kind",\ndata:  "x":1}\n\n', b'data: {"type":"new.kind",  "x":1}\n\n'),
    (b'event: ping\r\ndata: {"type":"ping"}\r\n\r\n', b'event: ping\r\ndata: {"type":"ping"}\r\n\r\n'),
]


def read(wire: Wire, pieces: list[bytes]) -> tuple[bytes, TypedEventReader]:
    """All that passes, and the reader for what it has seen."""
    reader = TypedEventReader(wire.types, NAME)
    return b"".join(map(reader.feed, pieces)) + reader.end(), reader


def summary(reader: TypedEventReader) -> tuple[object, ...]:
    """What a reader has seen."""
    return (reader.begun, reader.done, reader.failed, reader.error, reader.finish, reader.tokens)


def kinds(passed: bytes) -> list[str]:
    """The types of the events that passed."""
    return [json.loads(data)["type"] for data in data_of(passed)]


def body_of(script: Script) -> list[bytes]:
    """The pieces of the body that a script writes, its chunks unframed."""
    chunks = [step.partition(b"\r\n") for step in script if isinstance(step, bytes) and not step.startswith(b"HTTP")]
    return [rest[: int(size, 16)] for size, _, rest in chunks]


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_a_complete_stream_passes_with_the_name_that_was_asked_for(wire: Wire) -> None:
    passed, reader = read(wire, wire.sent)
    assert passed == b"".join(wire.passed)
    assert (reader.begun, reader.done, reader.failed, reader.error) == (True, True, False, None)
    assert reader.tokens == wire.tokens
    assert reader.generated > 0


@st.composite
def streams(draw: st.DrawFn) -> tuple[Wire, list[tuple[bytes, bytes]]]:
    """A stream with foreign events in it, perhaps with an error, and more after its end."""
    wire = WIRES[draw(st.sampled_from(sorted(WIRES)))]
    events = list(zip(wire.sent, wire.passed, strict=True))
    for _ in range(draw(st.integers(0, 4))):
        others = OTHERS[1:] if wire.types.marker else OTHERS
        events.insert(draw(st.integers(0, len(events) - 1)), draw(st.sampled_from(others)))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(events) - 1))
        late = [(sent, b"") for sent, _ in events[at:]]
        return wire, [*events[:at], (named(wire.error), b""), *late]
    return wire, [*events, *[(sent, b"") for sent in draw(st.lists(st.sampled_from(wire.sent), max_size=2))]]


@examples(300)
@given(streams().flatmap(lambda case: st.tuples(st.just(case), cut(b"".join(sent for sent, _ in case[1])))))
def test_any_cutting_gives_the_same(case: tuple[tuple[Wire, list[tuple[bytes, bytes]]], list[bytes]]) -> None:
    (wire, events), pieces = case
    passed, reader = read(wire, pieces)
    assert passed == b"".join(passed for _, passed in events)
    one_by_one = read(wire, [sent for sent, _ in events])[1]
    assert summary(reader) == summary(one_by_one)
    assert reader.generated == one_by_one.generated
    assert (reader.done, reader.error is not None) == (
        named(wire.error) not in dict(events),
        named(wire.error) in dict(events),
    )


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_a_stream_that_breaks_off_is_never_complete(wire: Wire) -> None:
    for how, script in broken_streams(wire.sent, named(wire.error)).items():
        _, reader = read(wire, body_of(script))
        assert not reader.done, how
        assert (reader.error is not None) == ("an error" in how), how


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_an_error_is_held_in_every_form(wire: Wire) -> None:
    for error in (
        named(wire.error),
        b'data: {"error":{"message":"no"}}\n\n',
        b'event: error\ndata: {"message":"no"}\n\n',
        b'data: {"type":"error"}\n\n',
        # In the shape of what streams nearly always repeat.
        wire.sent[0].replace(b"data: {", b'data: {"error":{"message":"no"},'),
    ):
        passed, reader = read(wire, [wire.sent[0], error, *wire.sent[1:]])
        assert passed == wire.passed[0]
        assert reader.error is not None
        assert json.loads(reader.error)
        assert not reader.done
    for none in (b"null", b"{}", b'""', b"false"):
        told = wire.sent[0].replace(b"data: {", b'data: {"error":%b,' % none)
        assert read(wire, [told])[1].error is None


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_what_is_no_json_is_not_passed(wire: Wire) -> None:
    for pieces in (wire.sent[:1], wire.sent[:-1], wire.sent[:1] * 40):
        broken = pieces[-1].replace(b"}\n\n", b",}\n\n")
        with pytest.raises(InvalidChunk):
            read(wire, [*pieces, broken])
    with pytest.raises(InvalidChunk):
        read(wire, [b'data: {"a":' + b"[" * 100_000 + b"\n\n"])
    with pytest.raises(EventTooLarge):
        read(wire, [b"data: " + b"x" * (16 * 1024 * 1024 + 1)])


def test_lone_surrogates_and_python_numbers_pass() -> None:
    odd = json.dumps({"type": "response.output_text.delta", "delta": "\ud83d", "score": float("nan")}).encode()
    event = b"event: response.output_text.delta\ndata: %b\n\n" % odd
    assert read(WIRES["responses"], [event] * 3)[0] == event * 3


@pytest.mark.parametrize(
    ("status", "details", "finish", "failed"),
    [
        ("completed", None, "stop", False),
        ("incomplete", {"reason": "max_output_tokens"}, "length", False),
        ("incomplete", {"reason": "content_filter"}, "content_filter", False),
        ("incomplete", None, "", False),
        ("failed", None, "", True),
    ],
)
def test_how_a_response_ends(status: str, details: Any, finish: str, failed: bool) -> None:
    final = responses.response("up", PONG, status=status, incomplete_details=details)
    passed, reader = read(WIRES["responses"], responses.events(final))
    assert (reader.done, reader.failed, reader.finish) == (True, failed, finish)
    assert kinds(passed)[-1] == f"response.{status}"


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("refusal", "content_filter"),
        ("something_new", "something_new"),
        (None, ""),
        (7, ""),
    ],
)
def test_how_a_message_ends(reason: Any, finish: str) -> None:
    final = messages.message("up", messages.text("pong"), stop_reason=reason)
    assert read(WIRES["messages"], messages.events(final))[1].finish == finish


START = {"input_tokens": 8, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3, "output_tokens": 1}


@pytest.mark.parametrize(
    ("start", "deltas", "tokens"),
    [
        (START, [{"output_tokens": 5}], TokenUsage(15, 5, 4, 0, 3)),
        (START, [{"output_tokens": 3}, {"output_tokens": 9}], TokenUsage(15, 9, 4, 0, 3)),  # cumulative
        (START, [{**START, "output_tokens": 9}], TokenUsage(15, 9, 4, 0, 3)),  # repeated, not added
        (START, [{"input_tokens": 0, "output_tokens": 9}], TokenUsage(15, 9, 4, 0, 3)),
        (START, [], TokenUsage(15, 1, 4, 0, 3)),  # cut short
        ({"input_tokens": 0, "output_tokens": 0}, [{"input_tokens": 7, "output_tokens": 2}], TokenUsage(7, 2)),
        (None, [{"output_tokens": 2}], TokenUsage(0, 2)),
        (None, [], None),
        ({"input_tokens": "x"}, [None], None),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 5},
            [{"cache_creation_input_tokens": 9, "output_tokens": 1}],
            TokenUsage(10, 1, 5, 0, 5),
        ),
    ],
)
def test_a_messages_usage_grows(start: Any, deltas: list[Any], tokens: TokenUsage | None) -> None:
    begun = {"type": "message_start", "message": {"model": "up", "usage": start}}
    ends = [{"type": "message_delta", "delta": {"stop_reason": None}, "usage": usage} for usage in deltas]
    _, reader = read(WIRES["messages"], [named(event) for event in (begun, *ends)])
    assert reader.tokens == tokens


def test_output_since_the_last_report_is_estimated() -> None:
    begun = named({"type": "message_start", "message": {"usage": START}})
    delta = named({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "word"}})
    wire = WIRES["messages"]
    assert read(wire, [begun, *[delta] * 100])[1].tokens == TokenUsage(15, 100, 4, 0, 3)
    ended = named({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 70}})
    assert read(wire, [begun, *[delta] * 100, ended])[1].tokens == TokenUsage(15, 70, 4, 0, 3)
    shown = TypedEventReader(wire.types, NAME, free=True)
    for event in (begun, delta, ended):
        shown.feed(event)
    assert shown.tokens == TokenUsage()


def test_a_ping_begins_no_stream() -> None:
    _, reader = read(WIRES["messages"], [named(messages.PING)] * 3)
    assert not reader.begun


def test_only_the_answers_own_name_is_replaced() -> None:
    inner = {"model": "inner", "response": {"model": "deep"}, "message": {"model": "deep"}}
    final = responses.response("up", {**PONG, **inner}, metadata=inner)
    last = {"type": "response.completed", "message": {"model": "x"}, "model": "top", "response": final}
    [passed] = [json.loads(data) for data in data_of(read(WIRES["responses"], [named(last)])[0])]
    assert passed == {**last, "response": {**final, "model": "team/small"}}
    for model in (None, 7, {"model": "up"}):
        event = named({"type": "response.created", "response": {"model": model}})
        assert read(WIRES["responses"], [event])[0] == event
    for odd in (None, [], "text"):
        event = named({"type": "response.created", "response": odd})
        assert read(WIRES["responses"], [event])[0] == event


def test_events_without_names_are_read_by_their_type() -> None:
    for wire in WIRES.values():
        bare = [event[event.index(b"data: ") :] for event in wire.sent]
        passed, reader = read(wire, bare)
        assert passed == b"".join(event[event.index(b"data: ") :] for event in wire.passed)
        assert (reader.done, reader.tokens) == (True, wire.tokens)


def test_events_without_a_type_are_read_by_their_name() -> None:
    sent = [b"event: message_start\ndata: {}\n\n", b"event: message_stop\r\ndata: {}\r\n\r\n"]
    assert read(WIRES["messages"], sent)[1].done


@pytest.mark.parametrize("kind", ["response.output_text.delta", "response.function_call_arguments.delta"])
def test_the_output_of_a_stream_without_usage_is_estimated_from_its_text(kind: str) -> None:
    long = [named({"type": kind, "delta": "word " * 40})] * 50
    _, reader = read(WIRES["responses"], long)
    assert 2000 <= reader.generated <= 3000  # 10,000 bytes of English
    assert reader.tokens is None
    short = [named({"type": kind, "delta": "word"})] * 50
    assert read(WIRES["responses"], short)[1].generated == 50


def test_thoughts_are_told_apart() -> None:
    thinking = {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm " * 9}}
    _, reader = read(WIRES["messages"], [named(thinking)] * 40)
    assert reader.thoughts_at_least == reader.generated_at_least == 40
