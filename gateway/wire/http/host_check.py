"""Whom a request is for: refuses a head that two readers could take to be meant for two different hosts.

Nothing here decides by the host, and any well-formed one will do. But a proxy in front may have decided by
it, so what it saw and what stands here must be the same (RFC 9112, sections 3.2 and 6.1).
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from gateway.core.errors import INVALID_VALUE, Rejection

MALFORMED: Final = replace(INVALID_VALUE)
"""The HTTP itself is wrong: the connection is closed behind the answer. Told apart by identity."""

# RFC 3986, section 3.2.2, without user information and without an empty name.
_HOST = re.compile(
    r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._~!$&'()*+,;=%-]{1,255})(?::(?P<port>[0-9]{0,5}))?", re.ASCII
)
_PORTS: Final = {"http": ":80", "https": ":443"}


def refuse(method: str, target: str, headers: Mapping[str, str]) -> Rejection | None:
    """Why this head is not to be trusted, or None."""
    host = headers.get("host")
    if host is not None and not _is_host(host):
        return Rejection(MALFORMED, "The Host header names no host.")
    coding = headers.get("transfer-encoding")
    if coding is not None and coding.lower() != "chunked":
        return Rejection(MALFORMED, "The only Transfer-Encoding that is taken is chunked.")
    if target[:1] != "/" and _misled(method, target, host):
        return Rejection(MALFORMED, "The request's target and its Host header do not name the same host.")
    return None


@lru_cache(maxsize=256)
def _is_host(text: str) -> bool:
    found = _HOST.fullmatch(text)
    return found is not None and int(found["port"] or 0) < 65536


def _misled(method: str, target: str, host: str | None) -> bool:
    """Whether a target that is no path names another host, or is that of a tunnel."""
    if method == "CONNECT":
        return True
    scheme, mark, rest = target.partition("://")
    if not mark:
        return False  # `OPTIONS *`, and what is no path anyway
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if not _is_host(authority):
        return True
    default = _PORTS.get(scheme.lower(), "")
    return host is not None and _plain(authority, default) != _plain(host, default)


def _plain(authority: str, default: str) -> str:
    return authority.lower().removesuffix(":").removesuffix(default)
