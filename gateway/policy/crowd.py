"""All who wait in this process, over all upstreams, and who gives way when the room is full."""

from collections import OrderedDict

from gateway.caller import BATCH, INTERACTIVE, Priority
from gateway.policy.line import Line
from gateway.policy.waiter import Waiter

_Keys = dict[str, OrderedDict[Waiter, Line]]


class Crowd:
    """Waiters by class and key in order of arrival, each with its line."""

    __slots__ = ("_classes", "size")

    def __init__(self) -> None:
        self.size = 0
        self._classes: dict[Priority, _Keys] = {BATCH: {}, INTERACTIVE: {}}  # the lowest first

    def add(self, waiter: Waiter, line: Line) -> None:
        """One more."""
        keys = self._classes[waiter.priority]
        keys.setdefault(waiter.key, OrderedDict())[waiter] = line
        self.size += 1

    def remove(self, waiter: Waiter) -> None:
        """One less."""
        keys = self._classes[waiter.priority]
        own = keys[waiter.key]
        del own[waiter]
        if not own:
            del keys[waiter.key]
        self.size -= 1

    def gives_way(self, newcomer: Waiter) -> tuple[Waiter, Line] | None:
        """Who would have to leave for a newcomer; None: nobody does.

        In the lowest class that waits the key with the most waiters gives up its newest one: to another key
        that has fewer, or to any call of a higher class.
        """
        lowest = next((name for name, keys in self._classes.items() if keys), None)
        if lowest is None or (newcomer.priority == BATCH and lowest == INTERACTIVE):
            return None
        keys = self._classes[lowest]
        largest = max(keys.values(), key=len)
        own = keys.get(newcomer.key, ())
        if newcomer.priority == lowest and len(own) >= len(largest):
            return None
        return next(reversed(largest.items()))
