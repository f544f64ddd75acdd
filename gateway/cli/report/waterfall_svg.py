"""The way from the baseline to the actual cost as a picture: a waterfall in SVG, for light and dark."""

from collections.abc import Iterator
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from gateway.cli.report.messages import Language, word
from gateway.cli.report.rounding import Rounding, percent
from gateway.reporting.figures import ReportFigures
from gateway.usage.savings_breakdown import BATCH

_WIDTH: Final = 780
_LEFT: Final = 220  # where bars begin; labels stand before it
_RIGHT: Final = 170  # room for the amount behind the longest bar
_TOP: Final = 72
_ROW: Final = 38
_BAR: Final = 22
_BOTTOM: Final = 20
_STYLE: Final = """
    text { font-family: system-ui, "Noto Sans", "Noto Sans KR", "Apple SD Gothic Neo", sans-serif }
    text { font-size: 13px }
    .back { fill: #ffffff } .title { fill: #1b2733; font-weight: 600; font-size: 16px }
    .note, .share { fill: #5b6a79 } .label, .amount { fill: #1b2733 } .axis { stroke: #c6ced6 }
    .total { fill: #5d6f82 } .less { fill: #1f8a70 } .more { fill: #c8553d }
    @media (prefers-color-scheme: dark) {
      .back { fill: #14191f } .title, .label, .amount { fill: #e6edf3 } .note, .share { fill: #9aa7b4 }
      .axis { stroke: #3a4652 } .total { fill: #8294a6 } .less { fill: #35b597 } .more { fill: #e5755d }
    }
"""


class _Bar(NamedTuple):
    """From one amount to another; `kind` is its class in the style."""

    label: str
    begins: int
    ends: int
    kind: str
    amount: str
    share: str


def svg(report: ReportFigures, language: Language) -> str:
    """The picture, as the text of a file."""
    bars = list(_bars(report, language))
    most = max([1, *(max(bar.begins, bar.ends) for bar in bars)])
    height = _TOP + _ROW * len(bars) + _BOTTOM
    period = report.period
    days = word("period", language, first=period.first, last=period.last, days=period.days, zone=period.zone)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" lang="{language}">',
        f"  <title>{escape(word('chart', language))}</title>",
        f"  <style>{_STYLE}  </style>",
        f'  <rect class="back" width="{_WIDTH}" height="{height}" rx="6"/>',
        _text(20, 30, "title", word("chart", language)),
        _text(20, 50, "note", days),
        f'  <line class="axis" x1="{_LEFT}" x2="{_LEFT}" y1="{_TOP - 6}" y2="{height - _BOTTOM + 4}"/>',
    ]
    for number, bar in enumerate(bars):
        lines += _drawn(bar, _TOP + _ROW * number, most, last=number == len(bars) - 1)
    return "\n".join([*lines, "</svg>", ""])


def _bars(report: ReportFigures, language: Language) -> Iterator[_Bar]:
    money = Rounding(max(report.baseline, report.actual))
    whole = report.baseline

    def total(name: str, nanos: int) -> _Bar:
        amount = money.text(money.units(nanos))
        return _Bar(word(name, language), 0, nanos, "total", amount, percent(nanos, whole))

    yield total("baseline", whole)
    level = whole
    steps = money.steps(level, [part.saved for part in report.parts])
    for part, units in zip(report.parts, steps, strict=True):
        if part.saved or part.name != BATCH:  # which moves calls, and no money
            kind = "more" if part.saved < 0 else "less"
            sign = "+" if units < 0 else ""
            share = percent(-part.saved, whole)
            label = word(part.name, language)
            yield _Bar(label, level, level - part.saved, kind, sign + money.text(-units), share)
        level -= part.saved
    yield total("actual", report.actual)


def _drawn(bar: _Bar, top: int, most: int, *, last: bool) -> Iterator[str]:
    low, high = sorted((bar.begins, bar.ends))
    begins, ends = _x(low, most), _x(high, most)
    width = max(1.5, ends - begins)
    middle = top + _BAR / 2 + 4.5
    yield _text(_LEFT - 12, middle, "label", bar.label, anchor="end")
    yield (
        f'  <rect class="{bar.kind}" x="{begins:.1f}" y="{top}" width="{width:.1f}" height="{_BAR}" rx="2"/>'
    )
    if not last:
        level = _x(bar.ends, most)
        yield (
            f'  <line class="axis" x1="{level:.1f}" x2="{level:.1f}" y1="{top + _BAR}" y2="{top + _ROW}" '
            f'stroke-dasharray="2 2"/>'
        )
    yield (
        f'  <text x="{begins + width + 8:.1f}" y="{middle}">'
        f'<tspan class="amount">{escape(bar.amount)}</tspan>'
        f'<tspan class="share" dx="8">{escape(bar.share)}</tspan></text>'
    )


def _x(nanos: int, most: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * max(0, nanos) / most


def _text(x: float, y: float, kind: str, text: str, anchor: str = "start") -> str:
    return f'  <text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
