"""Turns SIGINT, SIGTERM and SIGHUP into an exception at well-defined points."""

import os
import select
import signal
from types import FrameType, TracebackType
from typing import Any, Self

from backend.errors import Stopped

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """A context manager that catches the signals that ask to stop. For the main thread only.

    The handler writes to a pipe that `wait` watches (the self-pipe trick), so no signal is lost between a
    check and a sleep, and no exception interrupts the start of a process.
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
        """Return after `seconds`; raise `Stopped` at the first signal, which may have come before."""
        if select.select([self._read], [], [], seconds)[0]:
            raise Stopped

    def _caught(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        # The pipe must not fill up, and one byte would do.
        if self.count < 100:
            os.write(self._write, b".")
