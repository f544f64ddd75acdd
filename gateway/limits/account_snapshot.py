"""The last state of a shared account that this process saw, for its headers and its local fallback."""

import struct
from typing import Final, NamedTuple

from gateway.core.caller import KeyLimits, LimitStatus
from gateway.limits.gcra import whole

_NUMBERS: Final = struct.Struct("<7d")
_DOLLARS: Final = struct.Struct("<2d")
_NO_DOLLARS: Final = bytes(_DOLLARS.size)


class AccountSnapshot(NamedTuple):
    """The numbers of one reply, as Redis packed them; they are sent back unchanged.

    They are: Redis's time; the theoretical arrival time and the total ever taken, of requests and of tokens;
    the dollars spent on `day` and the total ever reserved. `seen` is when the reply came, in monotonic
    seconds.
    """

    day: str = ""
    seen: float = 0.0
    numbers: bytes = bytes(_NUMBERS.size)

    def for_day(self, day: str) -> bytes:
        """The numbers by which a script notices, and repairs, writes that Redis has lost."""
        return self.numbers if day == self.day else self.numbers[: -_DOLLARS.size] + _NO_DOLLARS

    def after(self, day: str, seen: float, numbers: bytes) -> "AccountSnapshot":
        """The snapshot after a new reply; its dollars stay if the reply is about an earlier day."""
        if day < self.day:
            return AccountSnapshot(self.day, seen, numbers[: -_DOLLARS.size] + self.numbers[-_DOLLARS.size :])
        return AccountSnapshot(day, seen, numbers)

    def with_spent(self, day: str, spent: int) -> "AccountSnapshot":
        """This snapshot with the dollars of `day`."""
        numbers = self.numbers[: -_DOLLARS.size] + _DOLLARS.pack(spent, spent)
        return self._replace(day=day, numbers=numbers)

    def resets(self, now: float) -> tuple[float, float]:
        """Seconds until the meters of requests and of tokens are empty."""
        at, requests, _, tokens, *_ = _NUMBERS.unpack(self.numbers)
        elapsed = at + max(0.0, now - self.seen)
        return max(0.0, requests - elapsed), max(0.0, tokens - elapsed)

    def tokens_taken(self) -> float:
        """Total ever taken from the token meter; 0.0 before the first reply."""
        taken: float = _NUMBERS.unpack(self.numbers)[4]
        return taken

    def spent(self, day: str) -> int:
        """Nano-dollars spent on that day, as far as seen."""
        return int(_NUMBERS.unpack(self.numbers)[5]) if day == self.day else 0

    def status(self, limits: KeyLimits, now: float) -> LimitStatus:
        """What is left now if no other process has used the key since."""
        requests, tokens = self.resets(now)
        return LimitStatus(_left(limits.rpm, requests), requests, _left(limits.tpm, tokens), tokens)


def _left(limit: float | None, reset: float) -> int:
    return whole(max(0.0, limit - reset * limit / 60)) if limit is not None else 0
