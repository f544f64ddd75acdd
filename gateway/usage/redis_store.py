"""Usage store in Redis: hashes of sums per day, shared by any number of processes and machines."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib import resources
from typing import Any, Final, Generic, TypeVar

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.core.units import Secret
from gateway.redis.following_client import FollowingClient
from gateway.usage.savings import Alternative, Saving
from gateway.usage.store import (
    Names,
    UsageBatch,
    UsageEntry,
    UsagePage,
    UsageRow,
    UsageSnapshot,
    UsageSummary,
    UsageUnavailable,
    flat,
    grouped,
    joined,
    summary,
    summed,
)

# Seconds for which an accepted batch's marker lasts: longer than any outage after which it is sent again.
_MARKER_TTL_S: Final = 7 * 86400

_T = TypeVar("_T")


class _Hash(Generic[UsageEntry]):
    """One kind of entry of a day: a hash whose fields are three names and the name of a number."""

    def __init__(self, kind: str, make: Callable[..., UsageEntry], fields: Sequence[str]) -> None:
        self._kind = kind
        self._make: Callable[..., UsageEntry] = make
        self._numbers = fields[4:]

    def key(self, tag: str, day: str) -> str:
        return f"{tag}:{self._kind}:{day}"

    def fields(self, entry: UsageEntry) -> Iterator[tuple[bytes, int]]:
        _, *values = flat(entry)
        for name, count in zip(self._numbers, values[3:], strict=True):
            if count:
                yield msgspec.json.encode((*values[:3], name)), count

    def entries(self, day: str, sums: Mapping[bytes, bytes]) -> list[UsageEntry]:
        numbers: dict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
        for field, count in sums.items():
            *names, name = msgspec.json.decode(field, type=tuple[str, str, str, str])
            numbers[names[0], names[1], names[2]][name] = int(count)
        return [
            self._make(day, *names, *[counts.get(name, 0) for name in self._numbers])
            for names, counts in numbers.items()
        ]


_USAGE: Final = _Hash[UsageRow]("day", UsageRow, UsageRow._fields)
_SAVINGS: Final = _Hash[Saving]("savings", Saving, Saving.__struct_fields__)
_ALTERNATIVES: Final = _Hash[Alternative]("alternatives", Alternative, Alternative.__struct_fields__)


class RedisUsageStore:
    """A `UsageStore`. All its keys have one hash tag, so that a cluster stores them in one slot."""

    def __init__(self, url: Secret, prefix: str, timeout: float = 2.0) -> None:
        """`timeout` is in seconds per command; no client's request waits for any of them."""
        self._tag = f"{prefix}:{{usage}}"
        self._client = FollowingClient(url, timeout, f"{self._tag}:days")
        self._began = f"{self._tag}:first_call"
        self._script = resources.files(__package__).joinpath("usage_add.lua").read_bytes()

    async def open(self) -> None:
        """Check that Redis answers."""
        await self._run(lambda client: _do(client, "PING"))

    async def spent(self, day: str) -> dict[str, int]:
        """Return nano-dollars by key."""
        spent: dict[str, int] = defaultdict(int)
        for row in await self._run(lambda client: self._rows(client, day)):
            spent[row.key] += row.cost
        return dict(spent)

    async def page(self, day: str, after: Names, limit: int, key: str | None = None) -> UsagePage:
        """Return all rows of a day after these names: a hash has no order to begin in the middle of."""
        rows = await self._run(lambda client: self._rows(client, day))
        return UsagePage(sorted(row for row in rows if row[1:4] > after and key in (None, row.key)), False)

    async def totals(
        self, first_day: str, last_day: str, by: Collection[str], key: str | None = None
    ) -> list[UsageRow]:
        """Return the sums by the names in `by`; other names are empty. Of one key if `key` is given."""

        async def read(client: Redis) -> list[UsageRow]:
            sums: list[UsageRow] = []
            for day in await self._days(client, first_day, last_day):
                rows = [row for row in await self._rows(client, day) if key in (None, row.key)]
                sums = summed(UsageRow, [*sums, *grouped(rows, by)])
            return sums

        return await self._run(read)

    async def _rows(self, client: Redis, day: str) -> list[UsageRow]:
        return _USAGE.entries(day, await _do(client, "HGETALL", _USAGE.key(self._tag, day)))

    async def summary(self, first_day: str, last_day: str) -> UsageSummary:
        """Return the sums of these days; each day is read atomically."""

        async def read(client: Redis) -> UsageSummary:
            sums = summary(UsageSnapshot([], [], [], await self._first_call(client)))
            for day in await self._days(client, first_day, last_day):
                transaction = client.pipeline(transaction=True)
                queue: Callable[..., object] = transaction.execute_command  # untyped in redis-py
                for key in self._hashes(day):
                    queue("HGETALL", key)
                rows, savings, alternatives = await transaction.execute()
                snapshot = UsageSnapshot(
                    _USAGE.entries(day, rows), _SAVINGS.entries(day, savings), _ALTERNATIVES.entries(day, alternatives)
                )
                sums = joined(sums, summary(snapshot))
            return sums

        return await self._run(read)

    async def add(self, batch: UsageBatch) -> None:
        """Add each day's part in one atomic, idempotent step.

        After a timeout, which leaves the outcome unknown, it is safe to send the batch again.
        """
        days: dict[str, list[str | bytes | int]] = {}

        def put(number: int, day: str, fields: Iterable[tuple[bytes, int]]) -> None:
            arguments = days.setdefault(day, [day, _MARKER_TTL_S, first_call])
            for field, count in fields:
                arguments += (number, field, count)

        first_call = "" if batch.first_call is None else batch.first_call

        for row in batch.rows:
            put(1, row.day, _USAGE.fields(row))
        for saving in batch.savings:
            put(2, saving.day, _SAVINGS.fields(saving))
        for alternative in batch.alternatives:
            put(3, alternative.day, _ALTERNATIVES.fields(alternative))
        for day, arguments in days.items():
            keys = [*self._hashes(day), f"{self._tag}:days", f"{self._tag}:batch:{batch.id}:{day}", self._began]
            await self._run(partial(self._add, keys, arguments))

    async def _add(self, keys: list[str], arguments: list[str | bytes | int], client: Redis) -> None:
        await client.register_script(self._script)(keys, arguments)

    async def _first_call(self, client: Redis) -> int | None:
        """When the first call ended; its day, where an earlier version wrote it."""
        stored = (await _do(client, "GET", self._began) or b"").decode()
        if stored.isdigit():
            return int(stored)
        day = stored or min(await self._days(client, "", "9999"), default="")
        return int(datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp()) if day else None

    async def _days(self, client: Redis, first: str, last: str) -> list[str]:
        days = [member.decode() for member in await _do(client, "SMEMBERS", f"{self._tag}:days")]
        return [day for day in days if first <= day <= last]

    def _hashes(self, day: str) -> list[str]:
        return [kind.key(self._tag, day) for kind in (_USAGE, _SAVINGS, _ALTERNATIVES)]

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _run(self, step: Callable[[Redis], Awaitable[_T]]) -> _T:
        """The result of a step; callers retry."""
        try:
            return await self._client.run(step)
        except (RedisError, OSError, ValueError) as error:
            raise UsageUnavailable(f"redis: {error}") from error


def _do(client: Redis, *words: str) -> Awaitable[Any]:
    run: Callable[..., Awaitable[Any]] = client.execute_command  # untyped in redis-py
    return run(*words)
