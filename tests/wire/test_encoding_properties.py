"""Compressed bodies: the same bytes come back, or none; and never more than was allowed."""

import gzip
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.pieces import examples

from gateway.wire.http.content_encoding import DecodedTooLarge, Inflater, decoded

CODINGS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    (" GZIP ", gzip.compress),
    ("deflate", zlib.compress),
]


@examples(150)
@given(st.binary(max_size=200), st.sampled_from(CODINGS), st.integers(0, 220))
def test_round_trip_within_the_limit(plain: bytes, coding: tuple[str, Callable[[bytes], bytes]], limit: int):
    name, compress = coding
    if len(plain) <= limit:
        assert decoded(compress(plain), name, limit) == plain
    else:
        with pytest.raises(DecodedTooLarge):
            decoded(compress(plain), name, limit)


@examples(150)
@given(st.binary(min_size=1, max_size=200), st.sampled_from(CODINGS), st.data())
def test_a_body_cut_short_is_damaged(plain: bytes, coding: tuple[str, Callable[[bytes], bytes]], data: st.DataObject):
    name, compress = coding
    whole = compress(plain)
    assert decoded(whole[: data.draw(st.integers(0, len(whole) - 1))], name, 1000) is None


@examples(150)
@given(st.binary(max_size=60), st.sampled_from(["gzip", "deflate", "br", "zstd", "gzip, br", "?"]))
def test_garbage_is_never_more_than_the_limit(body: bytes, coding: str):
    try:
        plain = decoded(body, coding, 10)
    except DecodedTooLarge:
        return
    assert plain is None or plain == body or len(plain) <= 10


@examples(60)
@given(st.binary(min_size=1, max_size=400_000), st.integers(1, 500), st.booleans())
def test_a_stream_is_inflated_however_it_was_cut(plain: bytes, size: int, twice: bool):
    plain *= 3
    packed = gzip.compress(plain[:7]) + gzip.compress(plain[7:]) if twice else gzip.compress(plain)
    inflater = Inflater(31)
    pieces = [packed[at : at + size] for at in range(0, len(packed), size)]
    assert b"".join(part for piece in pieces for part in inflater.feed(piece)) == plain
    assert inflater.ended
