"""Finds the route of a requested name: a public model, an exact alias, or an alias that is a pattern."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Final

import msgspec

from gateway.core.call import Route

_WILDCARD: Final = re.compile(r"\[[^\]]+\]|[*?]")
_LONGEST: Final = 256
"""Characters of a name that a pattern may match; bounds the work for a name that does not exist."""
_REMEMBERED: Final = 1024
"""Names whose pattern is not searched again."""


def is_pattern(alias: str) -> bool:
    """Whether the alias stands for more than its own text."""
    return _WILDCARD.search(alias) is not None


class ModelNames:
    """The names that requests may use: `exact` has the public models and their exact aliases.

    Of the patterns that match a name, the one with the most characters beside its wildcards wins, then the
    first in the config. A route found by an alias is the model's own, under the name that was asked for.
    """

    def __init__(
        self,
        routes: Mapping[str, Route],
        aliases: Mapping[str, Sequence[str]],
        narrowed: Mapping[str, Mapping[str, Route]] | None = None,
    ) -> None:
        """`aliases` has the aliases of each public model that has any.

        `narrowed` has, for each endpoint that not all candidates serve, the routes with those that do, by model.
        """
        pairs = [(alias, routes[model]) for model, listed in aliases.items() for alias in listed]
        self.public = routes
        self.narrowed = narrowed or {}
        exact = {alias: _under(alias, route) for alias, route in pairs if not is_pattern(alias)}
        self.exact: Mapping[str, Route] = {**routes, **exact}
        patterns = [(alias, route) for alias, route in pairs if is_pattern(alias)]
        patterns.sort(key=lambda pair: -len(_WILDCARD.sub("", pair[0])))
        self._patterns = [(re.compile(translate(alias)), route) for alias, route in patterns]
        self._matching = lru_cache(_REMEMBERED)(self._match)

    def find(self, name: str) -> Route | None:
        """The route of this name; None if nothing has it."""
        route = self.exact.get(name)
        if route is None and self._patterns and len(name) <= _LONGEST:
            return self._matching(name)
        return route

    def _match(self, name: str) -> Route | None:
        return next((_under(name, route) for pattern, route in self._patterns if pattern.match(name)), None)


def _under(name: str, route: Route) -> Route:
    return route.under(msgspec.json.encode(name))
