"""The splitter, told by examples."""

import pytest

from gateway.wire.openai.sse import EventSplitter, EventTooLarge

EVENT = b'data: {"a":1}\n\n'


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard_ends_an_event(end: bytes):
    splitter = EventSplitter()
    event = b"data: a" + end + b"data: b" + end + end
    events = splitter.feed(event + event)
    assert events + splitter.end() == [event, event]


def test_mixed_line_ends_make_a_blank_line():
    splitter = EventSplitter()
    assert splitter.feed(b"a\r\n\nb\n\r\nc\r\r\nd") == [b"a\r\n\n", b"b\n\r\n", b"c\r\r\n"]


def test_the_two_halves_of_a_crlf_are_one_line_end():
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\r") == []
    assert splitter.feed(b"\ndata: b\r") == []
    assert splitter.feed(b"\n\r") == []
    assert splitter.feed(b"\n") == [b"data: a\r\ndata: b\r\n\r\n"]


def test_a_blank_line_of_crs_is_complete_when_another_byte_or_the_end_comes():
    splitter = EventSplitter()
    assert splitter.feed(b"a\r\r") == []
    assert splitter.feed(b"b\n\r") == [b"a\r\r"]
    assert splitter.end() == [b"b\n\r"]


def test_an_unfinished_event_is_dropped_at_the_end():
    splitter = EventSplitter()
    assert splitter.feed(EVENT + b"data: {}\n") == [EVENT]
    assert splitter.end() == []


@pytest.mark.parametrize("pieces", [[b"\xef\xbb\xbf" + EVENT], [b"\xef", b"\xbb", b"", b"\xbf", EVENT]])
def test_a_byte_order_mark_at_the_start_is_dropped(pieces: list[bytes]):
    splitter = EventSplitter()
    assert [event for piece in pieces for event in splitter.feed(piece)] == [EVENT]


def test_a_byte_order_mark_elsewhere_is_unchanged():
    splitter = EventSplitter()
    splitter.feed(EVENT)
    assert splitter.feed(b"\xef\xbb\xbf" + EVENT) == [b"\xef\xbb\xbf" + EVENT]


def test_half_a_byte_order_mark_is_text():
    splitter = EventSplitter()
    assert splitter.feed(b"\xef\xbb") == []
    assert splitter.feed(EVENT) == [b"\xef\xbb" + EVENT]


@pytest.mark.parametrize("pieces", [[b"data: x\n\n\n"], [b"data: x\n\n", b"\n"]])
def test_a_second_blank_line_does_not_belong_to_the_event_before_it(pieces: list[bytes]):
    splitter = EventSplitter()
    assert [event for piece in pieces for event in splitter.feed(piece)] == [b"data: x\n\n"]


def test_an_event_of_three_mib_comes_out_whole():
    """SSE-29."""
    splitter = EventSplitter()
    event = b"data: " + b"x" * (3 * 1024 * 1024) + b"\n\n"
    pieces = [event[at : at + 65_536] for at in range(0, len(event), 65_536)]
    assert [one for piece in pieces for one in splitter.feed(piece)] == [event]


def test_an_unfinished_event_may_be_as_long_as_the_limit():
    splitter = EventSplitter(limit=10)
    assert splitter.feed(b"0123456789") == []
    assert splitter.feed(b"\n\n") == [b"0123456789\n\n"]


def test_one_byte_above_the_limit_is_too_large():
    splitter = EventSplitter(limit=10)
    splitter.feed(b"0123456789")
    with pytest.raises(EventTooLarge):
        splitter.feed(b"0")


def test_the_limit_is_for_one_event_and_not_for_all():
    splitter = EventSplitter(limit=20)
    assert splitter.feed(EVENT * 5) == [EVENT] * 5


def test_the_usual_limit_is_sixteen_mib():
    splitter = EventSplitter()
    splitter.feed(bytes(16 * 1024 * 1024))
    with pytest.raises(EventTooLarge):
        splitter.feed(b"0")
