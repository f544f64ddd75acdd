"""Items for Redis that leave in few commands: what waits when a command is sent goes with it."""

from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Gathering(Generic[Item]):
    """Items of one kind. While Redis is away they wait behind one command, however many they are."""

    def __init__(self, most: int, post: Callable[[Callable[[], list[Item]]], None]) -> None:
        """`most` items go with one command. `post(items)` enqueues a command that asks `items()` when it is sent."""
        self._most = most
        self._post = post
        self._waiting: list[Item] = []

    def add(self, item: Item) -> None:
        """Let the item leave with the next command."""
        self._waiting.append(item)
        if len(self._waiting) == 1:
            self._post_next()

    def _post_next(self) -> None:
        taken: list[Item] = []

        def items() -> list[Item]:
            if not taken:  # a command that is sent again carries the same items
                taken.extend(self._waiting[: self._most])
                del self._waiting[: self._most]
                if self._waiting:
                    self._post_next()
            return taken

        self._post(items)
