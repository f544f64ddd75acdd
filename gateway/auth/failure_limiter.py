"""Throttling of failed authentication by client address, as fail2ban does it.

Only requests with a missing or wrong key are counted, so a client with a correct key that shares an address
with an attacker (a proxy, a NAT) is never rejected for the attacker's failures.
"""

import ipaddress
from collections import OrderedDict
from typing import Final

from gateway.core.errors import AUTH_RATE_LIMITED, Rejection
from gateway.limits.gcra import Meter

PER_MINUTE: Final = 60
"""Failures a minute per address, and the burst."""

MAX_ADDRESSES: Final = 10_000
"""Addresses tracked; the least recently active is evicted first."""


class AuthFailureLimiter:
    """One meter per address with failures. Memory is bounded by `max_addresses`."""

    def __init__(self, per_minute: float = PER_MINUTE, max_addresses: int = MAX_ADDRESSES) -> None:
        self._per_minute = per_minute
        self._max_addresses = max_addresses
        self._meters: OrderedDict[str, Meter] = OrderedDict()

    def __len__(self) -> int:
        """Tracked addresses."""
        return len(self._meters)

    def reject(self, address: str, now: float) -> Rejection | None:
        """Count a failure from this address at `now` (monotonic seconds); a 429 when there are too many."""
        source = _source(address)
        meter = self._meters.get(source)
        if meter is None:
            meter = self._meters[source] = Meter(self._per_minute)
            if len(self._meters) > self._max_addresses:
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
    """The IPv4 address, or the /64 network of an IPv6 address: a single client may control all of it."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a Unix socket has no address
        return ""
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    mapped = parsed.ipv4_mapped
    return str(mapped) if mapped is not None else hex(int(parsed) >> 64)
