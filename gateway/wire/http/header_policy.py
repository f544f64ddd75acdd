"""Which headers cross the gateway, and which values are allowed. Headers not named here do not cross."""

import math
import re
from collections.abc import Mapping
from typing import Final

from gateway.core.caller import BATCH, Priority
from gateway.core.headers import HOP_BY_HOP

TRACE_HEADERS: Final = ("traceparent", "tracestate")
"""Request headers forwarded to an upstream unchanged (`x-request-id` is forwarded after a check)."""

ANSWER_HEADERS: Final = ("openai-processing-ms", "openai-version")
"""Headers of an upstream's answer that reach the client unchanged."""

UPSTREAM_REQUEST_IDS: Final = ("x-request-id", "request-id")
"""Headers in which upstreams send their own id; the client sees it as `x-upstream-request-id`."""

_SECONDS = re.compile(r"[0-9]{1,7}(?:\.[0-9]{1,9})?", re.ASCII)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
_VALUE = re.compile(r"[\x20-\x7e\x80-\xff]*", re.ASCII)


def request_id(header: str | None) -> str | None:
    """The client's own request id if it is well-formed, else None."""
    return header if header is not None and _REQUEST_ID.fullmatch(header) else None


def clean(value: str) -> str | None:
    """A header value that may be forwarded, or None: no control characters, at most 4096 characters."""
    return value if len(value) <= 4096 and _VALUE.fullmatch(value) else None


def named_by_connection(connection: str | None) -> frozenset[str]:
    """Lower-case names of headers that are not forwarded: hop-by-hop ones and any listed in `Connection`."""
    if not connection:
        return HOP_BY_HOP
    return HOP_BY_HOP | {name.strip().lower() for name in connection.split(",")}


def read_timeout(headers: Mapping[str, str]) -> float:
    """Seconds that the client's SDK waits for an answer; infinite without a valid header.

    Python SDKs send `x-stainless-read-timeout`, OpenAI's for Node and Anthropic's `x-stainless-timeout`; the
    shorter one counts.
    """
    read, whole = headers.get("x-stainless-read-timeout"), headers.get("x-stainless-timeout")
    if read is None and whole is None:
        return math.inf
    return min(_seconds(read), _seconds(whole))


def _seconds(text: str | None) -> float:
    if text is None or not _SECONDS.fullmatch(text):
        return math.inf
    return float(text) or math.inf


def priority(headers: Mapping[str, str], key_priority: Priority) -> Priority:
    """The priority class of a call. The header can lower its key's class, never raise it."""
    requested = headers.get("x-sluice-priority")
    return BATCH if requested is not None and requested.strip().lower() == BATCH else key_priority
