"""The figures as a table of Markdown, written between two marks of a page."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gateway.cli.router.evaluation import EvaluationRow

BEGIN: Final = "<!-- figures: written by `sluice train-router --tables DIR --report` -->"
END: Final = "<!-- end of figures -->"
_HEAD: Final = (
    "| router | labels | APGR [95 %] | CPT50 | CPT80 | 95 % quality | ten draws |\n"
    "| --- | --- | --- | --- | --- | --- | --- |\n"
)


class NoMarks(Exception):
    """The page has no place for the figures."""


def table(title: str, lines: Iterable[EvaluationRow]) -> str:
    """One table's lines under its title."""
    return f"{title}\n\n{_HEAD}" + "".join(map(_row, lines))


def _row(line: EvaluationRow) -> str:
    one = line.measured
    draws = (
        ""
        if not line.draws
        else (f"{sum(line.draws) / len(line.draws):.3f} ({min(line.draws):.3f} to {max(line.draws):.3f})")
    )
    shares = " | ".join(f"{100 * share:.1f} %" for share in (one.cpt50, one.cpt80, line.near95))
    return f"| {line.router} | {line.labels} | {one} | {shares} | {draws} |\n"


def write(page: Path, tables: str) -> None:
    """Put the tables between the page's marks; NoMarks when it has none."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise NoMarks(f"{page} has no line {BEGIN}")
    page.write_text(f"{before}{BEGIN}\n\n{tables}\n{END}{after}", encoding="utf-8")
