"""The last finished calls, bounded in number and in bytes; the oldest go first."""

from collections import deque
from collections.abc import Iterator

from gateway.inspector.finished_call import BYTES, FinishedCall


class CallRing:
    """At most `calls` finished calls of together at most `max_bytes`."""

    def __init__(self, calls: int, max_bytes: int) -> None:
        self._calls: deque[tuple[FinishedCall, int]] = deque()
        self.bytes = 0
        self.resize(calls, max_bytes)

    def resize(self, calls: int, max_bytes: int) -> None:
        """Use these bounds from now on."""
        self._most, self._max_bytes = calls, max_bytes
        self._drop()

    def add(self, call: FinishedCall) -> None:
        """Keep a call. One that is too large for the ring is not kept."""
        size = BYTES + call.more_bytes
        self._calls.append((call, size))
        self.bytes += size
        if self.bytes > self._max_bytes or len(self._calls) > self._most:
            self._drop()

    def _drop(self) -> None:
        while self._calls and (self.bytes > self._max_bytes or len(self._calls) > self._most):
            self.bytes -= self._calls.popleft()[1]

    def __len__(self) -> int:
        return len(self._calls)

    def newest_first(self) -> Iterator[FinishedCall]:
        """All calls, the one that ended last first."""
        return (call for call, _ in reversed(self._calls))
