"""Poison requests: a request that engines die with must not take down one engine after another."""

from hashlib import blake2b
from typing import Final

DEATHS: Final = 2
"""A request with this many deaths is rejected."""
SUSPENDED_S: Final = 60.0
REMEMBERED_S: Final = 600.0
"""A request is forgotten this long after its latest death."""
SAME_DEATH_S: Final = 1.0
"""Deaths at one upstream within this time count as one."""
MAX_SUSPECTS: Final = 1024


class Suspect:
    """One request body: its deaths, and when the latest one was at each upstream."""

    __slots__ = ("at", "deaths", "latest")

    def __init__(self) -> None:
        self.deaths = 0
        self.latest = 0.0
        self.at: dict[str, float] = {}


class PoisonRequests:
    """The newest MAX_SUSPECTS requests that an engine died with. `now` is in monotonic seconds.

    Requests are identified by a cryptographic digest: a collision would reject an innocent one.
    """

    __slots__ = ("_suspects", "suspending_until")

    def __init__(self) -> None:
        self._suspects: dict[bytes, Suspect] = {}  # oldest latest death first
        self.suspending_until = 0.0  # after it nothing is suspended, so nothing needs hashing

    def record_death(self, body: bytes, upstream: str, now: float, sendings: int = 1) -> None:
        """Records that the upstream's engine died while it had this request.

        Calls with the same body that fail together count once; `sendings`: how often this one was sent.
        """
        self._forget(now)
        key = _key(body)
        suspect = self._suspects.pop(key, None) or Suspect()
        self._suspects[key] = suspect
        if len(self._suspects) > MAX_SUSPECTS:
            del self._suspects[next(iter(self._suspects))]
        previous = suspect.at.get(upstream)
        if previous is None or now - previous >= SAME_DEATH_S:
            suspect.at[upstream] = now
            suspect.deaths += sendings
        suspect.latest = now
        if suspect.deaths >= DEATHS:
            self.suspending_until = now + SUSPENDED_S

    def suspected(self, body: bytes, now: float) -> bool:
        """Whether an engine has died with this request lately, so that it is not merged with others."""
        suspect = self._suspects.get(_key(body)) if self._suspects else None
        return suspect is not None and now - suspect.latest < REMEMBERED_S

    def suspended_for(self, body: bytes, now: float) -> float | None:
        """Seconds for which this request is rejected; None if it may be sent."""
        if now >= self.suspending_until:
            return None
        suspect = self._suspects.get(_key(body))
        if suspect is None or suspect.deaths < DEATHS:
            return None
        remaining_s = SUSPENDED_S - (now - suspect.latest)
        return remaining_s if remaining_s > 0.0 else None

    def _forget(self, now: float) -> None:
        while self._suspects:
            oldest = next(iter(self._suspects))
            if now - self._suspects[oldest].latest < REMEMBERED_S:
                break
            del self._suspects[oldest]


def _key(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()
