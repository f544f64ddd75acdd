"""`sluice top`: reads the admin port again and again, and draws what it says."""

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
from urllib.parse import urlsplit

from rich.console import Console, Group, RenderableType
from rich.live import Live

from gateway.cli.top.admin_client import AdminPort, AwayError, UnknownError, admin_address
from gateway.cli.top.samples import SampleWindow
from gateway.cli.top.screen import away, screen
from gateway.cli.top.view_model import CacheView, view_model
from gateway.core.clock import monotonic
from gateway.core.units import parse_duration


@contextlib.contextmanager
def quitting(quit_: Callable[[], object]) -> Iterator[None]:
    """Calls `quit_` on the running loop when `q` is pressed; the terminal is as before afterwards."""
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, ValueError, AttributeError, termios.error):  # no stdin, or no terminal
        yield
        return
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        if b"q" in os.read(descriptor, 64).lower():
            quit_()

    try:
        tty.setcbreak(descriptor)
        loop.add_reader(descriptor, pressed)
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def describe(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    parser.add_argument(
        "--admin", type=_address, metavar="URL", help="the admin port, default: as the config says"
    )
    parser.add_argument("--interval", type=_interval, default=1.0, help="time between two looks (1s)")
    parser.add_argument("--once", action="store_true", help="print one plain screen and end")


def _address(text: str) -> str:
    parts = urlsplit(text)
    wrong = parts.scheme not in ("http", "https") or "@" in parts.netloc or parts.query or parts.fragment
    if wrong or not parts.hostname or parts.port == 0:  # a port of no use is a ValueError
        raise argparse.ArgumentTypeError("give an address such as http://127.0.0.1:9464")
    return text


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
    """Show the gateway until `q` or Ctrl-C; gives the exit status.

    0; with `--once` 1 when the gateway does not answer; 2 when the config does not tell where it is.
    """
    try:
        named = bool(options.config or environ.get("SLUICE_CONFIG"))
        address = options.admin or admin_address(path, environ, named=named)
    except UnknownError as error:
        print(f"sluice top: {error}", file=err)
        return 2
    console = Console(file=out, no_color="NO_COLOR" in environ or None, highlight=False)
    if options.once:
        return asyncio.run(once(address, options.interval, console, err))
    with contextlib.suppress(KeyboardInterrupt):  # one of the two ways to end it
        asyncio.run(_live(address, options.interval, console))
    return 0


async def once(address: str, interval: float, console: Console, err: TextIO) -> int:
    """Two readings, `interval` seconds apart for the rates, and one plain screen."""
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
    console.print(screen(shown, address, when, console.width))
    return 0


async def _live(address: str, interval: float, console: Console) -> None:
    watching = asyncio.create_task(_watch(LiveView(address, console), interval, console))
    with quitting(watching.cancel):
        await asyncio.wait([watching])
    if not watching.cancelled():
        watching.result()


async def _watch(watch: "LiveView", interval: float, console: Console) -> None:
    if not console.is_terminal:  # one plain screen after the other
        async with AdminPort(watch.address) as admin:
            while True:
                console.print(await watch.look(admin))
                await _pause(interval)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        async with AdminPort(watch.address) as admin:
            while True:
                live.update(await watch.look(admin), refresh=True)
                await _pause(interval)


def _hour() -> str:
    return f"{datetime.datetime.now():%H:%M:%S}"


class LiveView:
    """What a view has seen so far, and what it shows next."""

    def __init__(self, address: str, console: Console, hour: Callable[[], str] = _hour) -> None:
        """`hour` tells the time of day, for people."""
        self.address = address
        self._hour = hour
        self._console = console
        self._window = SampleWindow(_SPAN_S)
        self._last: CacheView | None = None
        self._away_since = ""

    async def look(self, admin: AdminPort) -> RenderableType:
        """Read once more; the new screen, or the last one below a line that says why there is none."""
        try:
            answers = await admin.read()
        except AwayError as error:
            self._away_since = self._away_since or self._hour()
            line = away(str(error), self._away_since)
            return Group(line, self._screen(self._last)) if self._last is not None else line
        self._window.add(monotonic(), answers.series)
        self._last, self._away_since = answers, ""
        return self._screen(answers)

    def _screen(self, answers: CacheView) -> RenderableType:
        seconds, growth = self._window.seconds, self._window.growth()
        if seconds:
            shown = view_model(answers, growth, seconds, growth)
            when = f"the last {seconds:.0f} s; q quits"
        else:
            shown = view_model(answers, growth, seconds, answers.series)
            when = "since the gateway's start; q quits"
        return screen(shown, self.address, when, self._console.width)


async def _pause(seconds: float) -> None:
    """Sleep, for a screen that people look at; nothing waits for it."""
    await asyncio.sleep(seconds)  # noqa: TID251
