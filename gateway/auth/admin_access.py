"""Who may see the page and `/admin`: the rules of a config, and the sessions of those who signed in with a key."""

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

SESSION_S: Final = 12 * 3600.0
_LONGEST: Final = 512

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AdminRules(NamedTuple):
    """The SHA-256 of each key, and the header in which the proxies at these addresses name who has signed in there.

    `host` is the address that the port listens on.
    """

    host: str
    digests: Sequence[bytes] = ()
    trusted_header: str | None = None
    trusted_proxies: Sequence[Network] = ()

    @property
    def open(self) -> bool:
        """Whether nothing is asked for, because only this machine can reach the port."""
        return not self.digests and self.trusted_header is None

    def key_number(self, key: str) -> int | None:
        """The number of a key, from 1; None for a wrong one. Takes as long for any key."""
        digest = hashlib.sha256(key[:_LONGEST].encode("utf-8", "surrogateescape")).digest()
        matches = [hmac.compare_digest(digest, one) for one in self.digests]
        return matches.index(True) + 1 if True in matches and len(key) <= _LONGEST else None

    def vouched(self, peer: str | None, value: str | None) -> str | None:
        """Who has signed in at the proxy with this address; None if it is none of the trusted ones."""
        if self.trusted_header is None or not value or peer is None:
            return None
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return None
        mapped = getattr(address, "ipv4_mapped", None) or address
        return value if any(mapped in network for network in self.trusted_proxies) else None

    def knows_host(self, host: str) -> bool:
        """Whether a Host header names this machine itself: another name is a foreign page's (DNS rebinding)."""
        name = host.rpartition(":")[0] if host.rpartition("]")[2].count(":") else host
        name = name.strip("[]").lower().rstrip(".")
        if name in ("localhost", self.host.lower()) or name.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False


class AdminSessions:
    """Signed, stateless sessions: each holds its end and the key that opened it, and ends with either."""

    def __init__(self, secret: bytes) -> None:
        """`secret` is random and belongs to this process."""
        self._secret = secret

    def issue(self, digest: bytes, now: float) -> str:
        """A session of the key with this digest, from `now` (monotonic seconds) on."""
        text = f"{int(now + SESSION_S)}.{self._sign(digest)}"
        return f"{text}.{self._sign(text.encode())}"

    def key_number(self, session: str, digests: Iterable[bytes], now: float) -> int | None:
        """The number of the key that opened this session, from 1; None if it is over or forged."""
        text, _, signature = session.rpartition(".")
        if not hmac.compare_digest(self._sign(text.encode("utf-8", "surrogateescape")).encode(), _bytes(signature)):
            return None
        ends, _, owner = text.partition(".")
        if now >= int(ends):
            return None
        matches = [hmac.compare_digest(self._sign(digest), owner) for digest in digests]
        return matches.index(True) + 1 if True in matches else None

    def _sign(self, data: bytes) -> str:
        return hmac.digest(self._secret, data, "sha256").hex()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def same_origin(host: str, origin: str | None, fetch_site: str | None) -> bool:
    """Whether a request that changes something comes from the port's own pages, or from no browser at all."""
    if fetch_site is not None and fetch_site not in ("same-origin", "none"):
        return False
    return origin is None or origin.partition("://")[2] == host
