"""What is read of a request's body, as plain values."""

from typing import NamedTuple

from gateway.core.errors import Rejection
from gateway.wire.openai.peek import read_head


class Head(NamedTuple):
    """The values that routing needs."""

    model: str
    stream: bool
    engine_fields: tuple[str, ...] = ()


def head_of(body: bytes) -> Head | Rejection:
    """What is read, or why the body is rejected."""
    head = read_head(body)
    return head if isinstance(head, Rejection) else Head(head.model, head.stream, head.engine_fields)
