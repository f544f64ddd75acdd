"""A sliding window log of the last minute, for upstreams that count any 60 seconds."""

import math
from collections import deque
from typing import Final

SPAN_S: Final = 60.5
"""Half a second more than a minute, because two calls may take unequal time to reach the upstream."""


class Window:
    """At most `calls` calls and `tokens` tokens in any SPAN_S seconds (None: no bound)."""

    __slots__ = ("_calls", "_sent", "_sum", "_tokens")

    def __init__(self, calls: float | None, tokens: float | None) -> None:
        # A window of a minute cannot express less than one call a minute; the meter does.
        self._calls = math.inf if calls is None else max(1, math.floor(calls))
        self._tokens = math.inf if tokens is None else tokens
        self._sent: deque[tuple[float, int]] = deque()
        self._sum = 0

    def wait(self, tokens: int, now: float) -> float:
        """Seconds until a call of `tokens` fits; 0.0 is now, `math.inf` never."""
        sent = self._sent
        while sent and sent[0][0] + SPAN_S <= now:
            self._sum -= sent.popleft()[1]
        calls_over = len(sent) + 1 - self._calls
        tokens_over = self._sum + tokens - self._tokens
        if calls_over <= 0 and tokens_over <= 0:
            return 0.0
        for at, cost in sent:
            calls_over -= 1
            tokens_over -= cost
            if calls_over <= 0 and tokens_over <= 0:
                return at + SPAN_S - now
        return math.inf

    def note(self, tokens: int, now: float) -> None:
        """Count a call that was sent."""
        self._sent.append((now, tokens))
        self._sum += tokens
