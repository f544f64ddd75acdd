"""Fields that are accepted before their feature is built; the change that builds one removes its row."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from gateway.config.load import Loaded
from gateway.config.model import Candidate, Config


class _Row(NamedTuple):
    """A field, what happens instead, and whether a config that sets it asks for more than that."""

    field: str
    instead: str
    asks: Callable[[Config], bool] = lambda _: True


def _candidates(config: Config) -> Iterator[Candidate]:
    for model in config.models.values():
        yield from model.candidates


_ROWS: Final = (
    _Row("models.candidates.max_output", "calls are not measured against it"),
    _Row("models.candidates.capabilities", "calls are not routed by them"),
    _Row(
        "models.candidates.weight",
        "calls are not routed by it",
        lambda c: any(one.weight != 1 for one in _candidates(c)),
    ),
    _Row(
        "models.route",
        "candidates are taken as listed",
        lambda c: any(model.route != "priority" for model in c.models.values()),
    ),
    _Row(
        "models.on_overflow",
        "an overflow is an error",
        lambda c: any(model.on_overflow != "error" for model in c.models.values()),
    ),
    _Row("models.cache", "answers are not kept", lambda c: _caches(c)),
    _Row("cache", "answers are not kept", lambda c: _caches(c)),
)


def _caches(config: Config) -> bool:
    return any(model.cache.enabled for model in config.models.values())


def unbuilt(loaded: Loaded) -> list[str]:
    """The features that the user configured and that are not there yet, each with what happens instead."""
    config = loaded.config
    if config is None:
        return []
    return [
        f"{row.field} ({row.instead})" for row in _ROWS if row.field in loaded.configured and row.asks(config)
    ]
