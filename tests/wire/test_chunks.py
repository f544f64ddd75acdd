"""A relayed stream of chunks, case by case."""

import json
from typing import Any

import msgspec
import pytest

from gateway.core.call import TokenUsage
from gateway.wire.openai.chunks import ChunkReader, InvalidChunk
from gateway.wire.openai.sse import EventTooLarge

NAME = "m-small"
DONE = b"data: [DONE]\n\n"


def chunk(content: str = "", finish: str | None = None, model: str = "up-small", **more: Any) -> bytes:
    """An event in the spelling of most engines."""
    body = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "model": model,
        "choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}],
        **more,
    }
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def public(event: bytes) -> bytes:
    """The same event as a client gets it."""
    return event.replace(b'"model":"up-small"', b'"model":"m-small"')


@pytest.fixture
def reader() -> ChunkReader:
    return ChunkReader(NAME, msgspec.json.encode(NAME))


def test_sse_01_characters_cut_in_the_middle_stay_whole(reader: ChunkReader):
    event = chunk("안녕🙂ß")
    passed = b"".join(reader.feed(event[at : at + 1]) for at in range(len(event)))
    assert passed == public(event)


def test_sse_02_half_an_event_waits_for_its_other_half(reader: ChunkReader):
    event = chunk("abcdef")
    half = event.index(b"def")
    assert reader.feed(event[:half]) == b""
    assert not reader.begun
    assert reader.feed(event[half:]) == public(event)


def test_sse_05_no_space_after_the_colon(reader: ChunkReader):
    events = [chunk("a"), chunk("", "stop"), chunk(choices=[], usage={"prompt_tokens": 5}), DONE]
    sent = b"".join(events).replace(b"data: ", b"data:")
    assert reader.feed(sent) == public(sent)
    assert reader.complete(1)
    assert reader.tokens == TokenUsage(5)


def test_sse_08_comments_pass_and_begin_nothing(reader: ChunkReader):
    assert reader.feed(b": PROCESSING\n\n") == b": PROCESSING\n\n"
    assert not reader.begun
    reader.feed(chunk("a"))
    assert reader.begun


@pytest.mark.parametrize("event", [b"data:\n\n", b"data\n\n", b"data: \n\n", b"id: 7\n\n", b"retry: 1\n\n"])
def test_sse_09_what_breaks_a_client_is_dropped(reader: ChunkReader, event: bytes):
    assert reader.feed(event) == b""
    assert not reader.begun


def test_sse_09_id_and_retry_are_taken_out_of_an_event(reader: ChunkReader):
    assert reader.feed(b"id: 7\nretry: 1000\n" + chunk("a")) == public(chunk("a"))
    assert reader.feed(b': note\r\nid: 8\r\ndata: {"x":1}\r\n\r\n') == b': note\r\ndata: {"x":1}\r\n\r\n'


@pytest.mark.parametrize("data", [b": keepalive", b"ping", b"[1]", b"null", b'"text"', b"[DONE"])
def test_sse_11_data_that_is_no_object_is_dropped(reader: ChunkReader, data: bytes):
    assert reader.feed(b"data: " + data + b"\n\n") == b""
    assert (reader.begun, reader.complete(1), reader.error) == (False, False, None)
    assert reader.feed(chunk("a")) == public(chunk("a"))


def test_sse_12_neither_finish_reason_nor_done_is_not_complete(reader: ChunkReader):
    reader.feed(chunk('{"path":') + chunk('"/tmp'))
    assert reader.end() == b""
    assert reader.begun
    assert not reader.complete(1)


def test_sse_12_a_finish_reason_alone_is_complete(reader: ChunkReader):
    reader.feed(chunk("a"))
    assert not reader.complete(1)
    reader.feed(chunk("", "length"))
    assert reader.complete(1)


def test_sse_12_done_alone_is_complete(reader: ChunkReader):
    reader.feed(chunk("a"))
    assert reader.feed(DONE) == DONE
    assert reader.complete(1)


def test_one_finished_choice_among_others_is_complete(reader: ChunkReader):
    reader.feed(chunk(choices=[{"index": 0, "finish_reason": "stop"}, {"index": 1, "finish_reason": None}]))
    assert reader.complete(1)
    reader.feed(chunk("a"))
    assert reader.complete(1)


@pytest.mark.parametrize("event", [b"data:   [DONE] \n\n", b"data: [DONE]\ndata:\n\n"])
def test_space_around_done_does_not_hide_it(reader: ChunkReader, event: bytes):
    assert reader.feed(event) == event
    assert reader.complete(1)


def test_sse_12_an_unfinished_last_event_does_not_pass(reader: ChunkReader):
    assert reader.feed(chunk("a") + chunk("b")[:-1]) == public(chunk("a"))
    assert reader.end() == b""


def test_an_event_closed_by_crs_passes_at_the_end(reader: ChunkReader):
    assert reader.feed(b"data: [DONE]\r\r") == b""
    assert reader.end() == b"data: [DONE]\r\r"
    assert reader.complete(1)


@pytest.mark.parametrize("after", [b"", DONE, chunk("a", "stop")])
@pytest.mark.parametrize(
    "error",
    [
        b'{"error":{"object":"error","message":"The request queue is full.","code":503}}',
        b'{"object":"error","message":"The request queue is full.","code":503}',
        b'{"error":"overloaded"}',
    ],
)
def test_sse_16_an_error_first_is_kept_and_nothing_passes(reader: ChunkReader, error: bytes, after: bytes):
    assert reader.feed(b"data: " + error + b"\n\n" + after) == b""
    assert (reader.begun, reader.complete(1), reader.error) == (False, False, error)
    assert reader.feed(DONE) + reader.end() == b""
    assert not reader.complete(1)


def test_sse_17_an_error_after_content_ends_what_passes(reader: ChunkReader):
    failed = b'event: error\ndata: {"error":{"message":"boom","type":"server_error"}}\n\n'
    assert reader.feed(chunk("a") + failed + chunk("b") + DONE) == public(chunk("a"))
    assert reader.error == b'{"error":{"message":"boom","type":"server_error"}}'
    assert not reader.complete(1)


def test_a_null_error_is_not_an_error(reader: ChunkReader):
    event = chunk("a", error=None)
    assert reader.feed(event) == public(event)
    assert reader.error is None


def test_sse_18_the_usage_chunk_passes_unchanged(reader: ChunkReader):
    event = chunk(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7})
    assert reader.feed(chunk("", "stop") + event) == public(chunk("", "stop") + event)
    assert reader.tokens == TokenUsage(5, 2)


def test_a_later_chunk_without_usage_does_not_undo_it(reader: ChunkReader):
    reader.feed(chunk("a", usage={"prompt_tokens": 5}) + chunk("b", usage=None) + chunk("c"))
    assert reader.tokens == TokenUsage(5)


@pytest.mark.parametrize("usage", ["[]", '"none"', '{"prompt_tokens":"5"}', '{"prompt_tokens_details":[]}'])
def test_a_finish_reason_counts_whatever_stands_in_usage(reader: ChunkReader, usage: str):
    reader.feed(f'data: {{"choices":[{{"finish_reason":"stop"}}],"usage":{usage}}}\n\n'.encode())
    assert reader.complete(1)


def test_nothing_passes_after_done(reader: ChunkReader):
    assert reader.feed(DONE + chunk("late") + b": late\n\n") == DONE


@pytest.mark.parametrize("model", ["m-small", None, 7])
def test_an_event_without_a_model_to_rename_is_unchanged(reader: ChunkReader, model: Any):
    event = chunk("a", model=model)
    assert reader.feed(event) == event


def test_a_model_inside_of_the_content_is_not_the_model(reader: ChunkReader):
    for event in (chunk('"model":"up-small"'), chunk("x", extra={"model": "inner"}), chunk("y")):
        assert reader.feed(event) == event.replace(b'"model":"up-small"', b'"model":"m-small"', 1)


def test_a_model_that_changes_within_the_stream_is_replaced_all_the_same(reader: ChunkReader):
    for model in ("up-small", "up-small", "up-small-2", "up", "up-small"):
        assert reader.feed(chunk("a", model=model)) == chunk("a", model=NAME)


def test_a_second_model_in_one_chunk_is_replaced_too(reader: ChunkReader):
    reader.feed(b'data: {"model":"up"}\n\n')
    passed = reader.feed(b'data: {"model":"up","x":1,"model":"up"}\n\n')
    assert passed == b'data: {"model":"m-small","x":1,"model":"m-small"}\n\n'


@pytest.mark.parametrize("cut", range(1, 45))
def test_a_line_after_the_data_belongs_to_the_event_wherever_it_was_cut(reader: ChunkReader, cut: int):
    reader.feed(chunk("a"))
    event = chunk("b")[:-1] + b"id: 7\n\n"
    assert reader.feed(event[:-cut]) + reader.feed(event[-cut:]) == public(chunk("b"))


def test_data_over_several_lines_is_one_chunk(reader: ChunkReader):
    passed = reader.feed(b'data: {"model":\ndata:  "up-small",\ndata: "x":1}\n\n')
    assert passed.startswith(b"data: ")
    assert passed.count(b"\n") == 2
    assert json.loads(passed[6:]) == {"model": NAME, "x": 1}


@pytest.mark.parametrize("data", [b"{", b'{"model":}', b'{"a":1} x', b'{"model":"' + b"\\ud8" + b'"}'])
def test_an_object_that_is_none_is_invalid(reader: ChunkReader, data: bytes):
    with pytest.raises(InvalidChunk):
        reader.feed(b"data: " + data + b"\n\n")


def test_an_event_without_end_is_too_large(reader: ChunkReader):
    mib = bytes(1024 * 1024)
    for _ in range(16):
        assert reader.feed(mib) == b""
    with pytest.raises(EventTooLarge):
        reader.feed(b"x")


def test_a_chunk_of_three_mib_passes(reader: ChunkReader):
    """SSE-29."""
    event = chunk("x" * 3 * 1024 * 1024)
    assert reader.feed(event[:100_000]) + reader.feed(event[100_000:]) == public(event)
