"""Whatever stands anywhere in LiteLLM's config: no traceback, and what is written passes its check."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from imported import CONFIGS, written

ODD = [None, "", [], {}, "x", -1, 0, True, 1e30, "nan", "1e400", "0.5", 10**14, "*", "${X}", "${", "a b\n"]
ODD += [[1, [2]], {"a": {"b": 1}}, [{"m": ["a"]}], "http://h?x=1", "http://", "redis://h:x", "é"]
PARSED = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in CONFIGS]

Place = tuple[Any, ...]


def places(node: Any, place: Place = ()) -> Iterator[Place]:
    """Every place below the root."""
    inside = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in inside:
        yield (*place, key)
        yield from places(value, (*place, key))


def put(node: Any, place: Place, value: Any) -> None:
    """Put a value there."""
    *way, last = place
    for key in way:
        node = node[key]
    node[last] = copy.deepcopy(value)


@st.composite
def spoilt(draw: st.DrawFn) -> Any:
    """A config with up to three odd values in it."""
    document = copy.deepcopy(draw(st.sampled_from(PARSED)))
    for _ in range(draw(st.integers(1, 3))):
        put(document, draw(st.sampled_from(list(places(document)))), draw(st.sampled_from(ODD)))
    return document


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(document=spoilt())
def test_any_value_in_any_place(document: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder: Path = tmp_path_factory.getbasetemp()
    result = written(folder, yaml.safe_dump(document, allow_unicode=True))
    assert result.status in (0, 2)
    if result.status == 0:
        assert result.load(folder).problems == []
