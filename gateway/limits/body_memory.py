"""The memory budget for request bodies, over all calls of this process.

A body stays in memory from its first byte to the end of its call, queueing included. A thousand queued calls
with images are gigabytes, and if the kernel kills the process for them, every call fails.
"""

from typing import Final

from gateway.core.call import Call

SMALL: Final = 16 * 1024
"""Bytes. A body up to this size that arrives in one piece is not counted; the queue bounds their number."""


class BodyMemory:
    """Bytes held, and the most allowed. `most` may be lowered; bodies already held stay."""

    __slots__ = ("held", "most")

    def __init__(self, most: int) -> None:
        self.held = 0
        self.most = most

    def full(self, size: int) -> bool:
        """Whether `size` more bytes exceed the budget."""
        return self.held + size > self.most


class HeldBody:
    """Holder: the bytes of one call."""

    __slots__ = ("_memory", "_size")

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self._size = 0

    def grow(self, size: int) -> None:
        """Count `size` more bytes."""
        self._size += size
        self._memory.held += size

    def settle(self, call: Call, now: float) -> None:
        """Release the bytes when the call ends."""
        self.grow(-self._size)
