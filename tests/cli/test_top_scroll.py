"""`sluice top` in a terminal of 24 lines: nothing is cut in silence."""

import io

import pytest
from rich.console import Console
from rich.text import Text
from test_top_picture import ANSWERS, GROWTH

from gateway.cli.top.scroll import Scroll, Scrolled
from gateway.cli.top.view_model import CounterRow, view_model, without_zeroes

LINES = [f"line {number}" for number in range(60)]


def drawn(scroll: Scroll, height: int = 24, busy: list[str] = LINES) -> list[str]:
    console = Console(file=io.StringIO(), width=80, height=height, force_terminal=False)
    console.print(Scrolled(Text("\n".join(LINES)), Text("\n".join(busy)), scroll))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def test_it_says_how_much_is_hidden() -> None:
    lines = drawn(Scroll())
    assert len(lines) == 24
    assert lines[:23] == LINES[:23]
    assert lines[23].startswith("... 37 more lines (j/k or arrows")


@pytest.mark.parametrize(
    ("keys", "first"),
    [
        (b"j", 1),
        (b"jjj", 3),
        (b"\x1b[B\x1b[B", 2),
        (b"jjk", 1),
        (b"k", 0),
        (b"\x1bOB", 1),
        (b"G", 37),
        (b"x", 0),
    ],
)
def test_keys_scroll(keys: bytes, first: int) -> None:
    scroll, redrawn = Scroll(), []
    scroll.redraw = lambda: redrawn.append(1)
    scroll.press(keys)
    assert drawn(scroll)[0] == LINES[first]
    assert bool(redrawn) == bool(first)


def test_pages_and_ends() -> None:
    scroll = Scroll()
    drawn(scroll)
    scroll.press(b" ")
    assert drawn(scroll)[0] == "line 23"
    scroll.press(b"\x1b[6~")
    assert drawn(scroll)[0] == "line 37"
    assert drawn(scroll)[-1].startswith("end (")
    scroll.press(b"b")
    assert drawn(scroll)[0] == "line 14"
    scroll.press(b"g")
    assert drawn(scroll)[0] == "line 0"


def test_what_fits_is_drawn_whole() -> None:
    scroll = Scroll()
    scroll.press(b"jjj")
    assert drawn(scroll, height=60) == LINES
    assert scroll.first == 0


def test_rows_of_zeroes_go_first() -> None:
    assert drawn(Scroll(), busy=LINES[:20]) == LINES[:20]
    shown = view_model(ANSWERS, GROWTH, 4.0, GROWTH)
    shown = shown._replace(cache=[CounterRow(("hit",), 1.0, 3), CounterRow(("miss",), 0.0, 5)])
    busy = without_zeroes(shown)
    assert [row.labels for row in busy.cache] == [("hit",)]
    assert busy.upstreams == shown.upstreams  # its breaker is half-open
    assert busy.outcomes == shown.outcomes  # with what has been so far
    assert all(row.rate for row in busy.models)
