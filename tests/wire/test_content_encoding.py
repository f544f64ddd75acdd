"""Compression that nobody asked for."""

import gzip
import tracemalloc
import zlib

import pytest

from gateway.wire.http.content_encoding import decoded

PLAIN = b'{"model":"m"}'
PACKED = gzip.compress(PLAIN)


@pytest.mark.parametrize("coding", ["", "identity", " Identity "])
def test_nothing_to_undo(coding: str):
    assert decoded(PLAIN, coding, 100) == PLAIN


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, gzip", "nonsense"])
def test_a_coding_that_is_not_known(coding: str):
    assert decoded(PLAIN, coding, 100) is None


@pytest.mark.parametrize("limit", [len(PLAIN) - 1, len(PLAIN)])
def test_the_limit_is_exact(limit: int):
    assert decoded(gzip.compress(PLAIN), "gzip", limit) == (PLAIN if limit == len(PLAIN) else None)


@pytest.mark.parametrize(("coding", "window"), [("gzip", 31), ("deflate", 15)])
def test_a_bomb_is_not_unpacked(coding: str, window: int):
    packer = zlib.compressobj(wbits=window)
    mib = bytes(1024 * 1024)
    bomb = b"".join(packer.compress(mib) for _ in range(32)) + packer.flush()
    tracemalloc.start()
    try:
        assert decoded(bomb, coding, 1000) is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(mib)


def test_a_body_of_two_members_is_not_cut_to_its_first():
    assert decoded(gzip.compress(b'{"a":') + gzip.compress(b"1}"), "gzip", 100) in (None, b'{"a":1}')


@pytest.mark.parametrize("body", [b"", PLAIN, PACKED[:-1], PACKED[:-8] + bytes(8)])
def test_damage(body: bytes):
    assert decoded(body, "gzip", 100) is None
