"""However the network cuts a stream, the same events come out of it, and every byte of them."""

import re

from doubles.sse import data_of
from hypothesis import given
from hypothesis import strategies as st
from kit.pieces import cut, examples

from gateway.wire.openai.sse import EventSplitter

BOM = b"\xef\xbb\xbf"
LINES = st.sampled_from(
    [b"", b"", b"data: {}", b"data: x", b"data", b": comment", b"event: e", b"id: 1", b"\xef", BOM, b"\x00"]
)
ENDS = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])
WHOLE = st.sampled_from([b"data: x\n\n", b"data: x\n\n\n", b": c\n", b"\n", b"data: y\r\n\r\n"])
STREAMS = st.builds(
    lambda bom, body, rest: bom + b"".join(line + end for line, end in body) + rest,
    st.sampled_from([b"", BOM]),
    st.lists(st.tuples(LINES, ENDS), max_size=12),
    st.sampled_from([b"", b"data: unfinished", b"\xef\xbb"]),
)


def split(pieces: list[bytes]) -> list[bytes]:
    splitter = EventSplitter()
    events = [event for piece in pieces for event in splitter.feed(piece)]
    return events + splitter.end()


def expected(stream: bytes) -> list[bytes]:
    """The slow way: line by line, an event being all up to a blank line that is not its first line."""
    events, event = [], b""
    for line in re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)", stream.removeprefix(BOM)):
        closes = bool(event) and line in (b"\r\n", b"\r", b"\n")
        event += line
        if closes:
            events.append(event)
            event = b""
    return events


@examples(150)
@given(STREAMS.flatmap(lambda stream: st.tuples(st.just(stream), cut(stream))))
def test_any_cutting_gives_the_same_events(case: tuple[bytes, list[bytes]]):
    stream, pieces = case
    assert split(pieces) == expected(stream)


@examples(150)
@given(st.lists(WHOLE, max_size=6))
def test_pieces_that_are_mostly_whole_events_give_the_same_events(pieces: list[bytes]):
    assert split(pieces) == expected(b"".join(pieces))


@examples(150)
@given(STREAMS)
def test_one_piece_gives_the_same_events(stream: bytes):
    assert split([stream]) == expected(stream)


@examples(150)
@given(st.binary(max_size=60).map(lambda noise: noise + b"\n\r\n").flatmap(cut))
def test_no_byte_is_lost_doubled_or_moved(pieces: list[bytes]):
    stream = b"".join(pieces).removeprefix(BOM)
    joined = b"".join(split(pieces))
    assert stream.startswith(joined)
    assert stream[len(joined) :].strip(b"\r\n") == b""  # it ended with a blank line: no word is left over


@examples(150)
@given(st.lists(st.tuples(LINES, ENDS), max_size=12))
def test_a_client_dispatches_from_the_events_what_it_does_from_the_stream(
    body: list[tuple[bytes, bytes]],
):
    stream = b"".join(line + end for line, end in body if b"\xef" not in line) + b"\n\n"
    assert data_of(b"".join(split([stream, b""]))) == data_of(stream)
