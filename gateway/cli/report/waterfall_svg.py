"""A waterfall chart of the savings: from the baseline cost to the actual cost, for light and dark pages."""

from collections.abc import Iterator
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from gateway.cli.report.messages import Language, word
from gateway.cli.report.rounding import Rounding, percent
from gateway.reporting.figures import ReportFigures
from gateway.reporting.svg import document, element
from gateway.usage.savings_breakdown import BATCH

_WIDTH: Final = 780
_LEFT: Final = 220  # where bars begin, right of their labels
_RIGHT: Final = 170  # space for the amount after the longest bar
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
    """A bar from one amount to another, in nano-USD; `kind` is its class in the stylesheet."""

    label: str
    begins: int
    ends: int
    kind: str
    amount: str
    share: str


def svg(report: ReportFigures, language: Language) -> str:
    """The chart as the text of an SVG file."""
    bars = list(_bars(report, language))
    longest = max([1, *(max(bar.begins, bar.ends) for bar in bars)])
    height = _TOP + _ROW * len(bars) + _BOTTOM
    period = report.period
    days = word("period", language, first=period.first, last=period.last, days=period.days, zone=period.zone)
    title = word("chart", language)
    parts = [
        element("title", escape(title)),
        element("style", f"{_STYLE}  "),
        element("rect", class_="back", width=_WIDTH, height=height, rx=6),
        _text(20, 30, "title", title),
        _text(20, 50, "note", days),
        element("line", class_="axis", x1=_LEFT, x2=_LEFT, y1=_TOP - 6, y2=height - _BOTTOM + 4),
    ]
    for number, bar in enumerate(bars):
        parts += _drawn(bar, _TOP + _ROW * number, longest, last=number == len(bars) - 1)
    return document(
        (f"  {part}" for part in parts),
        viewBox=f"0 0 {_WIDTH} {height}",
        width=_WIDTH,
        height=height,
        role="img",
        lang=language,
    )


def _bars(report: ReportFigures, language: Language) -> Iterator[_Bar]:
    money = Rounding(max(report.baseline, report.actual))
    baseline = report.baseline

    def total(name: str, nanos: int) -> _Bar:
        amount = money.text(money.units(nanos))
        return _Bar(word(name, language), 0, nanos, "total", amount, percent(nanos, baseline))

    yield total("baseline", baseline)
    level = baseline
    steps = money.steps(level, [part.saved for part in report.parts])
    for part, units in zip(report.parts, steps, strict=True):
        if part.saved or part.name != BATCH:  # batching moves calls and saves no money
            kind = "more" if part.saved < 0 else "less"
            sign = "+" if units < 0 else ""
            share = percent(-part.saved, baseline)
            name = word(part.name, language)
            yield _Bar(name, level, level - part.saved, kind, sign + money.text(-units), share)
        level -= part.saved
    yield total("actual", report.actual)


def _drawn(bar: _Bar, top: int, longest: int, *, last: bool) -> Iterator[str]:
    low, high = sorted((bar.begins, bar.ends))
    begins, ends = _x(low, longest), _x(high, longest)
    width = max(1.5, ends - begins)
    middle = top + _BAR / 2 + 4.5
    yield _text(_LEFT - 12, middle, "label", bar.label, anchor="end")
    yield element("rect", class_=bar.kind, x=begins, y=top, width=width, height=_BAR, rx=2)
    if not last:
        x = _x(bar.ends, longest)
        yield element("line", class_="axis", x1=x, x2=x, y1=top + _BAR, y2=top + _ROW, stroke_dasharray="2 2")
    amount = element("tspan", escape(bar.amount), class_="amount")
    share = element("tspan", escape(bar.share), class_="share", dx=8)
    yield element("text", amount + share, x=begins + width + 8, y=middle)


def _x(nanos: int, longest: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * max(0, nanos) / longest


def _text(x: float, y: float, kind: str, words: str, anchor: str = "start") -> str:
    return element("text", escape(words), class_=kind, x=x, y=y, text_anchor=anchor)
