"""LiteLLM's values as texts of our config: references stay references, secrets become some."""

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from gateway.cli.import_litellm.notes import Notes
from gateway.config.problems import join

_REFERENCE: Final = "os.environ/"
_DUMMIES: Final = {
    "",
    "none",
    "null",
    "empty",
    "fake",
    "fake-key",
    "dummy",
    "no-key",
    "not-needed",
    "anything",
}


def section(document: dict[str, Any], name: str, notes: Notes, place: str = "") -> dict[str, Any]:
    """The fields of a section; empty where there is none."""
    value = document.get(name)
    if value is None or isinstance(value, dict):
        return value or {}
    notes.tell(join(place, name), "must be fields; left out")
    return {}


def entries(value: Any) -> list[Any]:
    """A list as it is, nothing as an empty one, anything else as a list of it."""
    return value if isinstance(value, list) else [] if value is None else [value]


def text(value: Any) -> str | None:
    """A text for our config: a reference as `${NAME}`, a literal `${` kept literal; None for none."""
    if not isinstance(value, str) or not value.strip():
        return None
    if value.startswith(_REFERENCE):
        return f"${{{_named(value)}}}"
    return value.strip().replace("${", "$${")


def is_reference(value: Any) -> bool:
    """Whether it is taken from the environment."""
    return isinstance(value, str) and value.startswith(_REFERENCE)


def number(fields: dict[str, Any], name: str, place: str, notes: Notes) -> Decimal | str | None:
    """A number from 0, or the reference to one; what is neither is told."""
    value = fields.get(name)
    if value is None or is_reference(value):
        return text(value)
    try:
        found = Decimal(str(value).replace("_", ""))
    except InvalidOperation:
        found = Decimal(-1)
    if found.is_finite() and 0 <= found < 10**12:
        return found
    notes.tell(join(place, name), "must be a number; left out")
    return None


def whole(fields: dict[str, Any], name: str, place: str, notes: Notes) -> int | str | None:
    """The same, whole and from 1."""
    value = number(fields, name, place, notes)
    if isinstance(value, Decimal):
        if value < 1:
            notes.tell(join(place, name), "must be a whole number from 1; left out")
            return None
        return int(value)
    return value


def duration(fields: dict[str, Any], name: str, place: str, notes: Notes) -> str | None:
    """Seconds above 0 as `30s`."""
    value = number(fields, name, place, notes)
    if isinstance(value, Decimal):
        if value < Decimal("0.001"):
            notes.tell(join(place, name), "must be more than 0; left out")
            return None
        return f"{value.normalize():f}s"
    return value


def yes(value: Any) -> bool:
    """Whether a flag is set."""
    return isinstance(value, str) and value.lower() in ("true", "yes", "on", "1")


def references(value: Any) -> Iterator[str]:
    """The names of all variables that a document takes something from."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from references(one)
    elif is_reference(value):
        yield _named(value)


class Secrets:
    """Turns literal secrets into references; the same secret always into the same one."""

    def __init__(self, notes: Notes, reserved: Iterable[str]) -> None:
        """`reserved` are the names of variables that have a meaning already."""
        self._notes = notes
        self._reserved = frozenset(reserved)
        self._names: dict[str, str] = {}

    def reference(self, value: Any, wanted: str, place: str) -> str | None:
        """A secret's text for our config; None for none and for what only fills the place of one."""
        if is_reference(value) or not isinstance(value, str):
            return text(value)
        if value.strip().lower() in _DUMMIES:
            return None
        if value not in self._names:
            name = _variable(wanted)
            while name in self._names.values() or name in self._reserved:
                name = _next(name)
            self._names[value] = name
        name = self._names[value]
        self._notes.tell(place, f"a secret in the file; put it into the environment or .env as {name}")
        return f"${{{name}}}"


def _named(reference: str) -> str:
    """The variable's name, as a shell could have it."""
    name = re.sub(r"\W", "_", reference.removeprefix(_REFERENCE).strip(), flags=re.ASCII)[:100]
    return name if name and not name[0].isdigit() else f"VARIABLE_{name}"


def _variable(wanted: str) -> str:
    name = re.sub(r"[^A-Z0-9]+", "_", wanted.upper(), flags=re.ASCII).strip("_")
    return name if name[:1].isalpha() else f"UPSTREAM_{name}"


def _next(name: str) -> str:
    stem, _, count = name.rpartition("_")
    return f"{stem}_{int(count) + 1}" if count.isdecimal() else f"{name}_2"
