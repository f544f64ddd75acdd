"""Renders the figures as Markdown tables, and writes them between two markers of a page."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from gateway.cli.router.evaluation import EvaluationRow, Strength

BEGIN: Final = "<!-- figures: written by `sluice train-router --tables DIR --report` -->"
END: Final = "<!-- end of figures -->"
_HEAD: Final = (
    "| router | labels | APGR [95 %] | less length [95 %] | CPT50 | CPT80 | 95 % quality | ten draws |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |\n"
)


class NoMarkers(Exception):
    """The page has no markers for the figures."""


def table(title: str, lines: Iterable[EvaluationRow]) -> str:
    """Render one table under its title."""
    return f"{title}\n\n{_HEAD}" + "".join(map(_row, lines))


def _row(line: EvaluationRow) -> str:
    apgr, draws, lead = line.measured, "", ""
    if line.draws:
        draws = f"{sum(line.draws) / len(line.draws):.3f} ({min(line.draws):.3f} to {max(line.draws):.3f})"
    if line.lead is not None:
        lead = "[{:+.3f}, {:+.3f}]".format(*line.lead)
    shares = " | ".join(f"{100 * share:.1f} %" for share in (apgr.cpt50, apgr.cpt80, line.near95))
    return f"| {line.router} | {line.labels} | {apgr} | {lead} | {shares} | {draws} |\n"


def strengths(names: Sequence[str], lines: Iterable[Strength]) -> str:
    """Render the comparison of strengths."""
    head = f"| spread | {' | '.join(names)} | worst, less length |\n" + "| --- " * (len(names) + 2) + "|\n"
    return head + "".join(
        f"| {line.spread} | {' | '.join(f'{apgr:.3f}' for apgr in line.apgr)} | {line.worst:+.3f} |\n" for line in lines
    )


def write(page: Path, tables: str) -> None:
    """Replace the text between the page's markers with the tables. Raises NoMarkers."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise NoMarkers(f"{page} has no line {BEGIN}")
    page.write_text(f"{before}{BEGIN}\n\n{tables}\n{END}{after}", encoding="utf-8")
