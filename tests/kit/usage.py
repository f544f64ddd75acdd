"""The whole content of a usage store or a ledger."""

import datetime
from typing import Protocol

from gateway.usage.store import FIRST, Names, UsagePage, UsageRow


class Pages(Protocol):
    """A store or a ledger."""

    async def page(self, day: str, after: Names, limit: int, key: str | None = None) -> UsagePage:
        """See `UsageStore.page`."""


async def rows(usage: Pages, first_day: str, last_day: str, limit: int = 2, key: str | None = None) -> list[UsageRow]:
    """The rows of these days, page by page."""
    found: list[UsageRow] = []
    day = datetime.date.fromisoformat(first_day)
    while day.isoformat() <= last_day:
        after, more = FIRST, True
        while more:
            page, more = await usage.page(day.isoformat(), after, limit, key)
            found += page
            after = page[-1][1:4] if page else after
        day += datetime.timedelta(1)
    return found
