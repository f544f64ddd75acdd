"""The client's cache directives for one call (RFC 9111, section 5.2.1, and `x-sluice-cache`)."""

import math
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_DIRECTIVE: Final = re.compile(r"\s*([a-z-]+)\s*(?:=\s*\"?([0-9]{1,10})\"?)?\s*", re.IGNORECASE | re.ASCII)


class CacheControl(NamedTuple):
    """Whether to look up, whether to store, the largest age in seconds, and whether a miss is an error.

    `allow_sampled`: the client also accepts cached answers of requests that are not deterministic.
    """

    lookup: bool = True
    store: bool = True
    max_age: float = math.inf
    only_if_cached: bool = False
    allow_sampled: bool = False


DEFAULT: Final = CacheControl()


def cache_control(headers: Mapping[str, str]) -> CacheControl | None:
    """Parse the request headers. None: the call bypasses the cache. Unknown directives are ignored."""
    switch = headers.get("x-sluice-cache")
    if switch is None and "cache-control" not in headers:
        return DEFAULT
    switch = switch.strip().lower() if switch is not None else ""
    if switch == "off":
        return None
    # The header may be repeated; all of them count.
    controls = [value for name, value in headers.items() if name.lower() == "cache-control"]
    directives = _directives(",".join(controls))
    max_age = directives.get("max-age")
    return CacheControl(
        lookup="no-cache" not in directives,
        store="no-store" not in directives,
        max_age=math.inf if max_age is None else float(max_age),
        only_if_cached="only-if-cached" in directives,
        allow_sampled=switch == "on",
    )


def _directives(control: str) -> dict[str, str | None]:
    matches = map(_DIRECTIVE.fullmatch, control.split(","))
    return {match[1].lower(): match[2] for match in matches if match is not None}
