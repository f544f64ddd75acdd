"""The outermost layer where bodies are kept: it puts each call's request and answer aside."""

from collections.abc import Awaitable

from gateway.core.call import Call, Handler, Layer, Reply
from gateway.core.errors import Rejection, UpstreamFailure
from gateway.core.stream import EventStream, FlowControl, StreamConsumer, StreamSummary
from gateway.inspector.bodies import Bodies
from gateway.inspector.inspector import Inspector


def capture(inspector: Inspector) -> Layer:
    """The layer; its calls must end with `inspector.keep`."""

    def layer(inner: Handler) -> Handler:
        async def handle(call: Call) -> Reply | Rejection:
            bodies = inspector.capture(call)
            reply = await inner(call)
            if bodies is None or isinstance(reply, Rejection):
                return reply
            if reply.stream is None:
                bodies.answer(reply.body)
                return reply
            return Reply(reply.status, reply.body, _CopiedStream(reply.stream, bodies))

        return handle

    return layer


class _CopiedStream:
    """An `EventStream` that also keeps what its consumer gets."""

    def __init__(self, stream: EventStream, bodies: Bodies) -> None:
        self._stream = stream
        self._bodies = bodies

    @property
    def reader(self) -> StreamSummary:
        return self._stream.reader

    @property
    def finished(self) -> Awaitable[UpstreamFailure | None]:
        return self._stream.finished

    def attach(self, client: StreamConsumer) -> None:
        self._stream.attach(_CopyingConsumer(client, self._bodies))

    def close(self) -> None:
        self._stream.close()


class _CopyingConsumer:
    def __init__(self, client: StreamConsumer, bodies: Bodies) -> None:
        self._client = client
        self._bodies = bodies

    @property
    def connection(self) -> FlowControl:
        return self._client.connection

    def send(self, events: bytes, now: float) -> None:
        self._bodies.answer(events)
        self._client.send(events, now)

    def backlog(self) -> int:
        return self._client.backlog()

    def abandon(self) -> None:
        self._client.abandon()
