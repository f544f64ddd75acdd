"""The keys of the live view: `q` quits. Without a terminal to read from there are none."""

import asyncio
import contextlib
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator


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
