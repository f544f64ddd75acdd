"""The weight and the caps of a body that nothing has read yet."""

from gateway.core.endpoint import Endpoint
from gateway.core.tokens import OutputCaps
from gateway.wire.openai import token_weight
from gateway.wire.openai.token_weight import TextWeight
from gateway.wire.request_body import read_fields


def weigh(body: bytes) -> TextWeight:
    """The weight of the text in it."""
    return token_weight.weigh(read_fields(body), body)


def caps(body: bytes, endpoint: Endpoint) -> OutputCaps:
    """Its output cap and number of choices; the rest as in a request without either."""
    return OutputCaps(*endpoint.caps(read_fields(body))[:2])


def measure(body: bytes, endpoint: Endpoint) -> tuple[TextWeight, OutputCaps]:
    """Both."""
    return weigh(body), caps(body, endpoint)
