"""The fields of a `multipart/form-data` body (RFC 7578) as positions in its bytes; files are never decoded."""

from email.message import Message
from typing import Final, NamedTuple

MOST_PARTS: Final = 256
_MOST_HEAD: Final = 8 * 1024
"""Bytes of the headers of one part."""


class FormField(NamedTuple):
    """One part: its value is `body[start:end]`. `file`: it has a file name."""

    name: str
    start: int
    end: int
    file: bool


class MalformedForm(Exception):
    """The body is not the form that its content type announces; the message completes "The form ..."."""


def boundary_of(content_type: str) -> str | None:
    """The boundary that a content type announces; None if it is no form, or has none."""
    header = _header("content-type", content_type)
    boundary = header.get_boundary()
    if header.get_content_type() != "multipart/form-data" or not boundary or len(boundary) > 70:
        return None
    return boundary


def form_fields(body: bytes, content_type: str) -> list[FormField]:
    """The parts in order. Raises MalformedForm."""
    boundary = boundary_of(content_type)
    if boundary is None:
        raise MalformedForm("has no boundary in its content type")
    delimiter = b"\r\n--" + boundary.encode("utf-8", "surrogateescape")
    at = len(delimiter) - 2
    if not body.startswith(delimiter[2:]):  # a preamble, which nobody reads
        at = body.find(delimiter) + len(delimiter)
        if at < len(delimiter):
            raise MalformedForm("does not begin with its boundary")
    fields: list[FormField] = []
    while not body.startswith(b"--", at):
        start = _after_line(body, at)
        head_end = body.find(b"\r\n\r\n", start - 2, start + _MOST_HEAD)
        end = body.find(delimiter, head_end + 4) if head_end >= 0 else -1
        if end < 0:
            raise MalformedForm("ends inside a part")
        fields.append(_field(bytes(body[start:head_end]), head_end + 4, end))
        if len(fields) > MOST_PARTS:
            raise MalformedForm(f"has more than {MOST_PARTS} parts")
        at = end + len(delimiter)
    return fields


def _after_line(body: bytes, at: int) -> int:
    """The position after the rest of a boundary's line, which may be padded."""
    end = body.find(b"\r\n", at, at + 128)
    if end < 0 or body[at:end].strip(b" \t"):
        raise MalformedForm("has a boundary that does not end its line")
    return end + 2


def _field(head: bytes, start: int, end: int) -> FormField:
    for line in head.decode("utf-8", "surrogateescape").split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-disposition":
            header = _header("content-disposition", value.strip())
            told = header.get_param("name", header="content-disposition")
            file = header.get_filename() is not None
            if isinstance(told, str):
                return FormField(told, start, end, file)
    raise MalformedForm("has a part without a name")


def _header(name: str, value: str) -> Message:
    header = Message()
    header[name] = value
    return header
