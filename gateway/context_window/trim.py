"""Make a prompt that does not fit shorter: whole turns off its beginning, or the middle out of one long text.

Bytes in, bytes out. What is kept of the messages is kept byte for byte; only the text that is itself cut is
written anew. `surplus` is the weight that has to go, at least, in the unit that `weigh` counts in.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from gateway.wire.json.members import edited, members

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


Weigh = Callable[[bytes], float]
"""The weight of a piece of JSON: a message, or a text with its quotes."""

GAP: Final = "\n[...]\n"
"""Stands where the middle of a text was."""

_SHORTEST: Final = 16  # characters that are left of a text at least
_CLOSER: Final = 0.93
_TRIES: Final = 40  # by then a 20th is left, and a text of which no more fits has been left alone


class Trimmed(NamedTuple):
    """The shorter body, the messages that are gone, and the weight that went."""

    body: bytes
    messages: int
    weight: float


class _Part(Struct, gc=False):
    text: Raw = Raw(b"")


_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_parts = msgspec.json.Decoder(list[_Part]).decode
_decode_text = msgspec.json.Decoder(str).decode


def drop_oldest(body: bytes, surplus: float, weigh: Weigh) -> Trimmed | None:
    """Without the oldest turns of the conversation; None where it has none, or what must stay is too much.

    Whole turns go, see `turns`, so the rest begins with a message of the user, as templates want it.
    """
    found = _only(body, "messages")
    if found is None:
        return None
    try:
        listed = _decode_list(body[slice(*found)])
        turn_of = turns(decode(body[slice(*found)]))
    except (msgspec.DecodeError, RecursionError):
        return None
    by_turn: dict[int, list[int]] = {}
    for at, turn in enumerate(turn_of):
        by_turn.setdefault(turn, []).append(at)
    by_turn.pop(STAYS, None)
    weight, gone = 0.0, set[int]()
    for turn in sorted(by_turn):
        if weight >= surplus:
            break
        gone.update(by_turn[turn])
        weight += sum(weigh(bytes(listed[at])) for at in by_turn[turn])
    if not gone or weight < surplus:
        return None
    kept = b",".join(bytes(one) for at, one in enumerate(listed) if at not in gone)
    return Trimmed(_put(body, found, b"[%b]" % kept), len(gone), weight)


def middle_out(body: bytes, surplus: float, weigh: Weigh) -> Trimmed | None:
    """Without the middle of the user's last message, or of the prompt; None where that is not enough."""
    cut = _Cut(surplus, weigh)
    try:
        shorter = _within(body, "messages", lambda listed: _last_of_user(listed, cut))
        if shorter is None:
            shorter = _within(body, "prompt", cut)
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if shorter is None else Trimmed(shorter, 0, cut.weight)


class _Cut:
    """Takes `surplus` out of the middle of one text; `weight` is what it has taken."""

    def __init__(self, surplus: float, weigh: Weigh) -> None:
        self._surplus = surplus
        self._weigh = weigh
        self.weight = 0.0

    def __call__(self, value: bytes) -> bytes | None:
        """The shorter text, as JSON; None where the value is no text, or too short for that."""
        if not value.startswith(b'"'):
            return None
        text, weight = _decode_text(value), self._weigh(value)
        share = 1.0 - self._surplus / weight if weight > 0 else 0.0
        for _ in range(_TRIES):
            left = int(len(text) * share) - len(GAP)
            if left < _SHORTEST:
                return None
            head = (left + 1) // 2
            shorter = msgspec.json.encode(text[:head] + GAP + text[len(text) - (left - head) :])
            self.weight = weight - self._weigh(shorter)
            if self.weight >= self._surplus:
                return shorter
            share *= _CLOSER
        return None


def _last_of_user(listed: bytes, cut: _Cut) -> bytes | None:
    """The list of messages with the last one of the user cut."""
    last = last_of_user(decode(listed))
    if last is None:
        return None
    return _item(listed, last, lambda one: _within(one, "content", lambda value: _content(value, cut)))


def _content(value: bytes, cut: _Cut) -> bytes | None:
    """A message's content with its text, or the longest of its texts, cut."""
    if not value.startswith(b"["):
        return cut(value)
    sizes = [len(bytes(part.text)) for part in _decode_parts(value)]
    longest = max(range(len(sizes)), key=sizes.__getitem__, default=None)
    return None if longest is None else _item(value, longest, lambda part: _within(part, "text", cut))


def _item(listed: bytes, at: int, change: Callable[[bytes], bytes | None]) -> bytes | None:
    """The list with one item changed."""
    items = [bytes(one) for one in _decode_list(listed)]
    changed = change(items[at])
    return None if changed is None else b"[%b]" % b",".join([*items[:at], changed, *items[at + 1 :]])


def _within(text: bytes, name: str, change: Callable[[bytes], bytes | None]) -> bytes | None:
    """The object with the value of this member changed; None without one, or with more than one."""
    found = _only(text, name)
    changed = None if found is None else change(text[slice(*found)])
    return None if found is None or changed is None else _put(text, found, changed)


def _only(text: bytes, name: str) -> tuple[int, int] | None:
    """Where the value of the only member of this name stands: which of two an upstream reads nobody knows."""
    try:
        found = [(one.value, one.end) for one in members(text) if one.called(name)]
    except msgspec.DecodeError:  # a name that is no text
        return None
    return found[0] if len(found) == 1 else None


def _put(text: bytes, place: tuple[int, int], value: bytes) -> bytes:
    return b"".join(edited(text, [(*place, value)]))
