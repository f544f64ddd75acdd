"""Splits a stream of bytes into complete server-sent events (WHATWG HTML, section 9.2.6).

An event ends with a blank line; lines end with LF, CRLF or CR. The result does not depend on how the network
cut the bytes into pieces. Every byte comes out again, in order, except a byte-order mark at the very start.
"""

import re

from gateway.core.stream import StreamError

MAX_EVENT = 16 * 1024 * 1024
"""Longest event in bytes; anything longer is garbage or an attack."""

_BOM = b"\xef\xbb\xbf"
# Two line ends in a row. The look-ahead prevents the halves of one CRLF from counting as two line ends; the
# last alternative waits for the byte after a CR, which may be its LF.
_BLANK = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?=[^\n]))")


class EventTooLarge(StreamError):
    """More than `MAX_EVENT` bytes without a blank line."""

    def __init__(self) -> None:
        super().__init__("an event that is too large")


class EventSplitter:
    """Turns pieces into complete events. `rest` holds the unfinished event."""

    __slots__ = ("_fresh", "_limit", "rest")

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self.rest = bytearray()
        self._limit = limit
        self._fresh = True

    def feed(self, piece: bytes) -> list[bytes]:
        """The events completed by this piece, each with its closing blank line. Raises EventTooLarge."""
        if self._fresh:
            return self._start(piece)
        if not self.rest and 0 < piece.find(b"\n\n") == len(piece) - 2 and b"\r" not in piece:
            return [piece]  # the common case: one piece, one event
        scanned = max(0, len(self.rest) - 3)  # a blank line is at most four bytes long
        self.rest += piece
        events: list[bytes] = []
        cut = 0
        for blank in _BLANK.finditer(self.rest, scanned):
            events.append(bytes(self.rest[cut : blank.end()]))
            cut = blank.end()
        del self.rest[:cut]
        if len(self.rest) > self._limit:
            raise EventTooLarge
        return events

    def end(self) -> list[bytes]:
        """The stream ended: a blank line made of CRs is now complete. An unfinished event is dropped."""
        if self.rest.endswith((b"\r\r", b"\n\r")):
            return [bytes(self.rest)]
        return []

    def _start(self, piece: bytes) -> list[bytes]:
        head = bytes(self.rest) + piece
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self.rest[:] = head
            return []
        self._fresh = False
        self.rest.clear()
        return self.feed(head.removeprefix(_BOM))
