"""`/admin/savings?days=30`: the figures of the savings report from a running gateway."""

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
    """Returns what `sluice report --format json` prints."""

    def __init__(
        self,
        usage: Ledger | UsageStore | None,
        calendar: Calendar,
        clock: Clock,
        config: Callable[[], Config],
    ) -> None:
        """`config` returns the current config; `clock` is the calendar's."""
        self._usage = usage
        self._calendar = calendar
        self._clock = clock
        self._config = config

    async def __call__(self, query: Mapping[str, str]) -> object:
        """Return the report, or an `error` for a bad query."""
        if self._usage is None:
            return {"error": "usage is not recorded; set usage.store to sqlite or redis"}
        config = self._config()
        try:
            today = self._calendar.day(self._clock())
            period = last_days(query.get("days", str(DAYS)), today, config.server.timezone)
            usage = await self._usage.summary(period.first, period.last)
        except PeriodError as error:
            return {"error": str(error)}
        except UsageUnavailable as error:
            return AdminUnavailable(str(error))
        # In a thread, because it may import the price catalogue.
        priced = await asyncio.to_thread(_prices, config)
        return as_json(figures(usage, period, priced, list(machines(config, usage, period, unix()))))


def _prices(config: Config) -> list[Priced]:
    return list(prices(config, Pricing(unix)))
