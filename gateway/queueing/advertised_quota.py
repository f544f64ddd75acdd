"""The quota that an upstream advertises in the `x-ratelimit-*` headers of its answers (OpenAI's form)."""

import math
import re
from collections.abc import Mapping
from typing import Final

LONGEST_S: Final = 60.0
"""Cap on an advertised reset: the limits are per minute, so a later one is not believed."""

_NUMBER: Final = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
_DURATION: Final = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m(?!s))?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?")
_SECONDS: Final = re.compile(_NUMBER)
_COUNT: Final = re.compile(r"[0-9]{1,15}")
_UNITS: Final = (3600.0, 60.0, 1.0, 0.001)


class _Allowance:
    """What remains of one limit until it resets."""

    __slots__ = ("remaining", "resets_at")

    def __init__(self) -> None:
        self.remaining = math.inf
        self.resets_at = 0.0

    def wait(self, needed: int, now: float) -> float:
        return max(0.0, self.resets_at - now) if needed > self.remaining else 0.0


class Quota:
    """Delays calls that the upstream would reject, until the advertised reset or a better advertisement.

    Calls sent in between are deducted from what the upstream advertised. A quota is that of one model.
    """

    __slots__ = ("_calls", "_tokens")

    def __init__(self) -> None:
        self._calls = _Allowance()
        self._tokens = _Allowance()

    def wait(self, tokens: int, now: float) -> float:
        """Seconds until the quota admits a call of `tokens`; 0.0 is now."""
        return max(self._calls.wait(1, now), self._tokens.wait(tokens, now))

    def note(self, tokens: int) -> None:
        """Deduct a call that was sent."""
        self._calls.remaining -= 1
        self._tokens.remaining -= tokens

    def learn(self, headers: Mapping[str, str], now: float) -> bool:
        """Read an answer's headers (lower-case names) and return whether they say anything.

        A malformed count or duration is ignored.
        """
        learned = False
        for allowance, unit in ((self._calls, "requests"), (self._tokens, "tokens")):
            remaining = headers.get(f"x-ratelimit-remaining-{unit}")
            if remaining is None or _COUNT.fullmatch(remaining) is None:
                continue
            limit = headers.get(f"x-ratelimit-limit-{unit}", "1")
            if limit.startswith("-") or limit.strip("0") == "":
                continue  # Azure: nothing left of 0 or of -1 says nothing
            reset = duration(headers.get(f"x-ratelimit-reset-{unit}", ""))
            if reset is not None:
                allowance.remaining, allowance.resets_at = int(remaining), now + min(reset, LONGEST_S)
                learned = True
        return learned


Quotas = dict[tuple[str, str], Quota]
"""By upstream and its name of the model: an upstream's headers speak of the model that answered."""


def duration(text: str) -> float | None:
    """Seconds from `12ms`, `1s`, `6m0s`, `1m30.5s` or plain seconds; None from anything else."""
    if _SECONDS.fullmatch(text):
        return float(text)
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        return None
    return sum(float(part) * unit for part, unit in zip(match.groups(), _UNITS, strict=True) if part)
