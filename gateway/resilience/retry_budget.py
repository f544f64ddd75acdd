"""Whether and when to retry: the retry budget, the backoff, the bound on attempts."""

from collections.abc import Callable
from random import Random
from typing import Final

from gateway.resilience.rolling_counter import RollingCounter

RESERVE: Final = 3.0
_DOUBLINGS: Final = 60  # more would leave the range of floats


class RetryBudget:
    """The retries that one upstream's failures may still cause (Finagle's RetryBudget).

    It starts with `reserve` retries. Every request deposits `share` of one, up to that share of the requests
    of the last 10 s, or up to `reserve` if that is more.

    `deposit(now)` is called for each first attempt, unless it is itself a client's retry.
    """

    __slots__ = ("_balance", "_paid", "_requests", "_reserve", "_share", "deposit")

    def __init__(self, share: float, reserve: float = RESERVE) -> None:
        self._share = share
        self._reserve = reserve
        self._balance = reserve
        self._requests = RollingCounter()
        self._paid = 0  # requests counted in the balance
        self.deposit: Callable[[float], None] = (
            self._requests.add
        )  # bound directly: every call makes one, and saves a frame

    def try_withdraw(self, now: float) -> bool:
        """Withdraws one retry; False if the balance does not cover it."""
        # The bound rises by no more than the balance does with each request, so capping the balance here
        # gives the same as capping it at every moment.
        bound = max(self._reserve, self._share * self._requests.count(now))
        requests = self._requests.total
        self._balance = min(bound, self._balance + self._share * (requests - self._paid))
        self._paid = requests
        if self._balance < 1.0:
            return False
        self._balance -= 1.0
        return True


def backoff(n: int, base_s: float, max_s: float, rng: Random) -> float:
    """Seconds before the n-th retry (from 1), with full jitter.

    Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """
    return rng.uniform(0.0, min(max_s, base_s * 2.0 ** min(n - 1, _DOUBLINGS)))


def pause(asked_s: float | None, n: int, base_s: float, max_s: float, left_s: float, rng: Random) -> float | None:
    """Seconds before the n-th retry at the upstream that failed; None if there is to be none.

    `asked_s` is the upstream's Retry-After: a retry is never earlier, and none is made if it exceeds `max_s`.
    `left_s` is the time until the call's deadline.
    """
    seconds = backoff(n, base_s, max_s, rng)
    if asked_s is not None:
        if asked_s > max_s:
            return None
        seconds = min(max_s, max(0.0, asked_s) + seconds)
    return seconds if seconds < left_s else None


def own_attempts(attempts: int, sent_before: int) -> int:
    """The attempts left for a request that its client has sent `sent_before` times already."""
    return max(1, attempts - sent_before)


def client_retries(header: str | None) -> int:
    """How often an SDK has sent this request before, by its `x-stainless-retry-count`; 0 if unreadable."""
    return int(header) if header and len(header) <= 4 and header.isascii() and header.isdigit() else 0
