"""Which headers cross the gateway, and what may stand in them. Everything not named here stays outside."""

import math
import re
from collections.abc import Mapping
from typing import Final

from gateway.core.caller import BATCH, Priority

TRACE_HEADERS: Final = ("traceparent", "tracestate")
"""Request headers that travel to an upstream as they came (`x-request-id` travels checked)."""

ANSWER_HEADERS: Final = ("openai-processing-ms", "openai-version")
"""Headers of an upstream's answer that reach the client as they came."""

UPSTREAM_REQUEST_IDS: Final = ("x-request-id", "request-id")
"""Where upstreams put their own id; it reaches the client as `x-upstream-request-id`."""

_SECONDS = re.compile(r"[0-9]{1,7}(?:\.[0-9]{1,9})?", re.ASCII)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
_VALUE = re.compile(r"[\x20-\x7e\x80-\xff]*", re.ASCII)
_HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te"}
    | {"trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect"}
)


def request_id(given: str | None) -> str | None:
    """The client's own id if it is well-formed, else None."""
    return given if given is not None and _REQUEST_ID.fullmatch(given) else None


def clean(value: str) -> str | None:
    """A header value that may be sent on, or None: no control characters, at most 4096 characters."""
    return value if len(value) <= 4096 and _VALUE.fullmatch(value) else None


def named_by_connection(connection: str | None) -> frozenset[str]:
    """Lower-case names of headers that end here: hop-by-hop ones and those that `Connection` lists."""
    if not connection:
        return _HOP_BY_HOP
    return _HOP_BY_HOP | {name.strip().lower() for name in connection.split(",")}


def read_timeout(given: Mapping[str, str]) -> float:
    """Seconds that the client's SDK waits for an answer; infinite where it does not say so sensibly."""
    told = given.get("x-stainless-read-timeout")
    if told is None or not _SECONDS.fullmatch(told):
        return math.inf
    return float(told) or math.inf


def priority(given: Mapping[str, str], own: Priority) -> Priority:
    """The class of a call whose key has the class `own`: the header can lower it, never raise it."""
    told = given.get("x-sluice-priority")
    return BATCH if told is not None and told.strip().lower() == BATCH else own
