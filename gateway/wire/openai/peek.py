"""Typed peeks into OpenAI requests and answers, and the shape of errors.

A peek decodes the few fields that the gateway needs; it validates the rest of the JSON but skips it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from gateway.core.endpoint import RequestHead
from gateway.core.errors import INVALID_JSON, INVALID_VALUE, Rejection
from gateway.wire import request_body
from gateway.wire.anthropic.errors import STATUSES
from gateway.wire.http.retry_after import wait_in_text, wait_of_delay
from gateway.wire.json import lenient, splice
from gateway.wire.json import limits as json_limits
from gateway.wire.openai import finish_reason, request_limits

T = TypeVar("T")

NULL: Final = msgspec.Raw(b"null")
"""The `error` or `usage` of an answer without one."""

NO_ERROR: Final = (b"null", b'""', b"{}", b"false")
"""Values of `error` that mean none."""

_LONGEST_TEXT: Final = 2000
_BOMS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


class AnswerChoice(Struct, gc=False):
    """The fields of a choice that the gateway reads, in an answer or a chunk."""

    finish_reason: Any = None
    error: msgspec.Raw = NULL


class WholeAnswer(Struct, gc=False):
    """A whole answer or one chunk of a stream."""

    model: Any = None
    object: Any = None
    choices: list[AnswerChoice] | None = None
    usage: msgspec.Raw = NULL
    error: msgspec.Raw = NULL


class _LooseAnswer(Struct, gc=False):
    """The fields that tell an error from an answer, for choices of an unknown shape."""

    model: Any = None
    object: Any = None
    error: msgspec.Raw = NULL


class UpstreamError(Struct):
    """An upstream's error of any dialect, reduced to OpenAI's four fields and a numeric status."""

    message: str
    type: str | None = None
    param: str | None = None
    code: str | None = None
    status: int | None = None
    reasons: tuple[str, ...] = ()
    """Further labels, such as Google's `status` and `details[].reason`."""
    wait: float | None = None
    """Seconds that the error itself asks to wait."""
    further: dict[str, Any] = {}
    """Members beside these, such as Azure's `innererror` and OpenRouter's `metadata`."""


decode_answer = msgspec.json.Decoder(WholeAnswer).decode
_loose_decoder = msgspec.json.Decoder(_LooseAnswer)


def read_head(body: bytes, content_type: str = "application/json") -> RequestHead | Rejection:
    """Read a request's body and check its limits; the upstream judges other fields."""
    if body.startswith(_BOMS):
        return Rejection(INVALID_JSON, "The body begins with a byte-order mark; send plain UTF-8.")
    try:
        fields = request_body.decode(body)
    except msgspec.ValidationError as error:
        return request_limits.number_rejection(error) or Rejection(
            INVALID_JSON, f"The body must be a JSON object: {error}."
        )
    except RecursionError:
        return Rejection(INVALID_JSON, "The body is nested too deeply.")
    except msgspec.DecodeError as error:
        if not body.strip():
            return Rejection(INVALID_JSON, "The body is empty; send JSON.")
        copy = lenient.readable(body, numbers=False)
        return read_head(copy) if copy else Rejection(INVALID_JSON, f"The body is not valid JSON: {error}.")
    if not is_utf8(body):
        return Rejection(INVALID_JSON, "The body is not UTF-8.")
    if not isinstance(fields.model, str) or not fields.model:
        return Rejection(INVALID_VALUE, "`model` is required and must be a non-empty string.", "model")
    if not isinstance(fields.stream, bool | None):
        return Rejection(INVALID_VALUE, "`stream` must be true or false.", "stream")
    engine_fields = request_limits.check(fields)
    if isinstance(engine_fields, Rejection):
        return engine_fields
    if (rejection := json_limits.check(body)) is not None:
        return rejection
    spans = splice.model_spans(body)
    if len(spans) != 1:
        return Rejection(INVALID_VALUE, "`model` appears more than once in the body.", "model")
    return RequestHead(fields.model, bool(fields.stream), tuple(spans), engine_fields, fields)


def is_utf8(text: bytes) -> bool:
    """Whether the text is UTF-8, including the strings that a peek skips."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def decoded(decode: Callable[[bytes], T], body: bytes) -> T | None:
    """A whole answer, read by this decoder; None if it is not such a JSON object."""
    try:
        return decode(body)
    except (msgspec.ValidationError, RecursionError):
        return None
    except msgspec.DecodeError:
        copy = lenient.readable(body)
        return None if copy is None else decoded(decode, copy)


def peek_answer(body: bytes) -> WholeAnswer | None:
    """Read an upstream's answer or chunk; None if it is not a JSON object."""
    try:
        return decode_answer(body)
    except msgspec.ValidationError:
        pass  # the choices have an unknown shape: read fewer fields
    except RecursionError:
        return None
    except msgspec.DecodeError:
        copy = lenient.readable(body)
        return None if copy is None else peek_answer(copy)
    try:
        loose = _loose_decoder.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return WholeAnswer(model=loose.model, object=loose.object, error=loose.error)


def finish_of(answer: WholeAnswer) -> str:
    """The finish_reason of the first choice, or an empty string."""
    reason = answer.choices[0].finish_reason if answer.choices else None
    if reason == "stop":  # saves a call
        return "stop"
    return reason if isinstance(reason, str) and finish_reason.is_final(reason) else ""


def finish_in(body: bytes) -> str:
    """The finish_reason of the first choice of an undecoded answer, or an empty string."""
    answer = peek_answer(body)
    return "" if answer is None else finish_of(answer)


def is_error(answer: WholeAnswer) -> bool:
    """Whether this is an error, in OpenAI's shape or in the flat one (`"object": "error"`)."""
    return answer.object == "error" or (answer.error is not NULL and bytes(answer.error) not in NO_ERROR)


def failed_choice(answer: WholeAnswer) -> bool:
    """Whether a choice holds an error, or ended in a failure of its upstream."""
    for choice in answer.choices or ():
        if choice.error is not NULL and bytes(choice.error) not in NO_ERROR:
            return True
        reason = choice.finish_reason
        if reason is not None and reason != "stop" and finish_reason.failure_status(reason):
            return True
    return False


_KNOWN: Final = frozenset(("message", "type", "param", "code"))


def read_error(body: bytes) -> UpstreamError | None:
    """Message, type, param and code of an error body; None if it is unreadable.

    Reads OpenAI's `{"error": {...}}`, `{"error": "text"}`, Anthropic's `{"type": "error", "error": {...}}`, vLLM's
    flat `{"object": "error", "message": ...}`, FastAPI's `{"detail": ...}`, and a failure of one of the choices.
    """
    try:
        body_value = msgspec.json.decode(lenient.readable(body) or body)
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
        return _read_choice_error(inner.get("choices"))
    if not isinstance(message, str):
        message = msgspec.json.encode(message).decode()
    code, kind = inner.get("code"), _text(inner.get("type"))
    status = STATUSES.get(kind or "") if body_value.get("type") == "error" else None
    return UpstreamError(
        message,
        kind,
        _text(inner.get("param")),
        _text(code),
        code if isinstance(code, int) and 400 <= code <= 599 else status,
        *_details(inner, message),
        further={name: inner[name] for name in inner.keys() - _KNOWN} if inner is not body_value else {},
    )


def _details(error: dict[str, object], message: str) -> tuple[tuple[str, ...], float | None]:
    """The further labels of an error, and the seconds that it asks to wait, in a field or in its words."""
    listed = error.get("details")
    details = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    metadata = error.get("metadata")
    sources = [error, *details, *([metadata] if isinstance(metadata, dict) else [])]
    reasons = (_text(source.get(name)) for source in sources for name in ("status", "reason"))
    waits = (
        wait_of_delay(source.get(name))
        for source in sources
        for name in ("retryDelay", "retry_delay", "retry_after", "retryAfter", "retry_after_seconds")
    )
    stated = next((wait for wait in waits if wait is not None), None)
    return tuple(reason for reason in reasons if reason), wait_in_text(message) if stated is None else stated


def _read_choice_error(choices: object) -> UpstreamError | None:
    """The first failure among the choices of an answer or a chunk."""
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        reason, error = choice.get("finish_reason"), choice.get("error")
        status = finish_reason.failure_status(reason)
        if not error and status is None:
            continue
        details = error if isinstance(error, dict) else {"message": error}
        message, code = details.get("message"), details.get("code")
        if not isinstance(message, str) or not message:
            message = f"The answer ended with finish_reason `{reason}`."
        if isinstance(code, int) and 400 <= code <= 599:
            status = code
        return UpstreamError(message, _text(details.get("type")), None, _text(code), status)
    return None


def read_text(body: bytes) -> UpstreamError | None:
    """An error in one line of plain text, as sent by servers without JSON errors."""
    if len(body) > _LONGEST_TEXT:
        return None
    try:
        text = body.decode().strip()
    except UnicodeDecodeError:
        return None
    return UpstreamError(text) if text.isprintable() and text[:1] not in ("", "<", "{", "[") else None


def render_error(
    message: str,
    kind: str,
    param: str | None,
    code: str | None,
    details: Mapping[str, object] | None = None,
) -> bytes:
    """The body of every error: all four keys, `code` a string or null, then further `details`."""
    error = {"message": message, "type": kind, "param": param, "code": code}
    return msgspec.json.encode({"error": error if details is None else {**details, **error}})


def _text(value: object) -> str | None:
    if value is None or value == "" or value == "None":
        return None
    return str(value)
