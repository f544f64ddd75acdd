"""OpenAI's wire: typed peeks into bodies that are otherwise left alone, and the shape of errors.

A peek decodes the few fields that the gateway needs and skips (but checks) the rest of the JSON.
"""

from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway.core.errors import INVALID_JSON, INVALID_VALUE, Rejection
from gateway.wire.json import limits as json_bounds
from gateway.wire.openai import request_limits as request_caps

NULL: Final = msgspec.Raw(b"null")
"""The `error` or `usage` of an answer that has none."""

_NO_ERROR: Final = (b"null", b'""', b"{}", b"false")
_LONGEST_TEXT: Final = 2000
_BOMS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


class Peek(Struct):
    """What the gateway reads of a request."""

    model: str
    stream: bool
    engine_fields: tuple[str, ...] = ()


class AnswerChoice(Struct, gc=False):
    """A choice of an answer or of a chunk, as far as the gateway looks."""

    finish_reason: Any = None


class WholeAnswer(Struct, gc=False):
    """A whole answer or one chunk of a stream."""

    model: Any = None
    object: Any = None
    choices: list[AnswerChoice] | None = None
    usage: msgspec.Raw = NULL
    error: msgspec.Raw = NULL


class _LooseAnswer(Struct, gc=False):
    """As `Answer`, where choices have another shape: only what decides right and wrong."""

    model: Any = None
    object: Any = None
    error: msgspec.Raw = NULL


class UpstreamError(Struct):
    """An upstream's own error in whichever dialect, reduced to OpenAI's four fields."""

    message: str
    type: str | None = None
    param: str | None = None
    code: str | None = None
    status: int | None = None


decode_answer = msgspec.json.Decoder(WholeAnswer).decode
_loose_decoder = msgspec.json.Decoder(_LooseAnswer)


def peek_request(body: bytes) -> Peek | Rejection:
    """Read `model` and `stream` of a request body, and whether it keeps within its bounds.

    Whatever else is in it is the upstream's business.
    """
    if body.startswith(_BOMS):
        return Rejection(INVALID_JSON, "The body begins with a byte-order mark; send plain UTF-8.")
    try:
        seen = request_caps.decode(body)
    except msgspec.ValidationError as error:
        return request_caps.no_number(error) or Rejection(
            INVALID_JSON, f"The body must be a JSON object: {error}."
        )
    except RecursionError:
        return Rejection(INVALID_JSON, "The body is nested too deeply.")
    except msgspec.DecodeError as error:
        return Rejection(INVALID_JSON, f"The body is not valid JSON: {error}.")
    if not _is_utf8(body):
        return Rejection(INVALID_JSON, "The body is not UTF-8.")
    if not isinstance(seen.model, str) or not seen.model:
        return Rejection(INVALID_VALUE, "`model` must be given, as a non-empty string.", "model")
    if not isinstance(seen.stream, bool | None):
        return Rejection(INVALID_VALUE, "`stream` must be true or false.", "stream")
    found = request_caps.look(seen)
    if isinstance(found, Rejection):
        return found
    return json_bounds.refuse(body) or Peek(seen.model, bool(seen.stream), found)


def _is_utf8(text: bytes) -> bool:
    """Whether strings that a peek has skipped are text too."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def peek_whole(body: bytes) -> WholeAnswer | None:
    """As `peek_answer`, for a whole answer: None also when it is not UTF-8."""
    return peek_answer(body) if _is_utf8(body) else None


def peek_answer(body: bytes) -> WholeAnswer | None:
    """Read an upstream's JSON; None when it is no JSON object."""
    try:
        return decode_answer(body)
    except msgspec.ValidationError:
        pass  # valid JSON, but the choices are of an unknown shape: look at less of it
    except (msgspec.DecodeError, RecursionError):
        return None
    try:
        loose = _loose_decoder.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return WholeAnswer(model=loose.model, object=loose.object, error=loose.error)


def finish_of(answer: WholeAnswer) -> str:
    """The finish_reason of its first choice; empty where there is none."""
    reason = answer.choices[0].finish_reason if answer.choices else None
    return reason if isinstance(reason, str) else ""


def finish_in(body: bytes) -> str:
    """As `finish_of`, of a whole answer that nobody has looked into yet."""
    answer = peek_answer(body)
    return "" if answer is None else finish_of(answer)


def is_error(answer: WholeAnswer) -> bool:
    """Whether this JSON is an error, in OpenAI's shape or in the flat one (`"object": "error"`)."""
    return answer.object == "error" or (answer.error is not NULL and bytes(answer.error) not in _NO_ERROR)


def read_error(body: bytes) -> UpstreamError | None:
    """Find message, type, param and code in an error body; None when there is nothing readable in it.

    Knows OpenAI's `{"error": {...}}`, `{"error": "text"}`, vLLM's flat `{"object": "error", "message": ...}`
    and FastAPI's `{"detail": ...}`.
    """
    try:
        body_value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if isinstance(body_value, list) and len(body_value) == 1:
        body_value = body_value[0]  # Gemini's
    if not isinstance(body_value, dict):
        return None
    inner = body_value.get("error") or body_value
    if isinstance(inner, str):
        return UpstreamError(inner)
    if not isinstance(inner, dict):
        return None
    message = inner.get("message", inner.get("detail"))
    if message is None:
        return None
    if not isinstance(message, str):
        message = msgspec.json.encode(message).decode()
    code = inner.get("code")
    return UpstreamError(
        message,
        _text(inner.get("type")),
        _text(inner.get("param")),
        _text(code),
        code if isinstance(code, int) and 400 <= code <= 599 else None,
    )


def read_text(body: bytes) -> UpstreamError | None:
    """An error that is told in a line of plain text, as servers without a JSON of their own do it."""
    if len(body) > _LONGEST_TEXT:
        return None
    try:
        text = body.decode().strip()
    except UnicodeDecodeError:
        return None
    return UpstreamError(text) if text.isprintable() and text[:1] not in ("", "<", "{", "[") else None


def render_error(message: str, kind: str, param: str | None, code: str | None) -> bytes:
    """The body of every error: all four keys, `code` a string or null."""
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def _text(value: object) -> str | None:
    if value is None or value == "" or value == "None":
        return None
    return str(value)
