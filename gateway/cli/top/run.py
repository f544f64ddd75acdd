"""`sluice top`: polls the admin port and draws the result."""

import argparse
import asyncio
import contextlib
import datetime
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live

from gateway.cli.parser import admin_url
from gateway.cli.top.admin_client import AdminAddress, AdminPort, AwayError, UnknownError, admin_address, given_address
from gateway.cli.top.samples import SampleWindow
from gateway.cli.top.screen import away, screen
from gateway.cli.top.scroll import Scroll, Scrolled
from gateway.cli.top.view_model import AdminAnswers, view_model, without_zeroes
from gateway.core.clock import monotonic
from gateway.core.units import parse_duration


@contextlib.contextmanager
def quitting(quit_: Callable[[], object], press: Callable[[bytes], object] = len) -> Iterator[None]:
    """Call `quit_` on the running loop when `q` is pressed, `press` for other keys; restores the terminal on exit."""
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, ValueError, AttributeError, termios.error):  # no stdin, or no terminal
        yield
        return
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        keys = os.read(descriptor, 64)
        if b"q" in keys.lower():
            quit_()
        else:
            press(keys)

    try:
        tty.setcbreak(descriptor)
        loop.add_reader(descriptor, pressed)
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--admin", type=admin_url, metavar="URL", help="the admin port, by default as in the config")
    parser.add_argument("--interval", type=_interval, default=1.0, help="time between two polls (1s)")
    parser.add_argument("--once", action="store_true", help="print one plain screen and exit")


def _interval(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("give a time from 100ms to 1h")
    return seconds


_SPAN_S: Final = 10.0


def run(options: argparse.Namespace, path: Path, environ: Mapping[str, str], out: TextIO, err: TextIO) -> int:
    """Show the gateway until `q` or Ctrl-C and return the exit status.

    0; 1 if the gateway does not answer (with `--once`); 2 if the config does not give its address.
    """
    try:
        named = bool(options.config or environ.get("SLUICE_CONFIG"))
        address = given_address(options.admin, environ) if options.admin else admin_address(path, environ, named=named)
    except UnknownError as error:
        print(f"sluice top: {error}", file=err)
        return 2
    console = Console(file=out, no_color="NO_COLOR" in environ or None, highlight=False)
    if options.once:
        return asyncio.run(once(address, options.interval, console, err))
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it like q
        asyncio.run(_live(address, options.interval, console))
    return 0


async def once(address: AdminAddress, interval: float, console: Console, err: TextIO) -> int:
    """Poll twice, `interval` seconds apart for the rates, and print one plain screen."""
    window = SampleWindow(interval)
    async with AdminPort(address) as admin:
        try:
            window.add(monotonic(), (await admin.read()).series)
            await _pause(interval)
            answers = await admin.read()
        except AwayError as error:
            print(f"sluice top: {error}", file=err)
            return 1
    window.add(monotonic(), answers.series)
    shown = view_model(answers, window.growth(), window.seconds, answers.series)
    when = f"rates of {window.seconds:.2g} s, the rest since the gateway's start"
    console.print(screen(shown, address.url, when, console.width))
    return 0


async def _live(address: AdminAddress, interval: float, console: Console) -> None:
    view = LiveView(address, console)
    watching = asyncio.create_task(_watch(view, interval, console))
    with quitting(watching.cancel, view.scroll.press):
        await asyncio.wait([watching])
    if not watching.cancelled():
        watching.result()


async def _watch(view: "LiveView", interval: float, console: Console) -> None:
    if not console.is_terminal:  # prints one plain screen after the other
        async with AdminPort(view.address) as admin:
            while True:
                console.print(await view.refresh(admin))
                await _pause(interval)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        view.scroll.redraw = live.refresh
        async with AdminPort(view.address) as admin:
            while True:
                live.update(await view.scrolled(admin), refresh=True)
                await _pause(interval)


def _hour() -> str:
    return f"{datetime.datetime.now():%H:%M:%S}"


class LiveView:
    """The state of the live view: recent samples and the last screen."""

    def __init__(self, address: AdminAddress, console: Console, hour: Callable[[], str] = _hour) -> None:
        """`hour` returns the time of day as text."""
        self.address = address
        self._hour = hour
        self._console = console
        self._window = SampleWindow(_SPAN_S)
        self._last: AdminAnswers | None = None
        self._away_since = ""
        self.scroll = Scroll()

    async def scrolled(self, admin: AdminPort) -> RenderableType:
        """Poll and return what `refresh` does, cut to the terminal's height."""
        whole = await self.refresh(admin)
        line = whole.renderables[0] if self._away_since and isinstance(whole, Group) else None
        busy = whole if self._last is None else self._screen(self._last, busy_only=True)
        return Scrolled(whole, busy if line is None else Group(line, busy), self.scroll)

    async def refresh(self, admin: AdminPort) -> RenderableType:
        """Poll and return the new screen, or the last one below a line that says why there is none."""
        try:
            answers = await admin.read()
        except AwayError as error:
            self._away_since = self._away_since or self._hour()
            line = away(str(error), self._away_since)
            return Group(line, self._screen(self._last)) if self._last is not None else line
        self._window.add(monotonic(), answers.series)
        self._last, self._away_since = answers, ""
        return self._screen(answers)

    def _screen(self, answers: AdminAnswers, *, busy_only: bool = False) -> RenderableType:
        seconds, growth = self._window.seconds, self._window.growth()
        if seconds:
            shown = view_model(answers, growth, seconds, growth)
            when = f"the last {seconds:.0f} s; q quits"
        else:
            shown = view_model(answers, growth, seconds, answers.series)
            when = "since the gateway's start; q quits"
        if busy_only:
            shown = without_zeroes(shown)
        return screen(shown, self.address.url, when, self._console.width)


async def _pause(seconds: float) -> None:
    """Sleep. This is for people, so virtual time does not apply."""
    await asyncio.sleep(seconds)  # noqa: TID251
