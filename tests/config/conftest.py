"""Writes configs for the tests of this folder."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gateway.config.load import Loaded, load

Load = Callable[..., Loaded]


@pytest.fixture
def load_text(tmp_path: Path) -> Load:
    """Loads a config from its text."""

    def loads(text: str | bytes, environ: Mapping[str, str] | None = None, **more: object) -> Loaded:
        path = tmp_path / "sluice.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(path, environ or {}, **more)

    return loads


@pytest.fixture
def good(load_text: Load) -> Callable[..., Loaded]:
    """Loads a config that must be valid."""

    def loads(text: str, environ: Mapping[str, str] | None = None) -> Loaded:
        loaded = load_text(text, environ)
        assert loaded.problems == []
        assert loaded.config is not None
        return loaded

    return loads


@pytest.fixture
def problems_of(load_text: Load) -> Callable[..., dict[str, str]]:
    """Loads a config that must be invalid and returns its messages by path."""

    def loads(text: str | bytes, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        loaded = load_text(text, environ)
        assert loaded.config is None
        places = [problem.path for problem in loaded.problems]
        assert len(places) == len(set(places)), loaded.problems
        for problem in loaded.problems:
            assert str(problem).isprintable()
        return dict(loaded.problems)

    return loads
