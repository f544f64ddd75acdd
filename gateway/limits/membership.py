"""How many processes share the limits, as they announce themselves in Redis."""

import os
from collections import deque
from typing import Final

from gateway.redis.command import Command, Head, RedisFailure, Script

COUNTED_S: Final = 5
"""Seconds for which one announcement counts; one is made each second."""

ANNOUNCE: Final = Script.named("gateway.limits.lua", "heartbeat")


class Membership:
    """This process among the living ones."""

    def __init__(self, prefix: str, at_least: int) -> None:
        """`at_least` is how many processes there are for sure, before Redis has told."""
        self.id: Final = os.urandom(6).hex()
        self._at_least = at_least
        self._head = Head.of([f"{prefix}:processes".encode()], self.id.encode(), b"%d" % COUNTED_S)
        # The most of the last counts: a Redis that was emptied hears of the others only one by one.
        self._counts: deque[int] = deque([at_least], maxlen=COUNTED_S)

    @property
    def count(self) -> int:
        """Living processes, as last heard; this one is among them."""
        return max(self._at_least, *self._counts)

    def probe(self) -> Command:
        """Announces this process; also what shows whether Redis takes writes."""
        return Command(ANNOUNCE, self._head, (), self._heard)

    def _heard(self, outcome: bytes | RedisFailure) -> None:
        if not isinstance(outcome, RedisFailure):
            self._counts.append(int(outcome))
