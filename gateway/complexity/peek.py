"""The prompt inside a request's body, read without decoding the rest of it."""

import hashlib
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from gateway.complexity.features import Prompt

_NOTHING: Final = Raw(b"null")
_MOST_TOKENS: Final = 10**6
_ENDS: Final = 512


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
    """What decides, and whose turn it is: `opening` hashes the conversation up to its first user turn."""

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
        users = [at for at, message in enumerate(seen.messages) if message.role == "user"]
        if not users:
            return None
        said = seen.messages[users[-1]].content
        text = _text(_content(said))
    except (msgspec.DecodeError, RecursionError):
        return None
    context = sum([len(memoryview(message.content)) for message in seen.messages]) - len(memoryview(said))
    prompt = Prompt(text, len(users), context, len(seen.tools or ()), _cap(seen), _schema(seen))
    opening = hashlib.blake2b(digest_size=16)
    for message in seen.messages[: users[0] + 1]:
        _fold(opening.update, memoryview(message.content))
    return Peeked(prompt, opening.digest())


def _seen(body: bytes) -> _Body:
    """Half a surrogate pair, which upstreams take, must not hide a prompt and so choose its tier."""
    try:
        return _decode(body)
    except msgspec.DecodeError:
        return _decode(_HALF.sub(rb"\\ufffd", body))


def _fold(update: Callable[[bytes | memoryview], None], content: memoryview) -> None:
    """Both ends of a message and its length: as good as all of it, and long ones cost no more."""
    update(content[:_ENDS])
    update(content[-_ENDS:])
    update(b"%d\0" % len(content))


def _completion(seen: _Body) -> Peeked | None:
    text = seen.prompt[0] if isinstance(seen.prompt, list) and len(seen.prompt) == 1 else seen.prompt
    if not isinstance(text, str):
        return None
    opening = hashlib.blake2b(digest_size=16)
    _fold(opening.update, memoryview(text.encode("utf-8", "surrogatepass")))
    return Peeked(Prompt(text, max_output=_cap(seen)), opening.digest())


def _text(content: Any) -> str:
    """The words of a message, of all its text parts if it has parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join([part for part in parts if isinstance(part, str)])


def _cap(seen: _Body) -> int:
    asked = [seen.max_completion_tokens, seen.max_tokens]
    return next((min(cap, _MOST_TOKENS) for cap in asked if isinstance(cap, int) and cap > 0), 0)


def _schema(seen: _Body) -> bool:
    return b"json_schema" in bytes(seen.response_format)
