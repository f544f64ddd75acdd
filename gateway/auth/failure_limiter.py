"""How many wrong keys one address may show: guessing gets slow, and who has a right key never notices.

Only calls whose key was missing or wrong come here, so the clients that share an address with a guesser,
behind a proxy or a NAT, are never refused for what the guesser does.
"""

import ipaddress
from collections import OrderedDict
from typing import Final

from gateway.core.errors import AUTH_RATE_LIMITED, Rejection
from gateway.limits.gcra import Meter

PER_MINUTE: Final = 60
"""Wrong keys a minute, and as many at once."""

MOST: Final = 10_000
"""Addresses that are remembered; the one that has been silent longest is forgotten first."""


class AuthFailureLimiter:
    """A meter for each address that shows wrong keys. Bounded in memory."""

    def __init__(self, per_minute: float = PER_MINUTE, most: int = MOST) -> None:
        self._per_minute = per_minute
        self._most = most
        self._meters: OrderedDict[str, Meter] = OrderedDict()

    def __len__(self) -> int:
        """Addresses that are remembered."""
        return len(self._meters)

    def refuse(self, address: str, now: float) -> Rejection | None:
        """One more wrong key from this address at `now` (monotonic seconds): 429 if they are too many."""
        source = _source(address)
        meter = self._meters.get(source)
        if meter is None:
            meter = self._meters[source] = Meter(self._per_minute)
            if len(self._meters) > self._most:
                self._meters.popitem(last=False)
        else:
            self._meters.move_to_end(source)
        wait = meter.wait(1, now)
        if wait:
            message = "Too many calls with a missing or incorrect API key from this address."
            return Rejection(AUTH_RATE_LIMITED, message, retry_after=wait)
        meter.take(1, now)
        return None


def _source(address: str) -> str:
    """An IPv4 address; of an IPv6 one the network of 64 bits, all of which one client may have."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a Unix socket has none
        return ""
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    mapped = parsed.ipv4_mapped
    return str(mapped) if mapped is not None else hex(int(parsed) >> 64)
