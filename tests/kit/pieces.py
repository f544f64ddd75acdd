"""Hypothesis strategies: bytes cut into pieces, and JSON in every notation that JSON allows."""

import json

from hypothesis import settings
from hypothesis import strategies as st

SPACE = st.sampled_from(["", "", "", " ", "\n", "\t\r\n  "])
KEYS = st.sampled_from(["model", "mode", "models", "messages", "Model", "", 'model"', "\u00e9"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["model", '"model": "x"', '{"model":"x"}', 'a\\"model\\":', "\\", '"', "{[", "]}"]
)
SCALARS = st.none() | st.booleans() | st.integers(-(10**25), 10**25) | st.floats(-1e9, 1e9) | TEXTS


def examples(number: int) -> settings:
    """Settings for this many examples, the same in every run."""
    return settings(max_examples=number, deadline=None, derandomize=True)


@st.composite
def cut(draw: st.DrawFn, whole: bytes) -> list[bytes]:
    """These bytes in pieces, some of which may be empty; often byte by byte."""
    if draw(st.integers(0, 3)) == 0:
        return [whole[at : at + 1] for at in range(len(whole))]
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    return [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


@st.composite
def string(draw: st.DrawFn, text: str) -> str:
    """A JSON string of this value; any of its characters may be escaped."""
    if draw(st.booleans()):
        return json.dumps(text, ensure_ascii=draw(st.booleans()))
    escaped = draw(st.lists(st.booleans(), min_size=len(text), max_size=len(text)))
    written = (
        _escaped(character, draw(st.booleans())) if escape else json.dumps(character, ensure_ascii=False)[1:-1]
        for character, escape in zip(text, escaped, strict=True)
    )
    return '"' + "".join(written) + '"'


def _escaped(character: str, upper: bool) -> str:
    units = character.encode("utf-16-be").hex()
    units = units.upper() if upper else units
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


@st.composite
def member(draw: st.DrawFn, key: str, value: str) -> str:
    """`"key": value`, the key written and spaced in any notation."""
    a, b, c, d = (draw(SPACE) for _ in range(4))
    return f"{a}{draw(string(key))}{b}:{c}{value}{d}"


@st.composite
def values(draw: st.DrawFn, depth: int = 2) -> str:
    """The text of a JSON value; objects in it may have `model` keys."""
    kind = draw(st.sampled_from(["scalar", "scalar", "list", "object"] if depth else ["scalar"]))
    if kind == "list":
        return "[" + ",".join(draw(st.lists(values(depth - 1), max_size=3))) + "]"
    if kind == "object":
        pairs = draw(st.lists(st.tuples(KEYS, values(depth - 1)), max_size=3))
        return "{" + ",".join([draw(member(key, value)) for key, value in pairs]) + "}"
    scalar = draw(SCALARS)
    return draw(string(scalar)) if isinstance(scalar, str) else json.dumps(scalar)
