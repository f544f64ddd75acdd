"""Reads the prompt from a request's body, without decoding the rest."""

import re
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from gateway.routing.complexity.features import Prompt

_NOTHING: Final = Raw(b"null")
_MAX_CAP: Final = 10**6
_END_BYTES: Final = 512
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


class PeekedPrompt(NamedTuple):
    """The scored prompt; `opening` identifies the conversation by its messages up to the first user turn."""

    prompt: Prompt
    opening: bytes


_LONE_SURROGATE: Final = re.compile(
    rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]..", re.DOTALL
)
_decode: Final = msgspec.json.Decoder(_Body).decode
_decode_content: Final = msgspec.json.Decoder().decode


def peek(body: bytes) -> PeekedPrompt | None:
    """Return the last user turn of a chat call, or the prompt of a completions call.

    None if the body has another shape; the upstream reports such errors.
    """
    try:
        request = _decode_leniently(body)
        if not request.messages:
            return _completion(request)
        roles = [message.role for message in request.messages]
        turns = roles.count(_USER)
        if not turns:
            return None
        contents = [message.content for message in request.messages]
        last = contents[-1 - roles[::-1].index(_USER)]
        text = _text(last)
    except (msgspec.DecodeError, RecursionError):
        return None
    context = len(b"".join(contents)) - len(memoryview(last))
    prompt = Prompt(text, turns, context, len(request.tools or ()), _cap(request), _schema(request))
    return PeekedPrompt(prompt, b"".join(map(_abridged, contents[: roles.index(_USER) + 1])))


def _decode_leniently(body: bytes) -> _Body:
    """Replace lone surrogates, which upstreams accept: they must not hide a prompt from the scorer."""
    try:
        return _decode(body)
    except msgspec.DecodeError:
        return _decode(_LONE_SURROGATE.sub(rb"\\ufffd", body))


def _abridged(content: Raw | bytes) -> bytes:
    """Return both ends of a message and its length, enough to identify it at a bounded cost."""
    view = memoryview(content)
    return b"".join((view[:_END_BYTES], view[-_END_BYTES:], b"%d\0" % len(view)))


def _completion(request: _Body) -> PeekedPrompt | None:
    text = request.prompt
    if isinstance(text, list) and len(text) == 1:
        text = text[0]
    if not isinstance(text, str):
        return None
    opening = _abridged(text.encode("utf-8", "surrogatepass"))
    return PeekedPrompt(Prompt(text, max_output=_cap(request)), opening)


def _text(raw: Raw) -> str:
    """Return a message's text: of all its text parts, if it has parts."""
    content = _decode_content(raw)
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join([part for part in parts if isinstance(part, str)])


def _cap(request: _Body) -> int:
    for cap in (request.max_completion_tokens, request.max_tokens):
        if isinstance(cap, int) and cap > 0:
            return min(cap, _MAX_CAP)
    return 0


def _schema(request: _Body) -> bool:
    return b"json_schema" in bytes(request.response_format)
