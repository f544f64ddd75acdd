"""Requests in whose company engines die: none may take down one engine after the other."""

from hashlib import blake2b
from typing import Final

DEATHS: Final = 2
"""So many are no accident any more."""
REFUSED_S: Final = 60.0
REMEMBERED_S: Final = 600.0
"""A death is forgotten so long after the request's latest one."""
SAME_DEATH_S: Final = 1.0
KEPT: Final = 1024


class Suspect:
    """One request body: how many deaths, and the latest one at each upstream."""

    __slots__ = ("at", "deaths", "latest")

    def __init__(self) -> None:
        self.deaths = 0
        self.latest = 0.0
        self.at: dict[str, float] = {}


class PoisonRequests:
    """Remembers the newest KEPT requests that an engine died with. `now` is in monotonic seconds.

    Requests are known by a digest that cannot be forged, for a collision would refuse an innocent one.
    """

    __slots__ = ("_suspects", "refusing_until")

    def __init__(self) -> None:
        self._suspects: dict[bytes, Suspect] = {}  # by their latest death
        self.refusing_until = 0.0  # after it nothing is refused, and nothing need be hashed

    def died(self, body: bytes, upstream: str, now: float) -> None:
        """The upstream's engine died while it had this request; calls with the same body die one death."""
        self._forget(now)
        key = _key(body)
        suspect = self._suspects.pop(key, None) or Suspect()
        self._suspects[key] = suspect
        if len(self._suspects) > KEPT:
            del self._suspects[next(iter(self._suspects))]
        before = suspect.at.get(upstream)
        if before is None or now - before >= SAME_DEATH_S:
            suspect.at[upstream] = now
            suspect.deaths += 1
        suspect.latest = now
        if suspect.deaths >= DEATHS:
            self.refusing_until = now + REFUSED_S

    def suspected(self, body: bytes, now: float) -> bool:
        """Whether an engine has died with this request lately: it had better not be merged with others."""
        suspect = self._suspects.get(_key(body)) if self._suspects else None
        return suspect is not None and now - suspect.latest < REMEMBERED_S

    def refused(self, body: bytes, now: float) -> float | None:
        """Seconds for which this request is refused; None: it may go."""
        if now >= self.refusing_until:
            return None
        suspect = self._suspects.get(_key(body))
        if suspect is None or suspect.deaths < DEATHS:
            return None
        left = REFUSED_S - (now - suspect.latest)
        return left if left > 0.0 else None

    def _forget(self, now: float) -> None:
        while self._suspects:
            oldest = next(iter(self._suspects))
            if now - self._suspects[oldest].latest < REMEMBERED_S:
                break
            del self._suspects[oldest]


def _key(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()
