"""Group membership by heartbeat in Redis: how many processes share the limits."""

import os
from collections import deque
from typing import Final

from gateway.redis.command import Command, Head, RedisFailure, Script

COUNTED_S: Final = 5
"""Seconds for which a heartbeat counts; each process sends one a second."""

HEARTBEAT: Final = Script.named("gateway.limits.lua", "heartbeat")


class Membership:
    """This process among the living ones."""

    def __init__(self, prefix: str, at_least: int) -> None:
        """`at_least` is the number of processes that certainly exist, before Redis has answered."""
        self.id: Final = os.urandom(6).hex()
        self._at_least = at_least
        self._head = Head.of([f"{prefix}:{{limits}}:processes".encode()], self.id.encode(), b"%d" % COUNTED_S)
        # The maximum of recent counts is used: after a flush, members register again one at a time.
        self._counts: deque[int] = deque([at_least], maxlen=COUNTED_S)

    @property
    def count(self) -> int:
        """Living processes as last counted, this one included."""
        return max(self._at_least, *self._counts)

    def heartbeat(self) -> Command:
        """The command that registers this process; it also shows whether Redis accepts writes."""
        return Command(HEARTBEAT, self._head, (), self._on_reply)

    def _on_reply(self, reply: bytes | RedisFailure) -> None:
        if not isinstance(reply, RedisFailure):
            self._counts.append(int(reply))
