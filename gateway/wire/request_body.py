"""The one reading of a request's body; every reader of a feature takes its `RequestFields`."""

from typing import Final

import msgspec

from gateway.core.call import ClientRequest
from gateway.core.request_fields import RequestFields
from gateway.wire.json import lenient

decode: Final = msgspec.json.Decoder(RequestFields).decode


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
