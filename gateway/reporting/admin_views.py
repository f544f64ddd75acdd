"""`/admin/savings?days=30`: the report's figures from a running gateway."""

import asyncio
from collections.abc import Callable, Mapping

from gateway.config.model import Config
from gateway.core.budget_calendar import Calendar
from gateway.core.clock import Clock, unix
from gateway.http.server.admin import AdminUnavailable
from gateway.pricing.resolver import Pricing
from gateway.reporting.figures import figures
from gateway.reporting.json_output import as_json
from gateway.reporting.period import DAYS, PeriodError, last_days
from gateway.reporting.sources import Priced, machines, prices
from gateway.usage.ledger import Ledger
from gateway.usage.store import UsageStore, UsageUnavailable


class SavingsView:
    """What `sluice report --format json` prints, from this moment."""

    def __init__(
        self,
        usage: Ledger | UsageStore | None,
        calendar: Calendar,
        clock: Clock,
        config: Callable[[], Config],
    ) -> None:
        """`config` gives the one in force; `clock` is the calendar's."""
        self._usage = usage
        self._calendar = calendar
        self._clock = clock
        self._config = config

    async def __call__(self, query: Mapping[str, str]) -> object:
        """What is wrong is told in `error`."""
        if self._usage is None:
            return {"error": "usage is not kept; set usage.store to sqlite or redis"}
        config = self._config()
        try:
            today = self._calendar.day(self._clock())
            period = last_days(query.get("days", str(DAYS)), today, config.server.timezone)
            books = await self._usage.books(period.first, period.last)
        except PeriodError as error:
            return {"error": str(error)}
        except UsageUnavailable as error:
            return AdminUnavailable(str(error))
        # It may have to load the catalogue.
        priced = await asyncio.to_thread(_prices, config)
        return as_json(figures(books, period, priced, list(machines(config, books, period))))


def _prices(config: Config) -> list[Priced]:
    return list(prices(config, Pricing(unix)))
