"""Renders the Markdown page as text for a terminal: no figure is cut, however narrow it is."""

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from rich.console import Console
from rich.markdown import Markdown

_CUT: Final = "…"
"""Where rich cuts a word that is wider than its column."""


def as_text(page: str, width: int) -> str:
    """The page in lines of at most `width` columns; a table that does not fit becomes a list of its rows."""
    drawn = _drawn("\n".join(_narrowed(page.splitlines(), width)), width)
    return "".join(f"{line.rstrip()}\n" for line in drawn.splitlines())


def _narrowed(lines: Iterable[str], width: int) -> Iterator[str]:
    for is_table, group in groupby(lines, lambda line: line.startswith("|")):
        block = list(group)
        yield from block if not is_table or _fits("\n".join(block), width) else _as_list(block)


def _fits(table: str, width: int) -> bool:
    return _drawn(table, width).count(_CUT) <= table.count(_CUT)


def _drawn(markdown: str, width: int) -> str:
    drawn = io.StringIO()
    Console(file=drawn, width=width, color_system=None, highlight=False).print(Markdown(markdown))
    return drawn.getvalue()


def _as_list(table: Sequence[str]) -> Iterator[str]:
    titles = _cells(table[0])
    for row in table[2:]:
        first, *others = _cells(row)
        values = (f"{title}: {value}" for title, value in zip(titles[1:], others, strict=True) if value)
        yield f"- {first}; {', '.join(values)}"


def _cells(row: str) -> list[str]:
    inner = row.strip().removeprefix("|").removesuffix("|").replace("\\|", "\0")
    return [cell.strip().replace("\0", "|") for cell in inner.split("|")]
