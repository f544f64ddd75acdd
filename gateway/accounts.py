"""What keys have used, while the gateway runs and over its restarts: their accounts and the usage ledger."""

from collections.abc import Mapping
from functools import lru_cache

from gateway.assembly import terms
from gateway.call import Call, Ledgered, Terms, Tokens
from gateway.clock import Clock, monotonic, unix
from gateway.config import model as cfg
from gateway.edge.sweep import Sweep
from gateway.metrics import Metrics
from gateway.policy.account import Account
from gateway.policy.calendar import Calendar
from gateway.store.ledger import Ledger
from gateway.store.redis_limits import SharedLimits
from gateway.store.usage import UsageStore, UsageTrouble, report
from gateway.store.usage_redis import RedisUsage
from gateway.store.usage_sqlite import SqliteUsage

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
        except UsageTrouble as error:
            return {"error": str(error)}
        return report(rows, query.get("key"))


class Accounts:
    """`of` has the account of each key that is limited. A Watcher: keeps the calendar and a gauge right."""

    def __init__(self, config: cfg.Config, metrics: Metrics, sweep: Sweep) -> None:
        self.calendar = Calendar(config.server.timezone, unix(), monotonic())
        self.of: dict[str, Ledgered] = {}
        self._limited: dict[str, Terms] = {
            key.name: found for key in config.keys if (found := terms(key.limits)) is not None
        }
        store = usage_store(config)
        self._ledger = Ledger(store) if store is not None else None
        self._shared = _shared(config, metrics) if config.redis is not None and self._limited else None
        self._redis_up = metrics.redis_up
        self._sweep = sweep

    async def start(self) -> None:
        """Open the ledger, and the accounts with what has been spent today.

        UsageTrouble where that cannot be known.
        """
        spent: dict[str, int] = {}
        today = self.calendar.day(monotonic())
        if self._ledger is not None:
            await self._ledger.start()
            if any(limits.usd_per_day is not None for limits in self._limited.values()):
                spent = await self._ledger.spent(today)
        for name, limits in self._limited.items():
            if self._shared is not None:
                account = self._shared.account(name, limits)
                account.remember(today, spent.get(name, 0))
                self.of[name] = account
            else:
                self.of[name] = Account(limits, today, spent.get(name, 0))
        if self._shared is not None:
            await self._shared.start()
        self.tick(monotonic())
        self._sweep.add(self)

    @property
    def keeps(self) -> bool:
        """Whether there is a ledger."""
        return self._ledger is not None

    def tick(self, now: float) -> None:
        """Watcher: the wall clock may have been set."""
        self.calendar.anchor(unix(), now)
        if self._shared is not None:
            self._redis_up.set(self._shared.link.up)

    def book(self, call: Call, used: Tokens, now: float) -> None:
        """Enter a call that is over into the ledger."""
        if self._ledger is None or call.caller is None or call.route is None or call.candidate is None:
            return
        self._ledger.add(
            call.day, call.caller.name, call.route.name, call.candidate.upstream, used, call.cost or 0
        )

    def report(self) -> UsageReport:
        """What the admin port shows."""
        return UsageReport(self._ledger, self.calendar, monotonic)

    async def stop(self) -> None:
        """Write down what is left."""
        self._sweep.discard(self)
        if self._shared is not None:
            await self._shared.stop()
        if self._ledger is not None:
            await self._ledger.stop()


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


def usage_store(config: cfg.Config) -> UsageStore | None:
    """Where usage lasts; None: nowhere."""
    if config.usage.store == "redis" and config.redis is not None:
        return RedisUsage(config.redis.url, config.redis.prefix)
    return SqliteUsage(config.usage.path) if config.usage.store == "sqlite" else None
