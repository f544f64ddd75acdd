"""The accounts of the keys and the usage ledger, which outlive reloads and restarts."""

import datetime
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from gateway.assembly.upstreams import key_limits
from gateway.config import model as cfg
from gateway.core.budget_calendar import Calendar
from gateway.core.budget_status import BudgetStatus
from gateway.core.call import Call
from gateway.core.caller import KeyLimits, LimitAccount, LimitStatus
from gateway.core.clock import Clock
from gateway.http.server.admin import AdminUnavailable, View
from gateway.http.server.paced import LongArray
from gateway.http.ticker import Ticker
from gateway.limits.account import Account
from gateway.limits.gcra import Meter
from gateway.limits.shared_limits import SharedAccount, SharedLimits
from gateway.reporting.admin_views import SavingsView
from gateway.telemetry.metrics import Metrics
from gateway.usage.accounting import AttemptRecorder, LedgerEntries
from gateway.usage.ledger import Ledger
from gateway.usage.redis_store import RedisUsageStore
from gateway.usage.sqlite_store import SqliteUsageStore
from gateway.usage.store import FIRST, NAMES, UsageRow, UsageStore, UsageUnavailable, row_json

_DAYS = 30
_PAGE = 1000
_FORGOTTEN_AT_ONCE = 500
_LONGEST_REPORT = 3660
MAX_VOUCHED: Final = 10_000
"""Callers of identity providers with an account of their own; further ones share one for each group."""
_IDLE_S: Final = 90_000.0  # longer than any day: such a caller's budget and meters are whole again


class UsageReport:
    """Answers `/admin/usage?days=30&key=NAME&by=key,model`."""

    def __init__(self, usage: Ledger | UsageStore | None, calendar: Calendar, clock: Clock) -> None:
        self._usage = usage
        self._calendar = calendar
        self._clock = clock

    async def __call__(self, query: Mapping[str, str]) -> object:
        """The rows, newest day first, or an object with `error`."""
        if self._usage is None:
            return {"error": "usage is not recorded; set usage.store to sqlite or redis"}
        days, key, by = query.get("days", str(_DAYS)), query.get("key"), query.get("by")
        if not (days.isascii() and days.isdigit() and 1 <= int(days[:9]) <= _LONGEST_REPORT):
            return {"error": f"days must be a whole number from 1 to {_LONGEST_REPORT}"}
        names = NAMES if by is None else tuple(by.split(","))
        if not set(names) <= set(NAMES):
            return {"error": f"by must be some of {', '.join(NAMES)}, separated by commas"}
        now = self._clock()
        wanted = [self._calendar.before(now, ago) for ago in range(int(days))]
        try:
            if by is not None:
                return _sums(await self._usage.totals(wanted[-1], wanted[0], names, key), names)
            pages = _pages(self._usage, wanted, key)
            first: list[UsageRow] = await anext(pages, [])
        except UsageUnavailable as error:
            return AdminUnavailable(str(error))
        return LongArray(_rows(first, pages))


def _sums(rows: Iterable[UsageRow], names: Collection[str]) -> LongArray:
    in_order = sorted(sorted(rows), key=lambda row: row.day, reverse=True)
    return LongArray(row_json(row, names) for row in in_order)


async def _pages(usage: Ledger | UsageStore, days: Iterable[str], key: str | None) -> AsyncIterator[list[UsageRow]]:
    """The rows of these days, a bounded number at a time."""
    for day in days:
        after, more = FIRST, True
        while more:
            rows, more = await usage.page(day, after, _PAGE, key)
            if rows:
                after = rows[-1][1:4]
                yield rows


async def _rows(first: list[UsageRow], pages: AsyncIterator[list[UsageRow]]) -> AsyncIterator[object]:
    for row in first:
        yield row_json(row)
    async for rows in pages:
        for row in rows:
            yield row_json(row)


@dataclass(slots=True, eq=False)
class _Vouched:
    """The account of a caller that an identity provider vouches for, and when it was used last."""

    account: Account | SharedAccount
    used_at: float


class Accounts:
    """The accounts of the limited keys, in `of` by name, and the ledger of all keys.

    An account belongs to the name of its key and survives changes of the limits and of the key itself. As a
    Tickable it keeps the calendar and the Redis gauge up to date.
    """

    def __init__(self, config: cfg.Config, metrics: Metrics, ticker: Ticker, clock: Clock, unix: Clock) -> None:
        self._clock = clock
        self._unix = unix
        self.calendar = Calendar(config.server.timezone, unix(), clock())
        self.of: dict[str, LimitAccount] = {}
        self._all: dict[str, Account | SharedAccount] = {}
        self._removed: dict[str, None] = {}  # names in `_all` whose keys a reload has removed
        self._vouched: OrderedDict[str, _Vouched] = OrderedDict()  # the one used last comes last
        self._vouched_spent: tuple[str, Mapping[str, int]] = ("", {})
        store = usage_store(config)
        self._ledger = Ledger(store, on_failure=metrics.usage_errors.count, unix=unix) if store is not None else None
        self._entries = LedgerEntries(self._ledger) if self._ledger is not None else None
        self._metrics = metrics
        self._shared: SharedLimits | None = None
        self._connected = False
        self._ticker = ticker

    async def start(self) -> None:
        """Open the ledger."""
        if self._ledger is not None:
            await self._ledger.start()
        self._ticker.add(self)

    async def spent(self, config: cfg.Config) -> dict[str, int]:
        """Today's spending in nano-dollars, by key, of the keys that get a budget only with this config.

        UsageUnavailable if it cannot be read.
        """
        keys = {key.name: key for key in config.keys}
        vouched = {name for provider in config.auth.jwt for name in provider.map.values()}
        if self._ledger is not None and any(keys[name].limits.usd_per_day is not None for name in vouched):
            today = self.calendar.day(self._clock())
            self._vouched_spent = today, await self._ledger.spent(today)
        budgeted = {name for name, account in self.of.items() if account.limits.usd_per_day is not None}
        new = {key.name for key in config.keys if key.limits.usd_per_day is not None} - budgeted
        if self._ledger is None or not new:
            return {}
        spent = await self._ledger.spent(self.calendar.day(self._clock()))
        return {name: spent.get(name, 0) for name in new}

    def apply(self, config: cfg.Config, spent: Mapping[str, int]) -> None:
        """Use the keys and limits of this config from now on; `spent` is the result of `spent()`."""
        limited = {key.name: limits for key in config.keys if (limits := key_limits(key.limits)) is not None}
        if config.redis is not None and limited and self._shared is None:
            self._shared = _shared(config, self._metrics)
        today = self.calendar.day(self._clock())
        for name, limits in limited.items():
            account = self._all[name] = self._account(name, limits, today, self._all.get(name))
            if name in spent:
                _remember(account, today, spent[name])
        self.of = {name: self._all[name] for name in limited}
        self._removed = dict.fromkeys(name for name in self._all if name not in limited)
        self.tick(self._clock())

    def vouched(self, name: str, group: str, limits: KeyLimits | None) -> tuple[str, LimitAccount | None]:
        """The name and the account of a caller that an identity provider vouches for, None without limits.

        If there are too many callers for accounts of their own, the name is that of all further ones of its `group`.
        """
        if limits is None:
            return name, None
        now = self._clock()
        entry = self._vouched.get(name)
        if entry is None:
            others = f"{group}/"  # no subject is empty
            if len(self._vouched) >= MAX_VOUCHED and not self._forget_idle(now) and name not in (group, others):
                return self.vouched(others, group, limits)
            entry = self._vouched[name] = _Vouched(self._new_account(name, limits, now), now)
        elif entry.account.limits != limits:
            entry.account = self._account(name, limits, self.calendar.day(now), entry.account)
        entry.used_at = now
        self._vouched.move_to_end(name)
        return name, entry.account

    def _new_account(self, name: str, limits: KeyLimits, now: float) -> Account | SharedAccount:
        day, spent = self._vouched_spent
        account = self._account(name, limits, self.calendar.day(now), None)
        _remember(account, day, spent.get(name, 0))
        return account

    def _forget_idle(self, now: float) -> bool:
        """Make room by forgetting the caller that was idle longest, if it was long enough."""
        name, entry = next(iter(self._vouched.items()))
        if now - entry.used_at < _IDLE_S:
            return False
        del self._vouched[name]
        if self._shared is not None and isinstance(entry.account, SharedAccount):
            self._shared.release(entry.account)
        return True

    def _account(
        self, name: str, limits: KeyLimits, today: str, account: Account | SharedAccount | None
    ) -> Account | SharedAccount:
        if self._shared is not None:
            if isinstance(account, SharedAccount) and account.limits == limits:
                return account
            # The state is in Redis, under the name. Calls in flight settle with the account they have.
            shared = self._shared.account(name, limits)
            if account is not None:
                shared.remember(today, account.spent(today))
            if isinstance(account, SharedAccount):
                self._shared.release(account)
            return shared
        if not isinstance(account, Account):
            return Account(limits, today)
        account.requests = _resumed(account.requests, limits.rpm)
        account.tokens = _resumed(account.tokens, limits.tpm)
        account.limits = limits
        return account

    async def connect(self) -> None:
        """Connect to Redis if any limits are shared."""
        if self._shared is not None and not self._connected:
            self._connected = True
            await self._shared.start()
            self.tick(self._clock())

    @property
    def has_ledger(self) -> bool:
        """Whether usage is recorded."""
        return self._ledger is not None

    def tick(self, now: float) -> None:
        """Tickable: follow the wall clock, which may have been set."""
        self.calendar.anchor(self._unix(), now)
        if self._shared is not None:
            self._metrics.redis_up.set(self._shared.link.up)
        for name in list(islice(self._removed, _FORGOTTEN_AT_ONCE)):
            del self._removed[name]
            if self._forgettable(self._all[name], now):
                del self._all[name]
            else:
                self._removed[name] = None  # at the end: the others come first

    def _forgettable(self, account: Account | SharedAccount, now: float) -> bool:
        """Whether nothing is lost with the account of a removed key, should the key come back."""
        if isinstance(account, SharedAccount):  # the rest is in Redis
            if self._shared is not None and account.idle:
                self._shared.release(account)
            return account.idle
        return account.idle(now) and (self._ledger is not None or not account.spent(self.calendar.day(now)))

    def recorders(self) -> tuple[AttemptRecorder, ...]:
        """The function that records the attempts of finished calls in the ledger, if there is a ledger."""
        return () if self._entries is None else (self._entries.record_attempt,)

    def record_avoided(self, call: Call) -> None:
        """Record a call that needed no upstream call of its own."""
        if self._entries is not None:
            self._entries.record_avoided(call)

    def budget_statuses(self) -> Iterator[tuple[str, BudgetStatus]]:
        """Today's budgets by key, each read when it is taken."""
        now = self._clock()
        today = self.calendar.day(now)
        next_day = datetime.datetime.fromtimestamp(round(self._unix() + self.calendar.left(now)), datetime.UTC)
        resets_at = next_day.isoformat().replace("+00:00", "Z")
        for name, account in [(name, self._all[name]) for name in self.of]:
            if (limit := account.limits.usd_per_day) is not None:
                yield name, BudgetStatus.of(limit, account.spent(today), account.reserved(today), resets_at)

    def limit_statuses(self) -> Iterator[tuple[str, LimitStatus]]:
        """What the keys with limits have left now, by key, each read when it is taken."""
        now = self._clock()
        return ((name, account.status(now)) for name, account in self.of.items())

    def views(self, config: Callable[[], cfg.Config]) -> Mapping[str, View]:
        """The usage views of the admin port; `config` returns the current config."""
        return usage_views(self._ledger, self.calendar, self._clock, config)

    async def stop(self) -> None:
        """Write the rest of the ledger and disconnect from Redis."""
        self._ticker.discard(self)
        if self._shared is not None:
            await self._shared.stop()
        if self._ledger is not None:
            await self._ledger.stop()


def _resumed(meter: Meter | None, limit: float | None) -> Meter | None:
    """The meter for a changed limit; the same fraction of it is used up as before, as in Redis."""
    if limit is None:
        return None
    resumed = Meter(limit)
    if meter is not None:
        resumed.tat, resumed.admitted = meter.tat, meter.admitted
    return resumed


def _remember(account: Account | SharedAccount, today: str, spent: int) -> None:
    """Raise an account's spending of today to the nano-dollars that the ledger has."""
    if isinstance(account, SharedAccount):
        account.remember(today, spent)
    elif spent > account.spent(today):
        account.day, account.spent_today = today, spent


def _shared(config: cfg.Config, metrics: Metrics) -> SharedLimits:
    redis = config.redis
    if redis is None:
        raise AssertionError("only called with a redis section")
    return SharedLimits(
        redis.address(),
        redis.timeout,
        redis.prefix,
        redis.on_failure,
        metrics.redis_errors.count,
        processes=config.server.workers,
    )


def usage_views(
    usage: Ledger | UsageStore | None, calendar: Calendar, clock: Clock, config: Callable[[], cfg.Config]
) -> Mapping[str, View]:
    """The views `/admin/usage` and `/admin/savings`; `config` returns the current config."""
    return {
        "usage": UsageReport(usage, calendar, clock),
        "savings": SavingsView(usage, calendar, clock, config),
    }


def usage_store(config: cfg.Config, *, read_only: bool = False) -> UsageStore | None:
    """The store that usage is recorded in; None if it is not recorded. A file can be opened `read_only`."""
    if config.usage.store == "redis" and config.redis is not None:
        return RedisUsageStore(config.redis.address(), config.redis.prefix)
    if config.usage.store == "sqlite":
        return SqliteUsageStore(config.usage.path, read_only=read_only)
    return None
