"""Rejects a request head that a proxy in front could read as meant for another host (request smuggling).

The gateway accepts any well-formed host and makes no decision by it. A proxy in front may have, so both must
read the same head in the same sense (RFC 9112, sections 3.2 and 6.1).
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from gateway.core.errors import INVALID_VALUE, Rejection

MALFORMED: Final = replace(INVALID_VALUE, closes_connection=True)
"""The HTTP itself is invalid."""

# RFC 3986, section 3.2.2, without user information and without an empty name.
_HOST = re.compile(
    r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._~!$&'()*+,;=%-]{1,255})(?::(?P<port>[0-9]{0,5}))?", re.ASCII
)
_PORTS: Final = {"http": ":80", "https": ":443"}


def check(method: str, target: str, headers: Mapping[str, str]) -> Rejection | None:
    """The rejection of an ambiguous request head, or None."""
    host = headers.get("host")
    if host is not None and not _is_host(host):
        return Rejection(MALFORMED, "The Host header is not a valid host.")
    coding = headers.get("transfer-encoding")
    if coding is not None and coding.lower() != "chunked":
        return Rejection(MALFORMED, "The only Transfer-Encoding accepted is chunked.")
    if target[:1] != "/" and _names_another_host(method, target, host):
        return Rejection(MALFORMED, "The request target and the Host header name different hosts.")
    return None


@lru_cache(maxsize=256)
def _is_host(text: str) -> bool:
    match = _HOST.fullmatch(text)
    return match is not None and int(match["port"] or 0) < 65536


def _names_another_host(method: str, target: str, host: str | None) -> bool:
    """Whether a target that is not a path names another host than the Host header, or asks for a tunnel."""
    if method == "CONNECT":
        return True
    scheme, mark, rest = target.partition("://")
    if not mark:
        return False  # `OPTIONS *`, or no valid target at all
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if not _is_host(authority):
        return True
    default = _PORTS.get(scheme.lower(), "")
    return host is not None and _normalized(authority, default) != _normalized(host, default)


def _normalized(authority: str, default: str) -> str:
    return authority.lower().removesuffix(":").removesuffix(default)
