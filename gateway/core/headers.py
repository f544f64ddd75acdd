"""Header names that both directions of the gateway treat alike, and texts as header values."""

from typing import Final
from urllib.parse import quote

HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te"}
    | {"trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect"}
)
"""Lower-case names of headers that belong to one connection or message and are never forwarded (RFC 9110)."""

_PRINTABLE: Final = "".join(map(chr, range(0x20, 0x7F)))


def header_text(text: str) -> str:
    """A text as a header value: characters other than printable ASCII are percent-encoded in UTF-8."""
    if text.isascii() and text.isprintable():
        return text
    return quote(text, safe=_PRINTABLE, errors="replace")
