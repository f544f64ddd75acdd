"""Which messages of a conversation stay or go together when it has to become shorter."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

STAYS: Final = 0
"""The turn of messages that must stay."""


class _Asked(Struct, gc=False):
    id: Any = None


class Message(Struct, gc=False):
    """A message, as far as it matters to which others it belongs."""

    role: Any = None
    tool_calls: list[_Asked] | None = None
    function_call: Any = None
    tool_call_id: Any = None


decode = msgspec.json.Decoder(list[Message]).decode


def last_of_user(messages: Sequence[Message]) -> int | None:
    """The place of the user's last message."""
    return next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), None)


def turns(messages: Sequence[Message]) -> list[int]:
    """The turn of each message, counted from the oldest.

    A turn is a message of the user and all up to the next one. `STAYS` is that of the system's and the
    developer's messages, of the user's last one and all behind it; without any of the user, of the last
    message. Where a tool's answer is in another turn than the call that asked for it, both turns are one.
    """
    last = last_of_user(messages)
    last = len(messages) - 1 if last is None else last
    same = [STAYS, 1]  # a turn, and the later one that it goes with
    found: list[int] = []
    asked: dict[str, int] = {}
    caller: int | None = None
    for at, message in enumerate(messages):
        if message.role == "user":
            same.append(len(same))
        stays = at >= last or message.role in ("system", "developer")
        found.append(STAYS if stays else len(same) - 1)
        if message.tool_calls or message.function_call is not None:
            caller = at
            asked |= {one.id: at for one in message.tool_calls or () if isinstance(one.id, str)}
        elif message.role in ("tool", "function"):
            known = message.tool_call_id
            asker = asked.get(known, caller) if isinstance(known, str) else caller
            if asker is not None:
                _join(same, _first(same, found[asker]), _first(same, found[at]))
    return [_first(same, turn) for turn in found]


def _join(same: list[int], one: int, other: int) -> None:
    """They go at the later one's time; with one that stays, both stay."""
    into = STAYS if STAYS in (one, other) else max(one, other)
    same[one] = same[other] = into


def _first(same: list[int], turn: int) -> int:
    """The turn that stands for all that it was joined with (union-find, paths halved)."""
    while same[turn] != turn:
        same[turn] = turn = same[same[turn]]
    return turn
