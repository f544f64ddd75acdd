"""What is remembered of a stored response, in this process: bounded in number and time."""

from collections import OrderedDict
from typing import Final

from msgspec import Struct

LIFETIME_S: Final = 7 * 86_400.0
"""Seconds that a response is remembered."""
MOST: Final = 65_536
"""Responses that one process remembers; the oldest is forgotten first."""


class StoredResponse(Struct, frozen=True, array_like=True):
    """The key that made a response, the model that was asked for, and the upstream that has it.

    `unpaid`: it is made in the background, and its usage is not booked yet.
    """

    key: str
    model: str
    upstream: str
    unpaid: bool = False


class ResponseMemory:
    """The responses that this process has seen, by id. Times are monotonic seconds."""

    def __init__(self, most: int = MOST, lifetime_s: float = LIFETIME_S) -> None:
        self._most = most
        self._lifetime_s = lifetime_s
        self._made: OrderedDict[str, tuple[StoredResponse, float]] = OrderedDict()

    def find(self, name: str, now: float) -> StoredResponse | None:
        """The response of this id, unless its time is over."""
        record, at = self._made.get(name, (None, 0.0))
        return record if now - at < self._lifetime_s else None

    def put(self, name: str, record: StoredResponse, now: float) -> None:
        """Remember a response."""
        self._made[name] = record, now
        self._made.move_to_end(name)
        if len(self._made) > self._most:
            self._made.popitem(last=False)

    def forget(self, name: str) -> None:
        """The response has been deleted."""
        self._made.pop(name, None)
