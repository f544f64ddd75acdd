"""Upstream answers: grown from pieces of HTTP by Hypothesis, and every seed that once meant something."""

from pathlib import Path

import pytest
from answer_fuzz import check
from hypothesis import given, settings
from hypothesis import strategies as st

SEEDS = sorted((Path(__file__).parent / "seeds").glob("*.http"))

VERSIONS = [b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"http/1.1", b"ICY", b""]
STATUSES = [
    b"200 OK",
    b"200",
    b"200 ",
    b"204 No Content",
    b"304 Not Modified",
    b"100 Continue",
    b"99 X",
    b"503 Busy",
]
ENDS = [b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b""]
HEADERS = [
    b"content-length: 5", b"content-length: 5", b"Content-Length:5", b"content-length: 3",
    b"content-length: 05",
    b"content-length: +5", b"content-length: 5, 5", b"content-length: 0x5", b"content-length : 5",
    b"transfer-encoding: chunked", b"Transfer-Encoding: Chunked", b"transfer-encoding: gzip, chunked",
    b"transfer-encoding: chunked, identity", b"transfer-encoding:\tchunked", b"transfer-encoding: xchunked",
    b"connection: close", b"connection: keep-alive", b"connection: upgrade", b"upgrade: h2c", b"trailer: x",
    b"x: \x00", b"x: \xff", b" folded", b"x", b": empty", b"content-type: application/json", b"x: a\rb",
]  # fmt: skip
BODIES = [
    b"12345", b"123", b"1234567", b"5\r\n12345\r\n0\r\n\r\n", b"5\r\n12345\r\n", b"0\r\n\r\n",
    b"00005\r\n12345\r\n0\r\n\r\n",
    b"5;a=b\r\n12345\r\n0\r\n\r\n", b"5 \r\n12345\r\n0\r\n\r\n", b"5\n12345\n0\n\n",
    b"-5\r\n12345\r\n0\r\n\r\n",
    b"5\r\n12345\r\n0\r\ncontent-length: 9\r\n\r\n", b"ffffffffffffffff\r\n1", b"5\r\n123456\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx", b"",
]  # fmt: skip


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """One or two answers, each more or less well-formed."""
    out = b""
    for _ in range(draw(st.integers(1, 2))):
        out += draw(st.sampled_from(VERSIONS)) + b" " + draw(st.sampled_from(STATUSES)) + draw(st.sampled_from(ENDS))
        for header in draw(st.lists(st.sampled_from(HEADERS), max_size=4)):
            out += header + draw(st.sampled_from(ENDS))
        out += draw(st.sampled_from(ENDS)) + draw(st.sampled_from(BODIES))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(out)))
        out = out[:at] + draw(st.binary(max_size=3)) + out[at + draw(st.integers(0, 3)) :]
    return out


@settings(max_examples=1500, deadline=None)
@given(answers(), st.lists(st.integers(0, 400), max_size=5))
def test_grown_answers(data: bytes, cuts: list[int]) -> None:
    check(data, cuts)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_arbitrary_bytes(data: bytes, cuts: list[int]) -> None:
    check(data, cuts)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda path: path.stem)
def test_seeds(seed: Path) -> None:
    data = seed.read_bytes()
    for step in (1, 2, 7):
        check(data, list(range(0, len(data), step)))
