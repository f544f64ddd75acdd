"""Requests that are forms: the fields that the gateway reads, and where the model's name is."""

from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.core.endpoint import RequestHead
from gateway.core.errors import INVALID_VALUE, Rejection
from gateway.core.request_fields import RequestFields
from gateway.wire.http.form import FormField, MalformedForm, form_fields
from gateway.wire.openai import request_limits

_LONGEST: Final = 64 * 1024
"""Bytes of a field that the gateway reads."""


def read_form_head(body: bytes, content_type: str) -> RequestHead | Rejection:
    """Read the model, `stream` and the limits of a form; the upstream judges other fields."""
    try:
        fields = form_fields(body, content_type)
    except MalformedForm as malformed:
        return Rejection(INVALID_VALUE, f"The form {malformed}.")
    models = [field for field in fields if field.name == "model" and not field.file]
    if len(models) > 1:
        return Rejection(INVALID_VALUE, "`model` appears more than once in the form.", "model")
    texts = _texts(body, fields)
    if not models or not texts.get("model"):
        return Rejection(INVALID_VALUE, "`model` is required and must be a non-empty field of the form.", "model")
    read = RequestFields(
        model=texts["model"],
        stream=texts.get("stream") in ("true", "True", "1"),
        n=texts.get("n"),
        prompt=msgspec.Raw(msgspec.json.encode(texts.get("prompt", ""))),
    )
    limits = request_limits.check(read)
    if isinstance(limits, Rejection):
        return limits
    steering = tuple(name for name in request_limits.ENGINE_FIELDS if name in texts)
    [model] = models
    return RequestHead(texts["model"], read.stream, ((model.start, model.end),), steering, read)


def _texts(body: bytes, fields: list[FormField]) -> Mapping[str, str]:
    """The fields that are no files; the last of a repeated one counts, long ones are empty."""
    return {
        field.name: bytes(body[field.start : field.end]).decode("utf-8", "replace")
        if field.end - field.start <= _LONGEST
        else ""
        for field in fields
        if not field.file
    }
