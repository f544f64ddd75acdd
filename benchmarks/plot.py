"""`python -m benchmarks.plot`: draws docs/benchmarks.svg from the tables of benchmarks/results.md."""

import math
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.arguments import arguments
from benchmarks.contender import ROOT
from gateway.reporting.svg import document, element

PAGE, PICTURE = ROOT / "benchmarks" / "results.md", ROOT / "docs" / "benchmarks.svg"
HIGHLIGHTED = "sluice"  # rows whose names begin with this stand out

# Load, column, and the panel's title.
PANELS = [
    ("chat-32", "CPU µs/request", "CPU of a chat call, µs (32 connections)"),
    ("stream-100", "CPU µs/chunk", "CPU of a chunk, µs (100 streams)"),
    ("quiet", "added p50 ms", "added latency, ms (median, a tenth of the full load)"),
    ("stream-100", "memory MB", "memory, MB (100 streams)"),
]
LEGEND = "A dot is the median over the rounds, the line through it their range. Logarithmic axes, less is better."
WIDTH, ROW, NAME, PLOT, HEAD = 480, 22, 112, 270, 58  # pixels; of a panel
DARK, GREY, ACCENT = "#475569", "#777777", "#c2410c"


@dataclass(frozen=True, slots=True)
class Mark:
    """A contender's figure: the median over the rounds, and their range."""

    name: str
    middle: float
    low: float
    high: float


def marks(page: str, load: str, column: str) -> list[Mark]:
    """A load's figures by contender, smallest median first."""
    result, index = [], 0
    for row in page.splitlines():
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        if cells[:2] == ["load", "contender"]:
            index = cells.index(column) if column in cells else 0
        elif cells[0] == load and index:
            middle, _, span = cells[index].replace(",", "").partition(" ")
            low, _, high = span.strip("()").partition("..")
            result.append(Mark(cells[1], float(middle), float(low or middle), float(high or middle)))
    return sorted((mark for mark in result if mark.low > 0), key=lambda mark: mark.middle)


def panel(title: str, shown: list[Mark], left: float, top: float) -> list[str]:
    """A panel's elements: a logarithmic axis, and a dot and a range line per contender."""
    first = math.floor(math.log10(min(mark.low for mark in shown)))
    last = max(first + 1, math.ceil(math.log10(max(mark.high for mark in shown))))
    bottom = top + HEAD + ROW * len(shown)

    def x(value: float) -> float:
        return left + NAME + PLOT * (math.log10(value) - first) / (last - first)

    parts = [text(left, top + 20, title, "start", weight=600)]
    for power in range(first, last + 1):
        at = x(10**power)
        parts.append(line(at, top + HEAD - 12, at, bottom, "#dddddd", 1))
        parts.append(text(at, top + HEAD - 18, f"{10**power:,g}", "middle", GREY))
    for i, mark in enumerate(shown):
        y = top + HEAD + ROW * i + ROW / 2
        colour, weight = (ACCENT, 600) if mark.name.startswith(HIGHLIGHTED) else (DARK, 400)
        parts.append(text(left + NAME - 10, y + 4, mark.name, "end", colour, weight))
        parts.append(line(x(mark.low), y, x(mark.high), y, colour, 3))
        parts.append(element("circle", cx=x(mark.middle), cy=y, r=4.5, fill=colour))
        parts.append(text(left + NAME + PLOT + 12, y + 4, f"{mark.middle:,g}", "start", colour, weight))
    return parts


def text(x: float, y: float, words: str, anchor: str, colour: str = "#1f2937", weight: int = 400) -> str:
    """A text element."""
    return element("text", escape(words), x=x, y=y, text_anchor=anchor, fill=colour, font_weight=weight)


def line(x1: float, y1: float, x2: float, y2: float, colour: str, width: int) -> str:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour, stroke_width=width)


def draw(page: str) -> str:
    """The picture, panels two by two. Raises ValueError where the page has none of their figures."""
    drawn = [(title, shown) for load, column, title in PANELS if (shown := marks(page, load, column))]
    if not drawn:
        raise ValueError("the page has no figures to draw")
    parts, top, left = [element("rect", width="100%", height="100%", fill="#ffffff")], 0.0, 16.0
    for i in range(0, len(drawn), 2):
        for j, (title, shown) in enumerate(drawn[i : i + 2]):
            parts += panel(title, shown, left + WIDTH * j, top)
        top += HEAD + ROW * max(len(shown) for _, shown in drawn[i : i + 2]) + 18
    parts.append(text(left, top + 6, LEGEND, "start", GREY))
    width, height = 2 * WIDTH, int(top + 24)
    size = {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"}
    return document(parts, **size, font_family="system-ui, sans-serif", font_size=13)


def write(page: Path = PAGE, picture: Path = PICTURE) -> None:
    """Draw the page's figures into the picture."""
    picture.write_text(draw(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    arguments(__doc__)
    write()
