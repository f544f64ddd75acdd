"""Fixtures of the tests that run a whole gateway."""

import pytest
from doubles.limited import FrozenClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FrozenClock:
    """The time of gateways started after it: it passes only when a test advances it."""
    return FrozenClock(monkeypatch)
