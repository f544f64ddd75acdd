"""What a process last saw of a shared account: the basis of what it tells, and of what it does alone."""

import struct
from typing import Final, NamedTuple

from gateway.core.caller import KeyLimits, LimitStatus
from gateway.limits.gcra import whole

_NUMBERS: Final = struct.Struct("<7d")
_DOLLARS: Final = struct.Struct("<2d")
_NO_DOLLARS: Final = bytes(_DOLLARS.size)


class AccountSnapshot(NamedTuple):
    """The numbers of one answer, as Redis packed them; they go back to it as they came.

    They are Redis's time, the theoretical arrival time and all that was ever taken of requests and of tokens,
    and of the dollars of `day` what is spent and all that was ever reserved. `seen` is when it was seen, in
    monotonic seconds.
    """

    day: str = ""
    seen: float = 0.0
    numbers: bytes = bytes(_NUMBERS.size)

    def memory(self, day: str) -> bytes:
        """What a script needs to notice, and to mend, that Redis has lost writes."""
        return self.numbers if day == self.day else self.numbers[: -_DOLLARS.size] + _NO_DOLLARS

    def after(self, day: str, seen: float, numbers: bytes) -> "AccountSnapshot":
        """A newer one; the dollars stay if it is about a day before."""
        if day < self.day:
            return AccountSnapshot(self.day, seen, numbers[: -_DOLLARS.size] + self.numbers[-_DOLLARS.size :])
        return AccountSnapshot(day, seen, numbers)

    def with_spent(self, day: str, spent: int) -> "AccountSnapshot":
        """The same, with another day's dollars."""
        numbers = self.numbers[: -_DOLLARS.size] + _DOLLARS.pack(spent, spent)
        return self._replace(day=day, numbers=numbers)

    def resets(self, now: float) -> tuple[float, float]:
        """Seconds until the meters of requests and of tokens are empty."""
        at, requests, _, tokens, *_ = _NUMBERS.unpack(self.numbers)
        passed = at + max(0.0, now - self.seen)
        return max(0.0, requests - passed), max(0.0, tokens - passed)

    def tokens_taken(self) -> float:
        """All that the meter of tokens ever took; 0.0 while nothing was seen."""
        taken: float = _NUMBERS.unpack(self.numbers)[4]
        return taken

    def spent(self, day: str) -> int:
        """Nano-dollars of that day, as far as it was seen."""
        return int(_NUMBERS.unpack(self.numbers)[5]) if day == self.day else 0

    def status(self, terms: KeyLimits, now: float) -> LimitStatus:
        """What is left now if nobody else has used the key since."""
        requests, tokens = self.resets(now)
        return LimitStatus(_left(terms.rpm, requests), requests, _left(terms.tpm, tokens), tokens)


def _left(limit: float | None, reset: float) -> int:
    return whole(max(0.0, limit - reset * limit / 60)) if limit is not None else 0
