"""Reads the file of `keys_file`: one key a line as JSON, or a CSV table; the same fields as `keys`.

Every scalar becomes text, as the config's YAML has it, so that the schema reads both alike. References to
environment variables are not expanded. No message quotes a value, which may be a key.
"""

import csv
import io
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from gateway.config.files import UnreadableError, read_text
from gateway.config.problems import Problem, plain, printable

MAX_BYTES: Final = 64 * 1024 * 1024
_LIMITS: Final = ("rpm", "tpm", "concurrency", "usd_per_day")
_LISTS: Final = ("models", "engine_fields")
_ENTRY: Final = re.compile(r"\bkeys\[(\d+)\]\.?")

_FOUND: Final = re.compile(r'; found ".*?"(?=;|$)')
"""What a message quotes of a value; in a table whose cells have slipped, that is a key."""


class FileKeys(NamedTuple):
    """The entries of a file as the config's document has them, and the line of each."""

    file: str
    entries: list[Any]
    lines: list[int]
    problems: list[Problem]

    def renamed(self, problem: Problem, before: int) -> Problem:
        """The problem with file and line instead of the entries' numbers, which follow `before` others."""

        def place(match: "re.Match[str]", end: str) -> str:
            number = int(match[1]) - before
            return (
                match[0] if number < 0 else f"{self.file} line {self.lines[number]}{end if match[0][-1] == '.' else ''}"
            )

        path = _ENTRY.sub(lambda match: place(match, ": "), problem.path, count=1)
        message = _ENTRY.sub(lambda match: place(match, " "), problem.message)
        return Problem(path, message if path == problem.path else _FOUND.sub("; found other text", message))


def read_keys(path: Path) -> FileKeys:
    """The keys of the file; what is wrong with a line is a problem, and the line is left out."""
    file = printable(str(path))
    try:
        text = read_text(path, MAX_BYTES)
    except UnreadableError as error:
        return FileKeys(file, [], [], [Problem("keys_file", f"{file}: {error}")])
    rows = _csv(text, file) if path.suffix.lower() == ".csv" else _json_lines(text, file)
    return FileKeys(file, *rows)


def _json_lines(text: str, file: str) -> tuple[list[Any], list[int], list[Problem]]:
    entries: list[Any] = []
    lines: list[int] = []
    problems: list[Problem] = []
    decode = msgspec.json.Decoder().decode
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry = decode(line)
        except (msgspec.DecodeError, RecursionError):
            entry = None
        if isinstance(entry, dict):
            entries.append(_as_text(entry))
            lines.append(number)
        else:
            problems.append(Problem(f"{file} line {number}", "not a JSON object"))
    return entries, lines, problems


def _csv(text: str, file: str) -> tuple[list[Any], list[int], list[Problem]]:
    entries: list[Any] = []
    lines: list[int] = []
    problems: list[Problem] = []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    names: list[str] = []
    try:
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if not names:
                names = [cell.strip() for cell in row]
            elif len(row) != len(names):
                wrong = f"has {len(row)} cells; the first line names {len(names)} columns"
                problems.append(Problem(f"{file} line {reader.line_num}", wrong))
            else:
                entries.append(_from_cells(names, row))
                lines.append(reader.line_num)
    except csv.Error as error:
        problems.append(Problem(f"{file} line {reader.line_num}", f"not CSV: {plain(str(error))}"))
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        problems.append(Problem(f"{file} line 1", f"names a column twice: {plain(', '.join(sorted(repeated)))}"))
    return entries, lines, problems


def _from_cells(names: list[str], row: list[str]) -> dict[str, Any]:
    """The entry of a row; an empty cell is a field that is absent."""
    entry: dict[str, Any] = {}
    limits: dict[str, str] = {}
    for name, cell in zip(names, row, strict=True):
        value = cell.strip()
        if not value:
            continue
        if name in _LIMITS:
            limits[name] = value
        else:
            entry[name] = value.split() if name in _LISTS else value
    return entry | {"limits": limits} if limits else entry


def _as_text(value: Any) -> Any:
    """The value with every scalar as the text that YAML would have."""
    if isinstance(value, dict):
        return {name: _as_text(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_as_text(inner) for inner in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if value is None or isinstance(value, str) else f"{value}"
