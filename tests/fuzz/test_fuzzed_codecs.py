"""Bytes that others write: grown from words by Hypothesis, and every seed that once meant something."""

import ast
from pathlib import Path

import codec_fuzz
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

HERE = Path(__file__).parent
SEEDS = sorted((HERE / "seeds").glob("*.codec"))
CUTS = st.lists(st.integers(0, 400), max_size=5)
READERS = {
    "events": "stream",
    "chunks": "stream",
    "request": "request",
    "wait": "wait",
    "head": "head",
    "message": "message",
    "config": "config",
}
"""The functions of codec_fuzz.py, and whose words they are fed."""


def words(reader: str) -> list[bytes]:
    """What libFuzzer's dictionary of this reader holds."""
    lines = (HERE / "words" / f"{READERS[reader]}.dict").read_text(encoding="ascii").splitlines()
    return [bytes(ast.literal_eval(f"b{line}")) for line in lines]


def read(reader: str, data: bytes, cuts: list[int]) -> None:
    """Let it read these bytes, and cut them if that must not matter."""
    check = getattr(codec_fuzz, reader)
    if reader in ("events", "chunks"):
        check(data, cuts)
    else:
        check(data)


@pytest.mark.parametrize("reader", READERS)
def test_grown_bytes(reader: str) -> None:
    parts = st.sampled_from(words(reader)) | st.binary(max_size=3)

    @settings(max_examples=400, deadline=None)
    @given(st.lists(parts, max_size=20).map(b"".join), CUTS)
    def grown(data: bytes, cuts: list[int]) -> None:
        read(reader, data, cuts)

    grown()


@pytest.mark.parametrize("reader", READERS)
def test_seeds(reader: str) -> None:
    for seed in SEEDS:
        data = seed.read_bytes()
        for step in (1, 2, 7):
            read(reader, data, list(range(0, len(data), step)))


def test_a_config_is_no_program() -> None:
    tag = b"!!python/object/apply:os.system [exit 1]"
    codec_fuzz.config(b"server: " + tag + b"\nupstreams: {a: {base_url: http://h}}\nmodels: {}\n")
    codec_fuzz.config(b"&a [" + b"*a, " * 100 + b"]")
    codec_fuzz.config(b"a: &a [x]\n" + b"".join(b"b%d: &b [*a, *a]\n" % number for number in range(50)))
    codec_fuzz.config(b"[" * 10_000)
