"""Asks for a stream's usage where the client did not, and recognises an upstream's refusal of it."""

import re

import msgspec

from gateway.core.request_fields import ABSENT, RequestFields
from gateway.wire.json.members import Edit, members

_NAME = "stream_options"
_FLAG = "include_usage"
_MEMBER = b'"include_usage":true'
_OBJECT = b'{"include_usage":true}'

_NAMED = re.compile(r"stream[_ ]?options|include[_ ]?usage", re.IGNORECASE)
_THING = r"(?:fields?|param(?:eter)?s?|arguments?|args?|propert(?:y|ies)|keys?|inputs?|options?|attributes?|members?)"
_UNNAMED = re.compile(
    # unknown field, unexpected keyword argument, unrecognized request argument, additional properties
    r"\b(?:unknown|unexpected|unrecogni[sz]ed|unsupported|undeclared|additional|extra|invalid|illegal)[ _-]"
    rf"(?:(?:request|body|json|keyword|query|input)[ _-])?{_THING}\b"
    # extra_forbidden, no such field
    rf"|extra_forbidden|additionalproperties|\bno such {_THING}\b",
    re.IGNORECASE,
)
_LONGEST = 16 * 1024
"""Characters of an error that are searched."""

_NEVER = frozenset({401, 402, 429, 503, 529})
"""Statuses of an account without access and of a busy upstream, whatever the words."""

_ABOUT_THE_REQUEST = frozenset({400, 405, 406, 409, 415, 417, 422, 500, 501})


def usage_edits(fields: RequestFields | None, body: bytes) -> list[Edit]:
    """The edits that make a request (one valid JSON object, not empty) ask for usage.

    None if the client asks itself, or if `stream_options` or its flag has a type that only the upstream can
    judge. Of repeated members the last one says what the client wants, as for most parsers; all of them are
    edited, because some parsers read the first.
    """
    if fields is None:
        return []
    if fields.stream_options is not ABSENT:
        if not _lacks_flag(fields.stream_options):
            return []
        spans = [(member.value, member.end) for member in members(body) if member.called(_NAME)]
        return [edit for start, end in spans for edit in _value_edits(body[start:end], start)]
    brace = body.find(b"{") + 1
    return [(brace, brace, b'"stream_options":' + _OBJECT + b",")]


def refused(error: str, param: str | None, status: int) -> bool:
    """Whether an error may be about `stream_options`, by its words, its `param` and its status.

    An error that names it counts with nearly every status, one about an unknown field only with a status that
    judges the request, and only if `param` is no other field.
    """
    if status in _NEVER:
        return False
    error = error[:_LONGEST]
    if _NAMED.search(error) or (param is not None and _NAMED.search(param)):
        return True
    return status in _ABOUT_THE_REQUEST and not param and _UNNAMED.search(error) is not None


def _lacks_flag(value: msgspec.Raw) -> bool:
    options = msgspec.json.decode(value)
    if isinstance(options, dict):
        options = options.get(_FLAG, False)
    return options is None or options is False


def _value_edits(value: bytes, offset: int) -> list[Edit]:
    """The edits of one value of `stream_options`, at position `offset`."""
    if value == b"null":
        return [(offset, offset + len(value), _OBJECT)]
    if not value.startswith(b"{"):
        return []
    options = list(members(value))
    flags = [member for member in options if member.called(_FLAG)]
    if flags:
        return [(offset + flag.value, offset + flag.end, b"true") for flag in flags]
    return [(offset + 1, offset + 1, _MEMBER + b"," if options else _MEMBER)]
