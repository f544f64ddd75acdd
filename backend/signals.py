"""Turns Ctrl-C and its kin into something that loops can wait for."""

import os
import select
import signal
from types import FrameType, TracebackType
from typing import Any, Self

from backend.errors import Stopped

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Catches the signals that ask to stop while it is entered; only the main thread may enter it.

    The handler writes to a pipe that `wait` watches, so no signal falls between a check and a sleep, and no
    exception ever starts in the middle of starting a process.
    """

    def __init__(self) -> None:
        self.count = 0
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._caught)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def wait(self, seconds: float) -> None:
        """Return after `seconds`; raise `Stopped` at once if a signal has come or comes meanwhile."""
        if select.select([self._read], [], [], seconds)[0]:
            raise Stopped

    def _caught(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        # A full pipe already says what it must.
        if self.count < 100:
            os.write(self._write, b".")
