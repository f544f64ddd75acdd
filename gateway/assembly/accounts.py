"""What keys have used, while the gateway runs and over its restarts: their accounts and the usage ledger."""

from collections.abc import Callable, Mapping
from functools import lru_cache

from gateway.assembly.upstreams import terms
from gateway.config import model as cfg
from gateway.core.budget_calendar import Calendar
from gateway.core.call import Call
from gateway.core.caller import KeyLimits, LimitAccount
from gateway.core.clock import Clock, monotonic, unix
from gateway.http.server.admin import AdminUnavailable, View
from gateway.http.ticker import Ticker
from gateway.limits.account import Account
from gateway.limits.gcra import Meter
from gateway.limits.shared_limits import SharedAccount, SharedLimits
from gateway.reporting.admin_views import SavingsView
from gateway.telemetry.metrics import Metrics
from gateway.usage.accounting import LedgerEntries, Paid
from gateway.usage.ledger import Ledger
from gateway.usage.redis_store import RedisUsageStore
from gateway.usage.sqlite_store import SqliteUsageStore
from gateway.usage.store import UsageStore, UsageUnavailable, report

_DAYS = 30
_LONGEST_REPORT = 3660


class UsageReport:
    """`/admin/usage?days=30&key=NAME`."""

    def __init__(self, usage: Ledger | UsageStore | None, calendar: Calendar, clock: Clock) -> None:
        self._usage = usage
        self._calendar = calendar
        self._clock = clock

    async def __call__(self, query: Mapping[str, str]) -> object:
        """The rows, newest day first; what is wrong is told in `error`."""
        if self._usage is None:
            return {"error": "usage is not kept; set usage.store to sqlite or redis"}
        days = query.get("days", str(_DAYS))
        if not (days.isascii() and days.isdigit() and 1 <= int(days[:9]) <= _LONGEST_REPORT):
            return {"error": f"days must be a whole number from 1 to {_LONGEST_REPORT}"}
        now = self._clock()
        try:
            rows = await self._usage.rows(self._calendar.before(now, int(days) - 1), self._calendar.day(now))
        except UsageUnavailable as error:
            return AdminUnavailable(str(error))
        return report(rows, query.get("key"))


class Accounts:
    """`of` has the account of each key that is limited. A Watcher: keeps the calendar and a gauge right.

    An account is known by its key's name, through changes of its limits and of the key itself.
    """

    def __init__(self, config: cfg.Config, metrics: Metrics, sweep: Ticker) -> None:
        self.calendar = Calendar(config.server.timezone, unix(), monotonic())
        self.of: dict[str, LimitAccount] = {}
        self._all: dict[str, Account | SharedAccount] = {}  # of keys that have been taken out too
        store = usage_store(config)
        self._ledger = Ledger(store, failed=metrics.usage_errors.inc) if store is not None else None
        self._books = LedgerEntries(self._ledger) if self._ledger is not None else None
        self._metrics = metrics
        self._shared: SharedLimits | None = None
        self._connected = False
        self._sweep = sweep

    async def start(self) -> None:
        """Open the ledger."""
        if self._ledger is not None:
            await self._ledger.start()
        self._sweep.add(self)

    async def spent(self, config: cfg.Config) -> dict[str, int]:
        """Nano-dollars of today, of the keys that have a budget in this config and none now.

        UsageTrouble where that cannot be known.
        """
        budgeted = {name for name, one in self.of.items() if one.limits.usd_per_day is not None}
        new = {key.name for key in config.keys if key.limits.usd_per_day is not None} - budgeted
        if self._ledger is None or not new:
            return {}
        spent = await self._ledger.spent(self.calendar.day(monotonic()))
        return {name: spent.get(name, 0) for name in new}

    def take(self, config: cfg.Config, spent: Mapping[str, int]) -> None:
        """The keys and limits are these from now on; `spent` is what `spent` has told."""
        limited = {key.name: found for key in config.keys if (found := terms(key.limits)) is not None}
        if config.redis is not None and limited and self._shared is None:
            self._shared = _shared(config, self._metrics)
        today = self.calendar.day(monotonic())
        for name, limits in limited.items():
            account = self._all[name] = self._account(name, limits, today)
            if name in spent:
                _remember(account, today, spent[name])
        self.of = {name: self._all[name] for name in limited}
        self.tick(monotonic())

    def _account(self, name: str, limits: KeyLimits, today: str) -> Account | SharedAccount:
        known = self._all.get(name)
        if self._shared is not None:
            if isinstance(known, SharedAccount) and known.limits == limits:
                return known
            # Its state is in Redis, under the name; calls under way settle it with the one they have.
            account = self._shared.account(name, limits)
            if known is not None:
                account.remember(today, known.spent(today))
            return account
        if not isinstance(known, Account):
            return Account(limits, today)
        known.requests = _resumed(known.requests, limits.rpm)
        known.tokens = _resumed(known.tokens, limits.tpm)
        known.limits = limits
        return known

    async def connect(self) -> None:
        """To Redis, if there is anything to share."""
        if self._shared is not None and not self._connected:
            self._connected = True
            await self._shared.start()
            self.tick(monotonic())

    @property
    def keeps(self) -> bool:
        """Whether there is a ledger."""
        return self._ledger is not None

    def tick(self, now: float) -> None:
        """Watcher: the wall clock may have been set."""
        self.calendar.anchor(unix(), now)
        if self._shared is not None:
            self._metrics.redis_up.set(self._shared.link.up)

    def books(self) -> tuple[Paid, ...]:
        """What enters an attempt of a call that is over into the ledger, where there is one."""
        return () if self._books is None else (self._books.paid,)

    def spared(self, call: Call) -> None:
        """Enter a call that needed no upstream of its own."""
        if self._books is not None:
            self._books.spared(call)

    def budgets(self) -> dict[str, int]:
        """What is left of today's budgets, in nano-dollars, by the names of the keys that have one."""
        today, left = self.calendar.day(monotonic()), {}
        for name in self.of:
            account = self._all[name]
            if account.limits.usd_per_day is not None:
                left[name] = max(0, account.limits.usd_per_day - account.spent(today))
        return left

    def views(self, config: Callable[[], cfg.Config]) -> Mapping[str, View]:
        """What the admin port shows; `config` gives the one in force."""
        return usage_views(self._ledger, self.calendar, config)

    async def stop(self) -> None:
        """Write down what is left."""
        self._sweep.discard(self)
        if self._shared is not None:
            await self._shared.stop()
        if self._ledger is not None:
            await self._ledger.stop()


def _resumed(meter: Meter | None, limit: float | None) -> Meter | None:
    """The meter for a limit: of a new one the same part is used up as of the old one, as in Redis."""
    if limit is None:
        return None
    resumed = Meter(limit)
    if meter is not None:
        resumed.tat, resumed.admitted = meter.tat, meter.admitted
    return resumed


def _remember(account: Account | SharedAccount, today: str, spent: int) -> None:
    """Nano-dollars that the ledger knows of."""
    if isinstance(account, SharedAccount):
        account.remember(today, spent)
    elif spent > account.spent(today):
        account.day, account.spent_today = today, spent


def _shared(config: cfg.Config, metrics: Metrics) -> SharedLimits:
    redis = config.redis
    if redis is None:
        raise AssertionError("only called with one")
    failed = lru_cache(maxsize=None)(metrics.redis_errors.labels)
    shared = SharedLimits(
        redis.url,
        redis.timeout,
        redis.prefix,
        redis.on_failure,
        lambda kind: failed(kind).inc(),
        processes=config.server.workers,
    )
    metrics.registry.register(metrics.redis_up)
    return shared


def usage_views(
    usage: Ledger | UsageStore | None, calendar: Calendar, config: Callable[[], cfg.Config]
) -> Mapping[str, View]:
    """`/admin/usage` and `/admin/savings`; `config` gives the one in force."""
    return {
        "usage": UsageReport(usage, calendar, monotonic),
        "savings": SavingsView(usage, calendar, monotonic, config),
    }


def usage_store(config: cfg.Config) -> UsageStore | None:
    """Where usage lasts; None: nowhere."""
    if config.usage.store == "redis" and config.redis is not None:
        return RedisUsageStore(config.redis.url, config.redis.prefix)
    return SqliteUsageStore(config.usage.path) if config.usage.store == "sqlite" else None
