"""Fields that are accepted before their feature is built; the change that builds one removes its row."""

from collections.abc import Callable
from typing import Final, NamedTuple

from gateway.config.load import Loaded
from gateway.config.model import Config


class _Row(NamedTuple):
    """A field, what happens instead, and whether a config that sets it asks for more than that."""

    field: str
    instead: str
    asks: Callable[[Config], bool] = lambda _: True


_ROWS: Final[tuple[_Row, ...]] = ()


def unbuilt(loaded: Loaded) -> list[str]:
    """The features that the user configured and that are not there yet, each with what happens instead."""
    config = loaded.config
    if config is None:
        return []
    return [
        f"{row.field} ({row.instead})" for row in _ROWS if row.field in loaded.configured and row.asks(config)
    ]
