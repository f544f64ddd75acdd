"""A complete answer in the cache: whether it may be stored, and its copy under a fresh id."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway.wire.json.members import members

_TOOLS: Final = ("tool_calls", "function_call")


class _Message(Struct, gc=False):
    tool_calls: Any = None
    function_call: Any = None


class _Choice(Struct, gc=False):
    finish_reason: str | None = None
    message: _Message | None = None


class _Answer(Struct, gc=False):
    choices: list[_Choice] = []


_decode = msgspec.json.Decoder(_Answer).decode


def finished(body: bytes, *, tools: bool) -> bool:
    """Return whether every choice ended on its own; choices with tool calls count only with `tools`.

    False for answers cut by a limit or a filter, and for those without a finish reason.
    """
    try:
        choices = _decode(body).choices
    except (msgspec.DecodeError, RecursionError):
        return False
    return bool(choices) and all(_finished(choice, tools=tools) for choice in choices)


def _finished(choice: _Choice, *, tools: bool) -> bool:
    message = choice.message
    calls = message is not None and (message.tool_calls or message.function_call)
    if calls or choice.finish_reason in _TOOLS:
        return tools and choice.finish_reason in ("stop", *_TOOLS)
    return choice.finish_reason == "stop"


def replace_id(body: bytes, fresh: str) -> bytes:
    """Return the answer with a new id that keeps the old prefix; unchanged if it has no id."""
    for member in members(body):
        if member.called("id") and body[member.value : member.value + 1] == b'"':
            kind, dash, _ = body[member.value + 1 : member.end - 1].partition(b"-")
            new = kind + dash + fresh.encode() if dash else fresh.encode()
            return body[: member.value + 1] + new + body[member.end - 1 :]
    return body
