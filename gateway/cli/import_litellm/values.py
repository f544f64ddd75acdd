"""Converts LiteLLM's values: references stay references, and literal secrets become references."""

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from gateway.cli.import_litellm.notes import Notes
from gateway.config.problems import join

_REFERENCE: Final = "os.environ/"
_PLACEHOLDERS: Final = {
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
    """The fields of a section; empty if there is none."""
    value = document.get(name)
    if value is None or isinstance(value, dict):
        return value or {}
    notes.add(join(place, name), "must be fields; left out")
    return {}


def entries(value: Any) -> list[Any]:
    """A list as it is, None as an empty list, anything else as a list with one item."""
    return value if isinstance(value, list) else [] if value is None else [value]


def text(value: Any) -> str | None:
    """A text for the config: a reference as `${NAME}`, a literal `${` escaped; None for an empty value."""
    if not isinstance(value, str) or not value.strip():
        return None
    if value.startswith(_REFERENCE):
        return f"${{{_variable_name(value)}}}"
    return value.strip().replace("${", "$${")


def is_reference(value: Any) -> bool:
    """Whether LiteLLM takes the value from the environment."""
    return isinstance(value, str) and value.startswith(_REFERENCE)


def number(fields: dict[str, Any], name: str, place: str, notes: Notes) -> Decimal | str | None:
    """A number from 0, or the reference to one; anything else is noted."""
    value = fields.get(name)
    if value is None or is_reference(value):
        return text(value)
    try:
        parsed = Decimal(str(value).replace("_", ""))
    except InvalidOperation:
        parsed = Decimal(-1)
    if parsed.is_finite() and 0 <= parsed < 10**12:
        return parsed
    notes.add(join(place, name), "must be a number; left out")
    return None


def whole_number(fields: dict[str, Any], name: str, place: str, notes: Notes) -> int | str | None:
    """A whole number from 1, or the reference to one; anything else is noted."""
    value = number(fields, name, place, notes)
    if isinstance(value, Decimal):
        if value < 1:
            notes.add(join(place, name), "must be a whole number from 1; left out")
            return None
        return int(value)
    return value


def duration(fields: dict[str, Any], name: str, place: str, notes: Notes) -> str | None:
    """A duration above 0, such as `30s`, or the reference to one; anything else is noted."""
    value = number(fields, name, place, notes)
    if isinstance(value, Decimal):
        if value < Decimal("0.001"):
            notes.add(join(place, name), "must be more than 0; left out")
            return None
        return f"{value.normalize():f}s"
    return value


def yes(value: Any) -> bool:
    """Whether a flag is set."""
    return isinstance(value, str) and value.lower() in ("true", "yes", "on", "1")


def references(value: Any) -> Iterator[str]:
    """The names of all variables that a document refers to."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from references(item)
    elif is_reference(value):
        yield _variable_name(value)


class Secrets:
    """Turns literal secrets into references; equal secrets share one."""

    def __init__(self, notes: Notes, reserved: Iterable[str]) -> None:
        """`reserved` are the names of variables already in use."""
        self._notes = notes
        self._reserved = frozenset(reserved)
        self._names: dict[str, str] = {}

    def reference(self, value: Any, preferred: str, place: str) -> str | None:
        """The text for a secret in the config; None for an empty value or a placeholder."""
        if is_reference(value) or not isinstance(value, str):
            return text(value)
        if value.strip().lower() in _PLACEHOLDERS:
            return None
        if value not in self._names:
            name = _variable(preferred)
            while name in self._names.values() or name in self._reserved:
                name = _next(name)
            self._names[value] = name
        name = self._names[value]
        self._notes.add(place, f"a secret in the file; put it into the environment or .env as {name}")
        return f"${{{name}}}"


def _variable_name(reference: str) -> str:
    """The name of the variable, made valid for a shell."""
    name = re.sub(r"\W", "_", reference.removeprefix(_REFERENCE).strip(), flags=re.ASCII)[:100]
    return name if name and not name[0].isdigit() else f"VARIABLE_{name}"


def _variable(preferred: str) -> str:
    name = re.sub(r"[^A-Z0-9]+", "_", preferred.upper(), flags=re.ASCII).strip("_")
    return name if name[:1].isalpha() else f"UPSTREAM_{name}"


def _next(name: str) -> str:
    stem, _, count = name.rpartition("_")
    return f"{stem}_{int(count) + 1}" if count.isdecimal() else f"{name}_2"
