"""Finds the field that an unknown field was meant to be, anywhere in the schema."""

import difflib
import functools
from collections.abc import Iterable
from typing import Final, NamedTuple

from gateway.config.problems import nearest
from gateway.config.schema import fields

_MEANT: Final = {
    "server.max_bodies": "max_body_memory",
    "retry.base": "backoff_base",
    "retry.max": "backoff_max",
    "upstreams.breaker.open": "open_for",
    "upstreams.breaker.max_open": "max_open_for",
    "upstreams.api_base": "base_url",
    "upstreams.url": "base_url",
    "keys.budget": "limits.usd_per_day",
    "keys.max_budget": "limits.usd_per_day",
}
"""Former names, and names that other gateways use, by section: spelling alone would find another field."""

_NEAR: Final = 0.8  # of a name in another section, where an accidental likeness is more likely


class _Place(NamedTuple):
    """A field of the schema: its path, the same without `[]` and `*`, and its name."""

    path: str
    plain: str
    name: str


@functools.cache
def _places() -> tuple[_Place, ...]:
    return tuple(_Place(field.path, field.path.replace("[]", "").replace(".*", ""), field.name) for field in fields())


def suggestion(section: str, name: str, known: Iterable[str]) -> str:
    """`; did you mean admin.port?`, or `""` when no field comes near.

    `section` is the path of the section without indices and chosen names, such as `keys.limits`; `known` are
    its fields. A field below the section is named from there, any other field by its whole path.
    """
    meant = _MEANT.get(f"{section}.{name}") or nearest(name, known) or _elsewhere(section, name)
    return f"; did you mean {meant}?" if meant else ""


def _elsewhere(section: str, name: str) -> str | None:
    ranked = [(_likeness(place, name), place) for place in _places()]
    best = max(likeness for likeness, _ in ranked)
    if best < _NEAR:
        return None
    inside = f"{section}." if section else ""
    # Of equally near fields one below this section, then the least nested, then the first.
    place = min(
        (place for likeness, place in ranked if likeness == best),
        key=lambda place: (not (inside and place.plain.startswith(inside)), place.plain.count(".")),
    )
    return _relative(place.path, section) if inside and place.plain.startswith(inside) else place.path


def _relative(path: str, section: str) -> str:
    parts = path.split(".")
    for _ in section.split("."):
        parts.pop(0)
        if parts[0] == "*":
            parts.pop(0)
    return ".".join(parts)


def _likeness(place: _Place, name: str) -> float:
    """From 0 to 1: of the name to the field's, or to the last two parts of its path (`admin_port`)."""
    normalized = name.lower().replace("-", "_")
    joined = "_".join(place.plain.split(".")[-2:])
    return max(difflib.SequenceMatcher(None, normalized, text).ratio() for text in (place.name, joined))
