"""Trims a prompt over the context window: drops the oldest turns, or the middle of one long text.

Bytes in, bytes out. Remaining messages stay byte for byte; only a text that is cut is re-encoded. `surplus`
is the minimum weight to remove, in the unit of `weigh`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from gateway.wire.json.members import edited, members

REQUIRED: Final = 0
"""Turn number of the messages that must not be dropped."""


class _ToolCall(Struct, gc=False):
    id: Any = None


class Message(Struct, gc=False):
    """The members of a message that link it to others."""

    role: Any = None
    tool_calls: list[_ToolCall] | None = None
    function_call: Any = None
    tool_call_id: Any = None


decode = msgspec.json.Decoder(list[Message]).decode


def last_user_message(messages: Sequence[Message]) -> int | None:
    """Return the index of the user's last message."""
    return next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), None)


def turns(messages: Sequence[Message]) -> list[int]:
    """Return the turn of each message, counted from the oldest.

    A turn is a user message and everything up to the next one. REQUIRED are system and developer messages,
    the user's last message and all after it; without a user message, the last message. If a tool's result is
    in another turn than its call, both turns are joined.
    """
    last = last_user_message(messages)
    last = len(messages) - 1 if last is None else last
    parents = [REQUIRED, 1]  # union-find over turns
    numbers: list[int] = []
    call_positions: dict[str, int] = {}
    last_call: int | None = None
    for at, message in enumerate(messages):
        if message.role == "user":
            parents.append(len(parents))
        required = at >= last or message.role in ("system", "developer")
        numbers.append(REQUIRED if required else len(parents) - 1)
        if message.tool_calls or message.function_call is not None:
            last_call = at
            call_positions |= {call.id: at for call in message.tool_calls or () if isinstance(call.id, str)}
        elif message.role in ("tool", "function"):
            call_id = message.tool_call_id
            caller = call_positions.get(call_id, last_call) if isinstance(call_id, str) else last_call
            if caller is not None:
                _join(parents, _root(parents, numbers[caller]), _root(parents, numbers[at]))
    return [_root(parents, number) for number in numbers]


def _join(parents: list[int], a: int, b: int) -> None:
    """Join two turns into the later one, or into REQUIRED if either is required."""
    parents[a] = parents[b] = REQUIRED if REQUIRED in (a, b) else max(a, b)


def _root(parents: list[int], turn: int) -> int:
    """Return the turn that represents all joined with this one (union-find with path halving)."""
    while parents[turn] != turn:
        parents[turn] = turn = parents[parents[turn]]
    return turn


Weigh = Callable[[bytes], float]
"""Returns the weight of a piece of JSON: a message, or a text with its quotes."""

GAP: Final = "\n[...]\n"
"""Replaces the middle of a text."""

_MIN_LENGTH: Final = 16  # characters of a cut text
_SHRINK: Final = 0.93
_MAX_STEPS: Final = 40  # by then a 20th of the text is left


class Trimmed(NamedTuple):
    """The shorter body, the number of dropped messages, and the removed weight."""

    body: bytes
    messages: int
    weight: float


class _Part(Struct, gc=False):
    text: Raw = Raw(b"")


_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_parts = msgspec.json.Decoder(list[_Part]).decode
_decode_text = msgspec.json.Decoder(str).decode


def drop_oldest(body: bytes, surplus: float, weigh: Weigh) -> Trimmed | None:
    """Drop the oldest turns; None if there are too few that may be dropped.

    Whole `turns` are dropped, so the rest starts with a user message, as chat templates require.
    """
    span = _only_member(body, "messages")
    if span is None:
        return None
    try:
        messages = _decode_list(body[slice(*span)])
        turn_of = turns(decode(body[slice(*span)]))
    except (msgspec.DecodeError, RecursionError):
        return None
    by_turn: dict[int, list[int]] = {}
    for at, turn in enumerate(turn_of):
        by_turn.setdefault(turn, []).append(at)
    by_turn.pop(REQUIRED, None)
    weight, dropped = 0.0, set[int]()
    for turn in sorted(by_turn):
        if weight >= surplus:
            break
        dropped.update(by_turn[turn])
        weight += sum(weigh(bytes(messages[at])) for at in by_turn[turn])
    if not dropped or weight < surplus:
        return None
    rest = b",".join(bytes(message) for at, message in enumerate(messages) if at not in dropped)
    return Trimmed(_replaced(body, span, b"[%b]" % rest), len(dropped), weight)


def middle_out(body: bytes, surplus: float, weigh: Weigh) -> Trimmed | None:
    """Cut the middle out of the user's last message, or of the prompt; None if that is not enough."""
    cut = _Cut(surplus, weigh)
    try:
        shorter = _within(body, "messages", lambda messages: _cut_last_user_message(messages, cut))
        if shorter is None:
            shorter = _within(body, "prompt", cut)
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if shorter is None else Trimmed(shorter, 0, cut.weight)


class _Cut:
    """Cuts `surplus` out of the middle of one text; `weight` is the removed weight."""

    def __init__(self, surplus: float, weigh: Weigh) -> None:
        self._surplus = surplus
        self._weigh = weigh
        self.weight = 0.0

    def __call__(self, value: bytes) -> bytes | None:
        """Return the shorter text as JSON; None if the value is not a text, or too short."""
        if not value.startswith(b'"'):
            return None
        text, weight = _decode_text(value), self._weigh(value)
        share = 1.0 - self._surplus / weight if weight > 0 else 0.0
        for _ in range(_MAX_STEPS):
            left = int(len(text) * share) - len(GAP)
            if left < _MIN_LENGTH:
                return None
            head = (left + 1) // 2
            shorter = msgspec.json.encode(text[:head] + GAP + text[len(text) - (left - head) :])
            self.weight = weight - self._weigh(shorter)
            if self.weight >= self._surplus:
                return shorter
            share *= _SHRINK
        return None


def _cut_last_user_message(messages: bytes, cut: _Cut) -> bytes | None:
    """Return the list of messages with the user's last one cut."""
    last = last_user_message(decode(messages))
    if last is None:
        return None
    return _item(messages, last, lambda message: _within(message, "content", lambda value: _content(value, cut)))


def _content(value: bytes, cut: _Cut) -> bytes | None:
    """Return a message's content with its text, or its longest text part, cut."""
    if not value.startswith(b"["):
        return cut(value)
    sizes = [len(bytes(part.text)) for part in _decode_parts(value)]
    longest = max(range(len(sizes)), key=sizes.__getitem__, default=None)
    return None if longest is None else _item(value, longest, lambda part: _within(part, "text", cut))


def _item(array: bytes, at: int, change: Callable[[bytes], bytes | None]) -> bytes | None:
    """Return the JSON array with one item changed."""
    items = list(map(bytes, _decode_list(array)))
    changed = change(items[at])
    return None if changed is None else b"[%b]" % b",".join([*items[:at], changed, *items[at + 1 :]])


def _within(text: bytes, name: str, change: Callable[[bytes], bytes | None]) -> bytes | None:
    """Return the object with this member's value changed; None unless it occurs exactly once."""
    span = _only_member(text, name)
    changed = None if span is None else change(text[slice(*span)])
    return None if span is None or changed is None else _replaced(text, span, changed)


def _only_member(text: bytes, name: str) -> tuple[int, int] | None:
    """Return the span of the member's value if its name is unique: upstreams differ on duplicates."""
    try:
        spans = [(member.value, member.end) for member in members(text) if member.called(name)]
    except msgspec.DecodeError:  # an undecodable name
        return None
    return spans[0] if len(spans) == 1 else None


def _replaced(text: bytes, span: tuple[int, int], value: bytes) -> bytes:
    return b"".join(edited(text, [(*span, value)]))
