"""Bodies of `multipart/form-data`, read and written by the standard library's mail parser."""

from email.parser import BytesParser
from email.policy import HTTP
from typing import NamedTuple

from doubles.call import Call

BOUNDARY = "----form-boundary-1"
CONTENT_TYPE = ("content-type", f"multipart/form-data; boundary={BOUNDARY}")


class Part(NamedTuple):
    """One part of a form; a file has a name."""

    name: str
    data: bytes
    file: str | None = None
    content_type: str | None = None


def form(*parts: Part, boundary: str = BOUNDARY) -> bytes:
    """The body of a form."""
    lines = []
    for part in parts:
        file = "" if part.file is None else f'; filename="{part.file}"'
        kind = "" if part.content_type is None else f"content-type: {part.content_type}\r\n"
        head = f'--{boundary}\r\ncontent-disposition: form-data; name="{part.name}"{file}\r\n{kind}\r\n'
        lines.append(head.encode() + part.data + b"\r\n")
    return b"".join([*lines, f"--{boundary}--\r\n".encode()])


def parts_of(call: Call) -> list[Part]:
    """The parts of a call's form, in order."""
    [content_type] = call.header("content-type")
    whole = BytesParser(policy=HTTP).parsebytes(f"content-type: {content_type}\r\n\r\n".encode() + call.body)
    assert whole.is_multipart(), call.body[:200]
    read = []
    for part in whole.iter_parts():
        data = part.get_payload(decode=True)
        assert isinstance(data, bytes)
        name = part.get_param("name", header="content-disposition")
        kind = part.get_content_type() if part["content-type"] else None
        read.append(Part(str(name), data, part.get_filename(), kind))
    return read


def fields_of(call: Call) -> dict[str, str]:
    """The fields of a call's form that are no files; a repeated one counts once."""
    return {part.name: part.data.decode() for part in parts_of(call) if part.file is None}
