"""Compressed bodies: the same bytes come back, or none; and never more than was allowed."""

import gzip
import zlib
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.encoding import decoded

FEW = settings(max_examples=150, deadline=None)
CODINGS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    (" GZIP ", gzip.compress),
    ("deflate", zlib.compress),
]


@FEW
@given(st.binary(max_size=200), st.sampled_from(CODINGS), st.integers(0, 220))
def test_round_trip_within_the_limit(
    plain: bytes, coding: tuple[str, Callable[[bytes], bytes]], limit: int
) -> None:
    name, compress = coding
    assert decoded(compress(plain), name, limit) == (plain if len(plain) <= limit else None)


@FEW
@given(st.binary(min_size=1, max_size=200), st.sampled_from(CODINGS), st.data())
def test_a_body_cut_short_is_damaged(
    plain: bytes, coding: tuple[str, Callable[[bytes], bytes]], data: st.DataObject
) -> None:
    name, compress = coding
    whole = compress(plain)
    assert decoded(whole[: data.draw(st.integers(0, len(whole) - 1))], name, 1000) is None


@FEW
@given(st.binary(max_size=60), st.sampled_from(["gzip", "deflate", "br", "zstd", "gzip, br", "?"]))
def test_garbage_is_never_more_than_the_limit(body: bytes, coding: str) -> None:
    plain = decoded(body, coding, 10)
    assert plain is None or len(plain) <= 10
