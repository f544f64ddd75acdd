"""A screen of `sluice top` that is longer than the terminal: it scrolls and says how much is hidden."""

from collections.abc import Callable, Iterator
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

_DOWN: Final = (b"j", b"\x1b[B", b"\x1bOB")
_UP: Final = (b"k", b"\x1b[A", b"\x1bOA")
_PAGE_DOWN: Final = (b" ", b"\x1b[6~")
_PAGE_UP: Final = (b"b", b"\x1b[5~")


class Scroll:
    """How far the screen is scrolled, by keys; `redraw` is called after each change."""

    def __init__(self) -> None:
        self.first = 0  # line on top
        self.page = 1  # lines that fit
        self.redraw: Callable[[], None] = lambda: None

    def press(self, keys: bytes) -> None:
        """Take what came from the keyboard: j, k, the arrows, space and b, the page keys, g and G."""
        lines = sum(keys.count(key) for key in _DOWN) - sum(keys.count(key) for key in _UP)
        pages = sum(keys.count(key) for key in _PAGE_DOWN) - sum(keys.count(key) for key in _PAGE_UP)
        before = self.first
        if b"g" in keys:
            self.first = 0
        if b"G" in keys:
            self.first = 1_000_000  # drawing corrects it
        self.first = max(0, self.first + lines + pages * self.page)
        if self.first != before:
            self.redraw()


class Scrolled:
    """Draws as many lines as the terminal has, from `scroll.first` on."""

    def __init__(self, whole: RenderableType, busy: RenderableType, scroll: Scroll) -> None:
        """`busy` is drawn when `whole` does not fit: the same without rows of zeroes."""
        self._whole, self._busy, self._scroll = whole, busy, scroll

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment | Text]:
        """rich: the visible lines, and how many more there are."""
        height = options.height or console.height
        free = options.update(height=None)
        lines = console.render_lines(self._whole, free, pad=False)
        if len(lines) > height:
            lines = console.render_lines(self._busy, free, pad=False)
        if len(lines) <= height:
            self._scroll.first = 0
            yield from _joined(lines)
            return
        page = max(1, height - 1)
        self._scroll.page = page
        first = self._scroll.first = min(self._scroll.first, len(lines) - page)
        yield from _joined(lines[first : first + page])
        yield Segment.line()
        below = len(lines) - first - page
        more = f"... {below} more line{'' if below == 1 else 's'}" if below else "end"
        yield Text(f"{more} (j/k or arrows scroll, q quits)", style="dim", end="")


def _joined(lines: list[list[Segment]]) -> Iterator[Segment]:
    for i, line in enumerate(lines):
        if i:
            yield Segment.line()
        yield from line
