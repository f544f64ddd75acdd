"""Which calls somebody asks for, from a URL's parameters."""

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from gateway.core.units import parse_duration
from gateway.inspector.call_record import CallSummary

PARAMETERS: Final = ("status", "outcome", "model", "key", "upstream", "slow", "limit", "before")
MOST: Final = 500
_STATUS: Final = re.compile(r"[1-5](\d\d|xx)", re.ASCII)
_POSITION: Final = re.compile(r"[0-9-]{1,40}", re.ASCII)


class FilterError(Exception):
    """A parameter that means nothing; the message is one sentence."""


class CallFilter(Struct, frozen=True):
    """Calls with all of these; an empty text and 0 match any. `slow_ms`: they took at least that long.

    `before` is a `CallSummary.position`: only calls that ended earlier. At most `limit` are returned.
    """

    status: str = ""
    outcome: str = ""
    model: str = ""
    key: str = ""
    upstream: str = ""
    slow_ms: float = 0.0
    limit: int = 50
    before: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "CallFilter":
        """From a URL's parameters; FilterError for a value that means nothing. Empty ones do not count."""
        given = {name: query[name] for name in PARAMETERS if query.get(name)}
        status, limit, slow, before = (given.get(name, "") for name in ("status", "limit", "slow", "before"))
        if status and _STATUS.fullmatch(status) is None:
            raise FilterError("status is a number such as 429, or a class such as 5xx")
        if limit and not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= MOST):
            raise FilterError(f"limit is a whole number from 1 to {MOST}")
        if before and _POSITION.fullmatch(before) is None:
            raise FilterError("before is the `next` of an earlier answer")
        try:
            slow_ms = 1000 * parse_duration(slow) if slow else 0.0
        except ValueError as error:
            raise FilterError(f"slow: {error}") from None
        names = {name: given.get(name, "") for name in ("outcome", "model", "key", "upstream")}
        return cls(status=status, slow_ms=slow_ms, limit=int(limit or 50), before=before, **names)

    def matches(self, call: CallSummary) -> bool:
        """Whether the call is one of these; `limit` aside."""
        return (
            _status_matches(self.status, call.status)
            and self.outcome in ("", call.outcome)
            and self.model in ("", call.model)
            and self.key in ("", call.key)
            and self.upstream in ("", call.upstream)
            and call.total_ms >= self.slow_ms
            and (not self.before or call.position < self.before)
        )


def _status_matches(wanted: str, status: int) -> bool:
    return not wanted or (wanted[0] == str(status)[:1] if wanted.endswith("xx") else wanted == str(status))
