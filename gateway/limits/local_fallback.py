"""One process without Redis: its share of the limits, from where the shared account was last seen."""

from typing import Final

from msgspec.structs import replace

from gateway.core.caller import KeyLimits, LimitStatus
from gateway.limits.account import Account, Denial, Reservation, ReservationRequest
from gateway.limits.account_snapshot import AccountSnapshot
from gateway.limits.gcra import Meter


class LocalFallback:
    """A spell without Redis. `share` is how many processes there are; 0 admits without any limit.

    It begins at the level last seen, not at a fresh burst. What it adds to that level is what the shared
    account has to hear of afterwards: the levels of all processes then add up to what one would show.
    """

    def __init__(self, terms: KeyLimits, share: int, sight: AccountSnapshot, busy: int, now: float) -> None:
        """`busy` is how many places this process holds in Redis."""
        self._terms = terms
        self._share = share
        self._sight = sight
        requests_reset, tokens_reset = sight.resets(now)
        self._requests_from, self._tokens_from = now + requests_reset, now + tokens_reset
        self.open: Final[dict[str, Reservation]] = {}
        """Reservations under way, by id."""
        self.net: Final[dict[str, int]] = {}
        """Nano-dollars by day: spent, or reserved by what is under way."""
        self._account = Account(self._terms_of(""))
        self._account.in_flight = busy
        if self._account.requests is not None:
            self._account.requests.tat = self._requests_from
        if self._account.tokens is not None:
            self._account.tokens.tat = self._tokens_from

    def reserve(self, ask: ReservationRequest, day: str, now: float, id: str) -> Reservation | Denial:
        """As Account does. A call larger than the share is let through into an empty meter, and owed for."""
        account, owed = self._account, 0
        if day > account.day:
            account.limits = self._terms_of(day)
        share, whole = account.limits.tpm, self._terms.tpm
        if share is not None and whole is not None and share < ask.committed <= whole:
            owed = ask.committed - int(share)
            ask = replace(ask, committed=int(share))
        outcome = account.reserve(ask, day, now, id)
        if isinstance(outcome, Reservation):
            if owed and account.tokens is not None:
                outcome.tokens += owed
                outcome.watermark = account.tokens.take(owed, now)
            self.open[id] = outcome
            self.net[outcome.day] = self.net.get(outcome.day, 0) + outcome.cost
        return outcome

    def settle(self, reservation: Reservation, tokens: int, cost: int, now: float) -> None:
        """As Account does."""
        del self.open[reservation.id]
        self.net[reservation.day] += cost - reservation.cost
        self._account.settle(reservation, tokens, cost, now)

    def freed(self) -> None:
        """A place that this process held in Redis is free."""
        self._account.in_flight -= 1

    def status(self, now: float) -> LimitStatus:
        """What is left of the share."""
        return self._account.status(now)

    def added(self, now: float) -> tuple[float, float]:
        """Requests and tokens that stand in the meters beyond what the shared account knows."""
        requests, tokens = self._account.requests, self._account.tokens
        return _above(requests, self._requests_from, now), _above(tokens, self._tokens_from, now)

    def entered(self) -> None:
        """The shared account knows all of it now; what is under way is held there."""
        self.open.clear()
        self.net.clear()
        if self._account.requests is not None:
            self._requests_from = self._account.requests.tat
        if self._account.tokens is not None:
            self._tokens_from = self._account.tokens.tat

    def tokens_taken(self) -> float:
        """All that the meter of tokens took: the marks count up to it."""
        return self._account.tokens.admitted if self._account.tokens is not None else 0.0

    def _terms_of(self, day: str) -> KeyLimits:
        if not self._share:
            return KeyLimits()
        rpm, tpm, concurrency, budget = self._terms
        return KeyLimits(
            max(1.0, rpm / self._share) if rpm is not None else None,
            max(1.0, tpm / self._share) if tpm is not None else None,
            max(1, concurrency // self._share) if concurrency is not None else None,
            max(0, budget - self._sight.spent(day)) // self._share if budget is not None else None,
        )


def _above(meter: Meter | None, begin: float, now: float) -> float:
    if meter is None:
        return 0.0
    return max(0.0, meter.tat - max(begin, now)) * meter.limit / 60
