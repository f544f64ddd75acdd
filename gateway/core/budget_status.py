"""What /admin/budgets shows of the budget of one key's day."""

from collections.abc import Iterable

from msgspec import Struct

from gateway.core.units import parse_usd, usd


class BudgetStatus(Struct, frozen=True):
    """Nano-dollars of one day. `reserved` is held by calls under way and not in `spent`.

    `resets_at` is when the next day begins, in UTC.
    """

    limit: int
    spent: int
    reserved: int
    resets_at: str

    @classmethod
    def of(cls, limit: int, used: int, reserved: int, resets_at: str) -> "BudgetStatus":
        """From `used`, which includes what is reserved."""
        reserved = max(0, min(reserved, used))
        return cls(limit, used - reserved, reserved, resets_at)

    @property
    def left(self) -> int:
        """Nano-dollars that new calls may still use."""
        return max(0, self.limit - self.spent - self.reserved)


class BudgetView(Struct, frozen=True):
    """A status as JSON."""

    left_usd: str
    limit_usd: str
    spent_usd: str
    reserved_usd: str
    resets_at: str

    @classmethod
    def of(cls, status: BudgetStatus) -> "BudgetView":
        """The view of a status."""
        amounts = (status.left, status.limit, status.spent, status.reserved)
        left, limit, spent, reserved = map(usd, amounts)
        return cls(left, limit, spent, reserved, status.resets_at)

    def status(self) -> BudgetStatus:
        """The status that this view shows."""
        limit, spent, reserved = map(parse_usd, (self.limit_usd, self.spent_usd, self.reserved_usd))
        return BudgetStatus(limit, spent, reserved, self.resets_at)


def combined(statuses: Iterable[BudgetStatus]) -> BudgetStatus:
    """One status from those of the workers.

    The one that has seen the most use has the latest state; what is reserved adds up.
    """
    seen = list(statuses)
    latest = max(seen, key=lambda status: status.spent + status.reserved)
    used = latest.spent + latest.reserved
    return BudgetStatus.of(latest.limit, used, sum(status.reserved for status in seen), latest.resets_at)
