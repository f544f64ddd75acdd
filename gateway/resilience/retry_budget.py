"""Whether and when to try again: the share of extra calls, the pause before one, how many there may be."""

from collections.abc import Callable
from random import Random
from typing import Final

from gateway.resilience.rolling_counter import RollingCounter

RESERVE: Final = 3.0
_DOUBLINGS: Final = 60  # more would leave the range of floats


class RetryBudget:
    """How many extra calls an upstream's failures may still cause, so that they never multiply the load.

    It starts with `reserve` calls and grows by `share` of one with every request, up to that share of the
    requests of the last 10 s, or `reserve` if that is more.

    `earn(now)` tells of a call that makes its first attempt, and is not itself a client's retry.
    """

    __slots__ = ("_balance", "_paid", "_requests", "_reserve", "_share", "deposit")

    def __init__(self, share: float, reserve: float = RESERVE) -> None:
        self._share = share
        self._reserve = reserve
        self._balance = reserve
        self._requests = RollingCounter()
        self._paid = 0  # requests that the balance holds
        self.deposit: Callable[[float], None] = self._requests.add  # every call does: one frame less

    def try_withdraw(self, now: float) -> bool:
        """Whether there is one more call to have; if so it is taken."""
        # The bound rises by no more than the balance grows with each request. So the balance may be cut down
        # to it here alone, and is what cutting at every moment would have left.
        bound = max(self._reserve, self._share * self._requests.count(now))
        requests = self._requests.ever
        self._balance = min(bound, self._balance + self._share * (requests - self._paid))
        self._paid = requests
        if self._balance < 1.0:
            return False
        self._balance -= 1.0
        return True


def backoff(n: int, base_s: float, max_s: float, rng: Random) -> float:
    """Seconds before the n-th retry (from 1): full jitter, so that many do not come back all at once.

    Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """
    return rng.uniform(0.0, min(max_s, base_s * 2.0 ** min(n - 1, _DOUBLINGS)))


def pause(
    asked_s: float | None, n: int, base_s: float, max_s: float, left_s: float, rng: Random
) -> float | None:
    """Seconds before the n-th retry at the upstream that failed; None: it is not to be tried again.

    `asked_s` is its own Retry-After: it is never called earlier than it asks, and not at all where that is
    longer than `max_s`. `left_s` is what remains until the call's deadline.
    """
    seconds = backoff(n, base_s, max_s, rng)
    if asked_s is not None:
        if asked_s > max_s:
            return None
        seconds = min(max_s, max(0.0, asked_s) + seconds)
    return seconds if seconds < left_s else None


def own_attempts(attempts: int, sent_before: int) -> int:
    """Calls that may be made for a request which its client has already sent so many times before."""
    return max(1, attempts - sent_before)


def client_retries(header: str | None) -> int:
    """How many times an SDK has sent this request before (its `x-stainless-retry-count`); nonsense is 0."""
    return int(header) if header and len(header) <= 4 and header.isascii() and header.isdigit() else 0
