"""What a client wants of the answer cache for one call (RFC 9111, section 5.2.1, and `x-sluice-cache`)."""

import math
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_DIRECTIVE: Final = re.compile(r"\s*([a-z-]+)\s*(?:=\s*\"?([0-9]{1,10})\"?)?\s*", re.IGNORECASE | re.ASCII)


class CacheControl(NamedTuple):
    """May a kept answer be given, and the new one be kept; how old in seconds may it be; is it that or none.

    `any_answer`: the client wants to share answers that its request does not settle, too.
    """

    lookup: bool = True
    store: bool = True
    max_age: float = math.inf
    only_if_cached: bool = False
    allow_sampled: bool = False


USUAL: Final = CacheControl()


def cache_control(headers: Mapping[str, str]) -> CacheControl | None:
    """What these request headers say; None: leave the call alone. What is not understood says nothing."""
    told = headers.get("x-sluice-cache")
    if told is None and "cache-control" not in headers:
        return USUAL
    told = told.strip().lower() if told is not None else ""
    if told == "off":
        return None
    # It may be there more than once, and all of them count.
    controls = [value for name, value in headers.items() if name.lower() == "cache-control"]
    directives = _directives(",".join(controls))
    max_age = directives.get("max-age")
    return CacheControl(
        lookup="no-cache" not in directives,
        store="no-store" not in directives,
        max_age=math.inf if max_age is None else float(max_age),
        only_if_cached="only-if-cached" in directives,
        allow_sampled=told == "on",
    )


def _directives(control: str) -> dict[str, str | None]:
    found = {}
    for part in control.split(","):
        directive = _DIRECTIVE.fullmatch(part)
        if directive is not None:
            found[directive[1].lower()] = directive[2]
    return found
