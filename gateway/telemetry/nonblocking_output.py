"""Where log lines go: a file descriptor that is written to and never waited for.

Whoever reads our stderr may stop reading, and the disk behind it may be full. A plain write would then stand
still, and every call with it. So what cannot be written now is kept, up to KEPT bytes, and goes out before
whatever comes later; what comes while that is full is dropped and counted.
"""

import os
import select
import stat
from collections import deque
from collections.abc import Callable
from typing import Final

KEPT: Final = 256 * 1024
"""Bytes: some 700 lines of calls, or what a busy process writes in a fifth of a second."""

Write = Callable[[bytes], int]
"""Writes some of it and tells how much; OSError where nothing can be written now. Never waits."""


class NonBlockingStream:
    """A stream for a `logging.StreamHandler`. A Watcher: what is kept goes out though nobody logs."""

    def __init__(self, write: Write, tell: Callable[[int], None]) -> None:
        """`tell(lines)` is called as soon as lines can be written again after so many were dropped."""
        self._write = write
        self._tell = tell
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0  # and not told yet
        self.count: Callable[[], object] = lambda: None
        """Called for each line that is dropped."""

    def write(self, text: str) -> None:
        """One line, or several that belong together, with their end; `flush` writes it."""
        line = text.encode("utf-8", "backslashreplace")
        if self._lines and self._size + len(line) > KEPT:
            self.flush()
        if self._lines and self._size + len(line) > KEPT:
            self._dropped += 1
            self.count()
            return
        self._lines.append(line)
        self._size += len(line)

    def flush(self) -> None:
        """Write what can be written now. Line by line: a pipe takes one of up to 4 KiB whole or not at all,
        so those of several workers stay apart."""
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
            self._tell(dropped)

    def tick(self, now: float) -> None:
        """Watcher: try again."""
        if self._lines:
            self.flush()


def unblocked(descriptor: int) -> Write:
    """Writes to an open descriptor without waiting for it.

    The descriptor itself stays as it is: others write to the same pipe or terminal, and expect to wait.
    """
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return lambda data: os.write(descriptor, data)
    if not stat.S_ISSOCK(kind):
        try:  # once more, by its name: what is open in its own right may be told not to wait
            own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:  # another system, another user's
            pass
        else:
            return lambda data: os.write(own, data)
    return lambda data: _write_if_ready(descriptor, data)


def _write_if_ready(descriptor: int, data: bytes) -> int:
    if not select.select([], [descriptor], [], 0)[1]:
        raise BlockingIOError
    return os.write(descriptor, data[: select.PIPE_BUF])  # what is ready has room for so much
