"""What /admin/budgets shows: from one account, and from those of several workers."""

import msgspec
import pytest

from gateway.core.budget_status import BudgetStatus, BudgetView, combined

MIDNIGHT = "2026-12-02T00:00:00Z"
DOLLAR = 1_000_000_000


@pytest.mark.parametrize(
    ("used", "reserved", "spent", "left"),
    [
        (0, 0, 0, 10),
        (4, 1, 3, 6),
        (10, 10, 0, 0),
        (12, 0, 12, 0),  # overdrawn by a call without a cap
        (3, 5, 0, 7),  # reserved before midnight
        (3, -1, 3, 7),
    ],
)
def test_what_is_reserved_is_not_spent(used: int, reserved: int, spent: int, left: int) -> None:
    status = BudgetStatus.of(10, used, reserved, MIDNIGHT)
    assert (status.spent, status.left) == (spent, left)
    assert status.spent + status.reserved == used


def test_a_view_keeps_every_nano_dollar() -> None:
    status = BudgetStatus.of(2 * DOLLAR, DOLLAR + 7, 5, MIDNIGHT)
    sent = msgspec.json.encode(BudgetView.of(status))
    assert msgspec.json.decode(sent) == {
        "left_usd": "0.999999993",
        "limit_usd": "2",
        "spent_usd": "1.000000002",
        "reserved_usd": "0.000000005",
        "resets_at": MIDNIGHT,
    }
    assert msgspec.json.decode(sent, type=BudgetView).status() == status


def test_workers_add_up_what_they_reserve_and_believe_the_latest() -> None:
    views = [BudgetStatus.of(10, 6, 2, MIDNIGHT), BudgetStatus.of(10, 7, 1, MIDNIGHT)]
    assert combined(views) == BudgetStatus(10, 4, 3, MIDNIGHT)
    assert combined(views).left == 3
    assert combined(views[:1]) == views[0]
