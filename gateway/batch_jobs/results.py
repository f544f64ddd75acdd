"""The results of lines: as a process logs them, and as the output and error files hold them.

A log record is one line: `+` or `-` (output or error file), the line's number, what it used, and the JSON of
the result. A process that dies may leave a torn record at the end, which does not count.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from gateway.batch_jobs.input_lines import BatchLine
from gateway.batch_jobs.records import LineTally

_RECORD: Final = re.compile(rb"([+-])([0-9]{1,9}) (\[[0-9,]{9,200}\]) (\{.*\})")
_ENDS: Final = bytes.maketrans(b"\n\r", b"  ")


class LogRecord(NamedTuple):
    """A result: its line's number, whether it belongs into the output file, what it adds up to, and its JSON."""

    number: int
    ok: bool
    tally: LineTally
    result: bytes


class LineUsage(NamedTuple):
    """Tokens and nano-dollars of one line."""

    input: int = 0
    cached_input: int = 0
    output: int = 0
    reasoning: int = 0
    cost: int = 0


NOTHING: Final = LineUsage()


def records(lines: Iterator[tuple[int, bytes]]) -> Iterator[LogRecord]:
    """The complete records among these lines of a log."""
    for _, line in lines:
        match = _RECORD.fullmatch(line)
        if match is not None:
            ok = match[1] == b"+"
            yield LogRecord(int(match[2]), ok, tally_of(ok, msgspec.json.decode(match[3], type=LineUsage)), match[4])


def tally_of(ok: bool, usage: LineUsage) -> LineTally:
    """One line's part of a tally."""
    return LineTally(int(ok), int(not ok), *usage)


def line_id(batch: str, number: int) -> str:
    """The id of a line's result: the same whoever writes it."""
    return f"batch_req_{batch.removeprefix('batch_')}{number:08x}"


def answered(line: BatchLine, id: str, request_id: str, status: int, body: bytes, usage: LineUsage) -> bytes:
    """The log record of a line that was answered, by an upstream or with an error of the gateway."""
    response = {"status_code": status, "request_id": request_id, "body": Raw(body.translate(_ENDS))}
    result = {"id": id, "custom_id": line.custom_id, "response": response, "error": None}
    sign = b"+" if status < 400 else b"-"
    return b"%b%d %b %b\n" % (sign, line.number, msgspec.json.encode(usage), msgspec.json.encode(result))


def undone(custom_id: str, id: str, code: str, message: str) -> bytes:
    """The line of the error file for a line that was never answered."""
    error = {"code": code, "message": message}
    return msgspec.json.encode({"id": id, "custom_id": custom_id, "response": None, "error": error}) + b"\n"


class LinesDone:
    """Which lines of a batch have a result; one bit each."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, number: int) -> bool:
        """Note a line; False if it was noted before."""
        at, bit = number >> 3, 1 << (number & 7)
        if at >= len(self._bits):
            self._bits.extend(bytes(at + 1 - len(self._bits)))
        if self._bits[at] & bit:
            return False
        self._bits[at] |= bit
        return True

    def __contains__(self, number: int) -> bool:
        at = number >> 3
        return at < len(self._bits) and bool(self._bits[at] & 1 << (number & 7))
