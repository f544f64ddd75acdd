"""One call at the waiting room, from the door to the end of its permit."""

from typing import Final

from gateway.caller import Priority

# Where a waiter stands.
OUTSIDE: Final = 0
WAITING: Final = 1
GOING: Final = 2  # holds a permit
OVER: Final = 3


class Waiter:
    """What the order of a line depends on. Opaque to the room otherwise: a layer may put more beside it.

    `tokens` is what the call is expected to cost (at least 1), `deadline` and `arrived` are in monotonic
    seconds. By its deadline (`math.inf`: none) a `stream` must have begun, or else the whole answer be there.
    `number` (the place in the order of arrival), `since` (the permit was given) and `state` are the room's.
    """

    __slots__ = ("arrived", "deadline", "key", "number", "priority", "since", "state", "stream", "tokens")

    number: int
    since: float

    def __init__(self, key: str, priority: Priority, tokens: int, deadline: float, arrived: float) -> None:
        self.key = key
        self.priority = priority
        self.tokens = tokens
        self.deadline = deadline
        self.arrived = arrived
        self.state = OUTSIDE
        self.stream = False
