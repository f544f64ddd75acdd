"""The prompt inside a request's body, read without decoding the rest of it."""

import re
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from gateway.routing.complexity.features import Prompt

_NOTHING: Final = Raw(b"null")
_MOST_TOKENS: Final = 10**6
_ENDS: Final = 512
_USER: Final = "user"


class _Message(Struct, gc=False):
    role: Any = None
    content: Raw = _NOTHING


class _Body(Struct, gc=False):
    messages: list[_Message] = []
    prompt: Any = None
    tools: list[Raw] | None = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    response_format: Raw = _NOTHING


class Peeked(NamedTuple):
    """What decides, and whose turn it is: `opening` tells the conversation up to its first user turn."""

    prompt: Prompt
    opening: bytes


_HALF: Final = re.compile(
    rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]..", re.DOTALL
)
_decode: Final = msgspec.json.Decoder(_Body).decode
_content: Final = msgspec.json.Decoder().decode


def peek(body: bytes) -> Peeked | None:
    """The last user turn of a chat call, or the prompt of a completions call, and its surroundings.

    None when the body has another shape; what is wrong with it the upstream will say.
    """
    try:
        seen = _seen(body)
        if not seen.messages:
            return _completion(seen)
        roles = [message.role for message in seen.messages]
        turns = roles.count(_USER)
        if not turns:
            return None
        contents = [message.content for message in seen.messages]
        said = contents[-1 - roles[::-1].index(_USER)]
        text = _text(said)
    except (msgspec.DecodeError, RecursionError):
        return None
    context = len(b"".join(contents)) - len(memoryview(said))
    prompt = Prompt(text, turns, context, len(seen.tools or ()), _cap(seen), _schema(seen))
    return Peeked(prompt, b"".join(map(_folded, contents[: roles.index(_USER) + 1])))


def _seen(body: bytes) -> _Body:
    """Half a surrogate pair, which upstreams take, must not hide a prompt and so choose its tier."""
    try:
        return _decode(body)
    except msgspec.DecodeError:
        return _decode(_HALF.sub(rb"\\ufffd", body))


def _folded(content: Raw | bytes) -> bytes:
    """Both ends of a message and its length: as good as all of it, and long ones cost no more."""
    view = memoryview(content)
    return b"".join((view[:_ENDS], view[-_ENDS:], b"%d\0" % len(view)))


def _completion(seen: _Body) -> Peeked | None:
    text = seen.prompt[0] if isinstance(seen.prompt, list) and len(seen.prompt) == 1 else seen.prompt
    if not isinstance(text, str):
        return None
    opening = _folded(text.encode("utf-8", "surrogatepass"))
    return Peeked(Prompt(text, max_output=_cap(seen)), opening)


def _text(said: Raw) -> str:
    """The words of a message, of all its text parts if it has parts."""
    content = _content(said)
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join([part for part in parts if isinstance(part, str)])


def _cap(seen: _Body) -> int:
    for cap in (seen.max_completion_tokens, seen.max_tokens):
        if isinstance(cap, int) and cap > 0:
            return min(cap, _MOST_TOKENS)
    return 0


def _schema(seen: _Body) -> bool:
    return b"json_schema" in bytes(seen.response_format)
