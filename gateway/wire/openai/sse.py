"""Cut a stream of bytes into whole server-sent events, whatever the network did to it.

An event ends with a blank line; lines end with LF, CRLF or CR (WHATWG HTML, section 9.2.6). The result does
not depend on how the bytes were cut into pieces. Every byte comes out again, in order, except a byte-order
mark at the very start.
"""

import re

MAX_EVENT = 16 * 1024 * 1024
"""Bytes that one event may have; more is garbage or an attack."""

_BOM = b"\xef\xbb\xbf"
# A line end followed by another one. The look-ahead keeps the two halves of one CRLF from being taken for two
# line ends; the last alternative waits for the byte after a CR, which may be its LF.
_BLANK = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?=[^\n]))")


class EventTooLarge(Exception):
    """The upstream sent more than `MAX_EVENT` bytes without a blank line."""


class EventSplitter:
    """Feed it pieces, get whole events. Holds at most one unfinished event, in `rest`."""

    __slots__ = ("_fresh", "_limit", "rest")

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self.rest = bytearray()
        self._limit = limit
        self._fresh = True

    def feed(self, piece: bytes) -> list[bytes]:
        """The events that this piece completes, each with its closing blank line. Raises EventTooLarge."""
        if self._fresh:
            return self._start(piece)
        if not self.rest and 0 < piece.find(b"\n\n") == len(piece) - 2 and b"\r" not in piece:
            return [piece]  # by far the most frequent: one event, one piece
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
        """No more will come: a blank line made of CRs is complete now. What is left over is dropped."""
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
