"""A stream for log lines that never blocks.

The reader of stderr may stop reading, or the disk behind it may be full. A blocking write would then stall
every call. Lines that cannot be written now are buffered, up to MAX_BUFFERED bytes, and written in order
later; lines that arrive while the buffer is full are dropped and counted.
"""

import os
import select
import stat
from collections import deque
from collections.abc import Callable
from typing import Final

MAX_BUFFERED: Final = 256 * 1024
"""Bytes: some 700 access log lines, what a busy process writes in a fifth of a second."""

Write = Callable[[bytes], int]
"""Writes without waiting and returns the number of bytes written; OSError if nothing can be written now."""


class NonBlockingStream:
    """A stream for a `logging.StreamHandler`. A `Tickable`: buffered lines go out without new ones."""

    def __init__(self, write: Write, report_dropped: Callable[[int], None]) -> None:
        """`report_dropped(lines)` is called once writing works again after lines were dropped."""
        self._write = write
        self._report_dropped = report_dropped
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0  # lines not reported yet
        self.count: Callable[[], object] = lambda: None
        """Called for each dropped line."""

    def write(self, text: str) -> None:
        """Buffer one line, or several that belong together, with their line end; `flush` writes them."""
        line = text.encode("utf-8", "backslashreplace")
        if self._lines and self._size + len(line) > MAX_BUFFERED:
            self.flush()
        if self._lines and self._size + len(line) > MAX_BUFFERED:
            self._dropped += 1
            self.count()
            return
        self._lines.append(line)
        self._size += len(line)

    def flush(self) -> None:
        """Write what can be written now, line by line: a pipe accepts up to 4 KiB whole or not at all, so the
        lines of several workers do not mix.
        """
        lines = self._lines
        while lines:
            line = lines[0]
            try:
                written = self._write(line)
            except OSError:
                return
            self._size -= written
            if written < len(line):
                lines[0] = line[written:]
                return
            lines.popleft()
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._report_dropped(dropped)

    def tick(self, now: float) -> None:
        """Tickable: try again."""
        if self._lines:
            self.flush()


def nonblocking_write(descriptor: int) -> Write:
    """A function that writes to an open descriptor without blocking.

    The descriptor's own mode stays: other writers to the same pipe or terminal expect blocking writes.
    """
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return lambda data: os.write(descriptor, data)
    if not stat.S_ISSOCK(kind):
        try:  # reopened by its name, the new descriptor has its own O_NONBLOCK flag
            reopened = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:  # not Linux, or another user's terminal
            pass
        else:
            return lambda data: os.write(reopened, data)
    return lambda data: _write_if_ready(descriptor, data)


def _write_if_ready(descriptor: int, data: bytes) -> int:
    if not select.select([], [descriptor], [], 0)[1]:
        raise BlockingIOError
    return os.write(descriptor, data[: select.PIPE_BUF])  # a ready pipe has room for at least PIPE_BUF
