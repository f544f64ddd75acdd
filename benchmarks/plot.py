"""`python -m benchmarks.plot`: draws docs/benchmarks.svg from the tables of benchmarks/results.md."""

import math
from dataclasses import dataclass
from html import escape
from pathlib import Path

from benchmarks.arguments import arguments
from benchmarks.contender import ROOT

PAGE, PICTURE = ROOT / "benchmarks" / "results.md", ROOT / "docs" / "benchmarks.svg"
OURS = "sluice"  # how the names of the rows begin that stand out

# Load, column, and the panel's title.
PANELS = [
    ("chat-32", "CPU µs/request", "CPU of a chat call, µs (32 connections)"),
    ("stream-100", "CPU µs/chunk", "CPU of a chunk, µs (100 streams)"),
    ("quiet", "added p50 ms", "added latency, ms (median, a tenth of the full load)"),
    ("stream-100", "memory MB", "memory, MB (100 streams)"),
]
LEGEND = (
    "A dot is the median over the rounds, the line through it their range. Logarithmic axes, less is better."
)
WIDTH, ROW, NAME, PLOT, HEAD = 480, 22, 112, 270, 58  # pixels; of a panel


@dataclass(frozen=True, slots=True)
class Mark:
    """One contender's figure: the median over the rounds, and their range."""

    name: str
    middle: float
    low: float
    high: float


def marks(page: str, load: str, column: str) -> list[Mark]:
    """A load's figures by contender, the least first."""
    found, place = [], 0
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if cells[:2] == ["load", "contender"]:
            place = cells.index(column) if column in cells else 0
        elif cells[0] == load and place:
            middle, _, span = cells[place].replace(",", "").partition(" ")
            low, _, high = span.strip("()").partition("..")
            found.append(Mark(cells[1], float(middle), float(low or middle), float(high or middle)))
    return sorted((one for one in found if one.low > 0), key=lambda one: one.middle)


def panel(title: str, found: list[Mark], left: float, top: float) -> list[str]:
    """A panel's elements: a logarithmic axis, for each contender a dot and the line of its range."""
    first = math.floor(math.log10(min(one.low for one in found)))
    last = max(first + 1, math.ceil(math.log10(max(one.high for one in found))))
    bottom = top + HEAD + ROW * len(found)

    def x(value: float) -> float:
        return left + NAME + PLOT * (math.log10(value) - first) / (last - first)

    parts = [text(left, top + 20, title, "start", weight=600)]
    for power in range(first, last + 1):
        at = x(10**power)
        parts.append(line(at, top + HEAD - 12, at, bottom, "#dddddd", 1))
        parts.append(text(at, top + HEAD - 18, f"{10**power:,g}", "middle", "#777777"))
    for i, one in enumerate(found):
        y = top + HEAD + ROW * i + ROW / 2
        colour = "#c2410c" if one.name.startswith(OURS) else "#475569"
        weight = 600 if one.name.startswith(OURS) else 400
        parts.append(text(left + NAME - 10, y + 4, one.name, "end", colour, weight))
        parts.append(line(x(one.low), y, x(one.high), y, colour, 3))
        parts.append(f'<circle cx="{x(one.middle):.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>')
        parts.append(text(left + NAME + PLOT + 12, y + 4, f"{one.middle:,g}", "start", colour, weight))
    return parts


def text(x: float, y: float, words: str, anchor: str, colour: str = "#1f2937", weight: int = 400) -> str:
    """Some words."""
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {where} fill="{colour}" font-weight="{weight}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> str:
    """A straight line."""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'


def draw(page: str) -> str:
    """The picture, panels two by two. Raises ValueError where the page has none of their figures."""
    drawn = [(title, found) for load, column, title in PANELS if (found := marks(page, load, column))]
    if not drawn:
        raise ValueError("the page has no figures to draw")
    parts, top = [], 0.0
    for i in range(0, len(drawn), 2):
        for j, (title, found) in enumerate(drawn[i : i + 2]):
            parts += panel(title, found, 16 + WIDTH * j, top)
        top += HEAD + ROW * max(len(found) for _, found in drawn[i : i + 2]) + 18
    parts.append(text(16, top + 6, LEGEND, "start", "#777777"))
    top += 24
    size = f'width="{2 * WIDTH}" height="{top:.0f}" viewBox="0 0 {2 * WIDTH} {top:.0f}"'
    font = 'font-family="system-ui, sans-serif" font-size="13"'
    back = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>', back, *parts, "</svg>", ""])


def write(page: Path = PAGE, picture: Path = PICTURE) -> None:
    """Draw the page's figures into the picture."""
    picture.write_text(draw(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    arguments(__doc__)
    write()
