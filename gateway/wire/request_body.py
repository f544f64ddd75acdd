"""The one reading of a request's body; every reader of a feature takes its `RequestFields`."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from gateway.core.call import ClientRequest
from gateway.core.request_fields import ABSENT, RequestFields
from gateway.wire.json import lenient

decode: Final = msgspec.json.Decoder(RequestFields).decode
_decode_turns: Final = msgspec.json.Decoder(list[dict[str, Raw]]).decode

Turn = Mapping[str, Raw]
"""One message of a conversation: its members, still as JSON."""


def read_fields(body: bytes) -> RequestFields | None:
    """The fields of a body; None if it is not a JSON object, or a number in it is none that engines take."""
    try:
        return decode(body)
    except (msgspec.ValidationError, RecursionError, UnicodeDecodeError):
        return None
    except msgspec.DecodeError:
        copy = lenient.readable(body, numbers=False)
        return None if copy is None else read_fields(copy)


def fields_of(request: ClientRequest) -> RequestFields | None:
    """The fields of what is sent upstream: read once, and again only after a layer has replaced the body."""
    if request.read_from is not request.body:
        request.fields, request.read_from = read_fields(request.body), request.body
    return request.fields


def turns_of(fields: RequestFields) -> Sequence[Turn]:
    """The messages of a chat, or the items of a responses call, decoded once; none if they have another shape."""
    kept = fields.__dict__
    if "turns" not in kept:
        listed = fields.messages if fields.messages is not ABSENT else fields.input
        try:
            kept["turns"] = _decode_turns(listed) if listed is not ABSENT else ()
        except (msgspec.DecodeError, RecursionError):
            kept["turns"] = ()
    turns: Sequence[Turn] = kept["turns"]
    return turns


def begins(value: Raw, byte: bytes) -> bool:
    """Whether the JSON begins with this byte: a string, a list or an object."""
    return memoryview(value)[:1] == byte
