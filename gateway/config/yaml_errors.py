"""Explains what is wrong with a text that is not YAML: line, column and what to do, never a value."""

from collections.abc import Iterator
from typing import Final

import yaml

from gateway.config.problems import quoted

# PyYAML's messages for these say too little, or quote the text, which may be a key pasted without quotes.
_CLEARER: Final = {
    "found undefined alias": "text that begins with * is an alias without its anchor; put it in quotes",
    "second occurrence": "an anchor (text that begins with &) of this name exists already",
    "found undefined tag handle": "text that begins with ! is a tag; put it in quotes",
    "duplicate tag handle": "a tag directive is given twice",
    "but found another document": "a second document begins here; a config is one document",
    "found character '\\t'": "a tab; indent with spaces",
    "found character": "text that begins with this character needs quotes",
    "expected ',' or '}', but got '{'": 'a "{" here; inside braces, ${NAME} needs quotes: "${NAME}"',
    "expected ',' or '}'": "inside braces, text with this character needs quotes",
    "expected ',' or ']'": "inside brackets, text with this character needs quotes",
    "mapping values are not allowed here": 'a ":" here: wrong indentation, or a value that needs quotes?',
    "sequence entries are not allowed here": 'a "-" here: wrong indentation, or a value that needs quotes?',
    "expected <block end>, but found '?'": "a field beside list items, which begin with -",
    "expected <block end>, but found '-'": "a list item, which begins with -, beside fields",
}


def at(line: int, column: int, message: str) -> str:
    """The message with its place; line and column count from 0 as PyYAML's marks do."""
    return f"line {line + 1}, column {column + 1}: {message}"


def explained(error: yaml.MarkedYAMLError, text: str) -> str:
    """What is wrong with `text`, on one line."""
    original = error.problem or error.context or "not valid YAML"
    mark, context = error.problem_mark or error.context_mark, error.context_mark
    if mark is None:
        return original
    if context is not None and "quoted scalar" in (error.context or ""):
        return at(context.line, context.column, "a quote opens here and is not closed")
    if context is not None and "flow" in (error.context or "") and mark.line > context.line:
        opened = "{" if "mapping" in (error.context or "") else "["
        return at(context.line, context.column, f"this {opened} is not closed by line {mark.line + 1}")
    if original.startswith(("mapping values", "sequence entries", "expected <block end>", "expected '<doc")):
        found = _misplaced(text.splitlines(), mark.line)
        if found is not None:
            return found
    message = next((clearer for start, clearer in _CLEARER.items() if original.startswith(start)), original)
    return at(mark.line, mark.column, message)


def _misplaced(lines: list[str], wrong: int) -> str | None:
    """What is wrong with the indentation of a line, or with the field above it."""
    if wrong >= len(lines):
        return None
    beside: list[tuple[int, int]] = []  # the columns in use above the line, each with its last line
    above = -1
    for number, columns in _columns(lines[:wrong]):
        beside = [entry for entry in beside if entry[0] < columns[0]]
        beside += [(column, number) for column in columns]
        above = number
    indent = len(lines[wrong]) - len(lines[wrong].lstrip(" "))
    if not beside:
        return None
    if any(column == indent for column, _ in beside):
        return _without_colon(lines[above], above)
    column, number = next((entry for entry in beside if entry[0] > indent), beside[-1])
    return f"line {wrong + 1}: indented by {indent}; the lines beside it (line {number + 1}) by {column}"


def _columns(lines: list[str]) -> Iterator[tuple[int, list[int]]]:
    """The lines with content: number and the columns where a list item or a field begins."""
    for number, line in enumerate(lines):
        content = line.lstrip(" ")
        if not content or content.startswith(("#", "---", "%")):
            continue
        columns = [len(line) - len(content)]
        while content.startswith("- "):
            content = content[1:].lstrip(" ")
            columns.append(len(line) - len(content))
        yield number, columns


def _without_colon(line: str, number: int) -> str | None:
    field = line.strip().removeprefix("- ").split("#")[0].strip()
    if ": " in field or field.endswith(":") or field.startswith(("{", "[", '"', "'")):
        return None
    name = field.replace(":", " ").split(" ")[0]
    shown = f"; write {quoted(name)[1:-1]}: value" if name.isidentifier() and len(name) < 30 else ""
    return f"line {number + 1}: a field without a colon and a space after its name{shown}"
