"""How many bytes of request bodies are held, over all calls of this process, and how many may be.

A body is in memory from its first byte to the end of its call, waiting included. A thousand calls with images
that wait for a slot are gigabytes, and where the kernel ends the process for them, every call ends.
"""

from typing import Final

from gateway.core.call import Call

SMALL: Final = 16 * 1024
"""Bytes of a body that came in one piece and is not counted: the queue is what bounds these."""


class BodyMemory:
    """The account. `most` may be set anew; who holds more by then keeps it."""

    __slots__ = ("held", "most")

    def __init__(self, most: int) -> None:
        self.held = 0
        self.most = most

    def full(self, more: int) -> bool:
        """Whether there is no room for so many bytes more."""
        return self.held + more > self.most


class HeldBody:
    """Holder: what one call has of it."""

    __slots__ = ("_bodies", "_size")

    def __init__(self, bodies: BodyMemory) -> None:
        self._bodies = bodies
        self._size = 0

    def grow(self, more: int) -> None:
        """So many bytes more have come."""
        self._size += more
        self._bodies.held += more

    def settle(self, call: Call, now: float) -> None:
        """The call is over."""
        self.grow(-self._size)
