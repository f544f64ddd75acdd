"""A stream whose headers do not describe a plain event stream: its first bytes decide what it is.

Servers set `Content-Encoding: identity` or `none` to keep proxies from compressing, or send events as
`text/plain`; others compress unasked, or answer with an error in JSON.
"""

import zlib
from collections.abc import Callable, Mapping

from gateway.core.errors import INVALID, UPSTREAM_INVALID_RESPONSE, UpstreamFailure
from gateway.http.client.transport import BodySink, Exchange
from gateway.http.client.upstream import LONGEST_ERROR
from gateway.wire.http.content_encoding import Inflater, labels, window_bits

_BOM = b"\xef\xbb\xbf"
_FIELDS = (b"data", b"event", b"id", b"retry", b"")
_LONGEST_HEAD = 1024


class SniffedStream:
    """An `Exchange` whose body is pumped only if it is an event stream.

    Any other body fails the sink with `not_a_stream(body)`, where `body` is the answer if it looks like JSON.
    """

    def __init__(self, exchange: Exchange, not_a_stream: Callable[[bytes], UpstreamFailure]) -> None:
        self.status = exchange.status
        self._exchange = exchange
        self._not_a_stream = not_a_stream

    @property
    def headers(self) -> Mapping[str, str]:
        """See `Exchange`."""
        return self._exchange.headers

    async def read(self, limit: int, deadline: float) -> bytes:
        """See `Exchange.read`."""
        return await self._exchange.read(limit, deadline)

    def pump(self, sink: BodySink) -> None:
        """See `Exchange.pump`."""
        names = labels(self.headers.get("content-encoding", ""))
        self._exchange.pump(_Sniffer(sink, names, self._not_a_stream))

    def pause(self) -> None:
        """See `Exchange.pause`."""
        self._exchange.pause()

    def resume(self) -> None:
        """See `Exchange.resume`."""
        self._exchange.resume()

    def abort(self) -> None:
        """See `Exchange.abort`."""
        self._exchange.abort()


class _Sniffer:
    """A `BodySink` that holds the first bytes until they show what they are."""

    def __init__(self, sink: BodySink, names: frozenset[str], not_a_stream: Callable[[bytes], UpstreamFailure]) -> None:
        self._sink = sink
        self._names = names
        self._not_a_stream = not_a_stream
        self._coded = b""
        self._inflater: Inflater | None = None
        self._decoded = False  # it is known whether the body is compressed
        self._held = b""
        self._is_stream: bool | None = None  # None: not yet known
        self._failed = False

    def data(self, piece: bytes) -> None:
        """BodySink."""
        if self._failed:
            return
        if not self._decoded:
            piece = self._coded = self._coded + piece
            if len(piece) < 2:
                return
            self._decoded = True
            bits = None if _begins_events(piece) else window_bits(piece, self._names)
            self._inflater = None if bits is None else Inflater(bits)
        if self._inflater is None:
            self._plain(piece)
            return
        try:
            for plain in self._inflater.feed(piece):
                self._plain(plain)
        except zlib.error:
            self._damaged()

    def ended(self) -> None:
        """BodySink."""
        if self._failed:
            return
        if not self._is_stream:
            self._fail(self._not_a_stream(self._held))
        elif self._inflater is not None and not self._inflater.ended:
            self._damaged()
        else:
            self._sink.ended()

    def failed(self, failure: UpstreamFailure) -> None:
        """BodySink."""
        if not self._failed:
            self._fail(failure)

    def _plain(self, piece: bytes) -> None:
        if self._failed:
            return
        if self._is_stream:
            self._sink.data(piece)
            return
        self._held += piece
        if self._is_stream is None:
            self._is_stream = _begins_events(self._held)
            if self._is_stream:
                self._sink.data(self._held)
        if self._is_stream is False:
            may_be_json = self._held.lstrip(b" \t\r\n").removeprefix(_BOM)[:1] in (b"{", b"[")
            if not may_be_json or len(self._held) > LONGEST_ERROR:
                self._fail(self._not_a_stream(b""))

    def _damaged(self) -> None:
        message = "The compressed stream of the upstream is damaged."
        self._fail(UpstreamFailure(UPSTREAM_INVALID_RESPONSE, message, cause=INVALID))

    def _fail(self, failure: UpstreamFailure) -> None:
        self._failed = True
        self._sink.failed(failure)


def _begins_events(text: bytes) -> bool | None:
    """Whether a text that begins like this is an event stream; None if it is too short to tell."""
    text = text.removeprefix(_BOM).lstrip(b" \t\r\n")
    name, colon, _ = text[:_LONGEST_HEAD].partition(b":")
    if colon:
        return name.strip() in _FIELDS
    if any(field.startswith(text) for field in _FIELDS[:-1]) or _BOM.startswith(text):
        return None
    return False
