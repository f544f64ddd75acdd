"""What an upstream says is left of its limits: the `x-ratelimit-*` headers of its answers (OpenAI's form)."""

import math
import re
from collections.abc import Mapping
from typing import Final

LONGEST_S: Final = 60.0
"""A reset further away than this is not believed: the limits are by the minute."""

_NUMBER: Final = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
_DURATION: Final = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m(?!s))?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?")
_SECONDS: Final = re.compile(_NUMBER)
_COUNT: Final = re.compile(r"[0-9]{1,15}")
_UNITS: Final = (3600.0, 60.0, 1.0, 0.001)


class _Left:
    """One limit: how much is left of it until it is reset."""

    __slots__ = ("left", "until")

    def __init__(self) -> None:
        self.left = math.inf
        self.until = 0.0

    def wait(self, need: int, now: float) -> float:
        return max(0.0, self.until - now) if need > self.left else 0.0


class Quota:
    """Holds calls that the upstream would refuse, until the reset that it told or until it tells better.

    What is sent in the meantime is taken off what it said was left.
    """

    __slots__ = ("_calls", "_tokens")

    def __init__(self) -> None:
        self._calls = _Left()
        self._tokens = _Left()

    def wait(self, tokens: int, now: float) -> float:
        """Seconds until a call of so many tokens may go, as far as the upstream has told; 0.0 is now."""
        return max(self._calls.wait(1, now), self._tokens.wait(tokens, now))

    def note(self, tokens: int) -> None:
        """A call was sent."""
        self._calls.left -= 1
        self._tokens.left -= tokens

    def learn(self, headers: Mapping[str, str], now: float) -> None:
        """Read an answer's headers (lower-case names); what is no number or no duration tells nothing."""
        for limit, word in ((self._calls, "requests"), (self._tokens, "tokens")):
            left = headers.get(f"x-ratelimit-remaining-{word}")
            if left is None or _COUNT.fullmatch(left) is None:
                continue
            reset = duration(headers.get(f"x-ratelimit-reset-{word}", ""))
            if reset is not None:
                limit.left, limit.until = int(left), now + min(reset, LONGEST_S)


def duration(text: str) -> float | None:
    """Seconds from `12ms`, `1s`, `6m0s`, `1m30.5s` or plain seconds; None from anything else."""
    if _SECONDS.fullmatch(text):
        return float(text)
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        return None
    return sum(float(part) * unit for part, unit in zip(match.groups(), _UNITS, strict=True) if part)
