"""Errors in OpenAI's shape."""

from gateway.core.errors import ErrorKind, Rejection
from gateway.wire.openai.peek import render_error


class OpenAIErrors:
    """An `ErrorShape`: `{"error": {"message", "type", "param", "code"}}`, all four keys, always."""

    heartbeat = b": keep-alive\n\n"

    def status(self, kind: ErrorKind) -> int:
        """The status of the error's row."""
        return kind.status

    def body(self, rejection: Rejection, request_id: str) -> bytes:
        """The body of an error response."""
        kind = rejection.kind
        return render_error(rejection.message, kind.type, rejection.param, kind.code or None, rejection.details)

    def event(self, rejection: Rejection, request_id: str) -> bytes:
        """The last event of a broken stream."""
        return b"data: " + self.body(rejection, request_id) + b"\n\n"
