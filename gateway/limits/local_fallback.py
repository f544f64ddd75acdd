"""The degraded mode of an account while Redis is away: this process's share of the limits."""

from typing import Final

from msgspec.structs import replace

from gateway.core.caller import KeyLimits, LimitStatus
from gateway.limits.account import Account, Denial, Reservation, ReservationRequest
from gateway.limits.account_snapshot import AccountSnapshot
from gateway.limits.gcra import Meter


class LocalFallback:
    """One period without Redis. `processes` share the limits; 0 admits without any limit.

    It starts at the level of the snapshot, not with a fresh burst. Only what it adds to that level is merged
    into the shared account afterwards, so the levels of all processes add up to what a single process would
    show.
    """

    def __init__(
        self, limits: KeyLimits, processes: int, snapshot: AccountSnapshot, in_flight: int, now: float
    ) -> None:
        """`in_flight` is how many slots this process holds in Redis."""
        self._limits = limits
        self._processes = processes
        self._snapshot = snapshot
        requests_reset, tokens_reset = snapshot.resets(now)
        self._requests_from, self._tokens_from = now + requests_reset, now + tokens_reset
        self.open: Final[dict[str, Reservation]] = {}
        """Unsettled reservations by id."""
        self.net: Final[dict[str, int]] = {}
        """Nano-dollars by day: spent, or reserved by unsettled reservations."""
        self._account = Account(self._share(""))
        self._account.in_flight = in_flight
        if self._account.requests is not None:
            self._account.requests.tat = self._requests_from
        if self._account.tokens is not None:
            self._account.tokens.tat = self._tokens_from

    def reserve(self, request: ReservationRequest, day: str, now: float, id: str) -> Reservation | Denial:
        """Reserve as `Account.reserve` does.

        A call larger than the share, but not than the whole limit, is admitted when the meter is empty and
        leaves it in debt.
        """
        account, debt = self._account, 0
        if day > account.day:
            account.limits = self._share(day)
        share, limit = account.limits.tpm, self._limits.tpm
        if share is not None and limit is not None and share < request.committed <= limit:
            debt = request.committed - int(share)
            request = replace(request, committed=int(share))
        outcome = account.reserve(request, day, now, id)
        if isinstance(outcome, Reservation):
            if debt and account.tokens is not None:
                outcome.tokens += debt
                outcome.watermark = account.tokens.take(debt, now)
            self.open[id] = outcome
            self.net[outcome.day] = self.net.get(outcome.day, 0) + outcome.cost
        return outcome

    def settle(self, reservation: Reservation, tokens: int, cost: int, now: float) -> None:
        """Settle as `Account.settle` does."""
        del self.open[reservation.id]
        self.net[reservation.day] += cost - reservation.cost
        self._account.settle(reservation, tokens, cost, now)

    def release_slot(self) -> None:
        """Free a slot that this process held in Redis."""
        self._account.in_flight -= 1

    def status(self, now: float) -> LimitStatus:
        """What is left of the share."""
        return self._account.status(now)

    def added(self, now: float) -> tuple[float, float]:
        """Requests and tokens in the meters that the shared account does not have yet."""
        requests, tokens = self._account.requests, self._account.tokens
        return _above(requests, self._requests_from, now), _above(tokens, self._tokens_from, now)

    def mark_merged(self) -> None:
        """Note that the shared account now has all of it, unsettled reservations included."""
        self.open.clear()
        self.net.clear()
        if self._account.requests is not None:
            self._requests_from = self._account.requests.tat
        if self._account.tokens is not None:
            self._tokens_from = self._account.tokens.tat

    def tokens_taken(self) -> float:
        """Total taken from the token meter: the highest watermark."""
        return self._account.tokens.admitted if self._account.tokens is not None else 0.0

    def _share(self, day: str) -> KeyLimits:
        if not self._processes:
            return KeyLimits()
        rpm, tpm, concurrency, budget = self._limits
        return KeyLimits(
            max(1.0, rpm / self._processes) if rpm is not None else None,
            max(1.0, tpm / self._processes) if tpm is not None else None,
            max(1, concurrency // self._processes) if concurrency is not None else None,
            max(0, budget - self._snapshot.spent(day)) // self._processes if budget is not None else None,
        )


def _above(meter: Meter | None, level: float, now: float) -> float:
    if meter is None:
        return 0.0
    return max(0.0, meter.tat - max(level, now)) * meter.limit / 60
