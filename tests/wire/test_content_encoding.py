"""Compressed answers of upstreams that ignore `identity`."""

import gzip
import tracemalloc
import zlib

import pytest

from gateway.wire.http.content_encoding import DecodedTooLarge, decoded

PLAIN = b'{"model":"m"}'
PACKED = gzip.compress(PLAIN, mtime=0)


LABELS = ["", "identity", " Identity ", "none", "NONE", "null", "utf-8", "identity, none", "binary"]
COMPRESSED = ["br", "zstd", "compress", "gzip", "gzip, gzip", "deflate", "nonsense"]


@pytest.mark.parametrize("coding", LABELS)
@pytest.mark.parametrize("body", [PLAIN, b"", b"a text"])
def test_nothing_to_undo(coding: str, body: bytes):
    assert decoded(body, coding, 100) == body


@pytest.mark.parametrize("coding", COMPRESSED)
@pytest.mark.parametrize("body", [PLAIN, b" \n[1]", b"<html>", b"\xef\xbb\xbf{}"])
def test_a_plain_body_is_plain_whatever_its_label(coding: str, body: bytes):
    assert decoded(body, coding, 100) == body


@pytest.mark.parametrize("coding", [*LABELS, *COMPRESSED])
def test_gzip_is_known_by_its_bytes(coding: str):
    if coding not in ("br", "zstd", "compress", "nonsense"):
        assert decoded(PACKED, coding, 100) == PLAIN
    assert decoded(gzip.compress(PACKED), "gzip, gzip", 100) == PLAIN


@pytest.mark.parametrize("window", [31, 15, -15])
def test_deflate_in_each_of_its_forms(window: int):
    packer = zlib.compressobj(wbits=window)
    assert decoded(packer.compress(PLAIN) + packer.flush(), "deflate", 100) == PLAIN


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "nonsense"])
def test_an_unknown_coding_is_rejected(coding: str):
    assert decoded(b"\x28\xb5\x2f\xfd", coding, 100) is None


@pytest.mark.parametrize("limit", [len(PLAIN) - 1, len(PLAIN)])
def test_the_limit_is_exact(limit: int):
    if limit == len(PLAIN):
        assert decoded(PACKED, "gzip", limit) == PLAIN
    else:
        with pytest.raises(DecodedTooLarge):
            decoded(PACKED, "gzip", limit)


@pytest.mark.parametrize(("coding", "window"), [("gzip", 31), ("deflate", 15)])
def test_a_bomb_is_not_unpacked(coding: str, window: int):
    packer = zlib.compressobj(wbits=window)
    mib = bytes(1024 * 1024)
    bomb = b"".join(packer.compress(mib) for _ in range(32)) + packer.flush()
    tracemalloc.start()
    try:
        with pytest.raises(DecodedTooLarge):
            decoded(bomb, coding, 1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(mib)


def test_a_body_of_two_members_is_not_cut_to_its_first():
    assert decoded(gzip.compress(b'{"a":', mtime=0) + gzip.compress(b"1}"), "gzip", 100) in (None, b'{"a":1}')


@pytest.mark.parametrize("body", [b"", b"no gzip", PACKED[:-1], PACKED[:-8] + bytes(8)])
def test_damage(body: bytes):
    assert decoded(body, "gzip", 100) is None
