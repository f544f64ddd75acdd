"""Usage in Redis: one hash of sums a day, which any number of processes and machines add to."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import Any, Final, Generic

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.core.units import Secret
from gateway.usage.savings import Alternative, Saving
from gateway.usage.store import UsageBatch, UsageEntry, UsageRow, UsageSnapshot, UsageUnavailable, flat

# Seconds for which a batch that was taken is remembered: longer than any trouble in which it comes again.
_REMEMBERED: Final = 7 * 86400


class _Hash(Generic[UsageEntry]):
    """One kind of entry of a day: a hash, whose fields are three names and that of a number."""

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
        found: dict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
        for field, count in sums.items():
            *names, name = msgspec.json.decode(field, type=tuple[str, str, str, str])
            found[names[0], names[1], names[2]][name] = int(count)
        return [
            self._make(day, *names, *[counts.get(name, 0) for name in self._numbers])
            for names, counts in found.items()
        ]


_USAGE: Final = _Hash[UsageRow]("day", UsageRow, UsageRow._fields)
_SAVINGS: Final = _Hash[Saving]("savings", Saving, Saving.__struct_fields__)
_ALTERNATIVES: Final = _Hash[Alternative]("alternatives", Alternative, Alternative.__struct_fields__)


class RedisUsageStore:
    """A `UsageStore`. All its keys hold one hash tag, so that a cluster keeps them in one slot."""

    def __init__(self, url: Secret, prefix: str, timeout: float = 2.0) -> None:
        """`timeout` in seconds is for each command; no client's call waits for any of them."""
        self._client = Redis.from_url(
            url.reveal(),
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),  # whoever calls tries again
        )
        self._do: Callable[..., Awaitable[Any]] = self._client.execute_command  # untyped there
        self._tag = f"{prefix}:{{usage}}"
        script = resources.files(__package__).joinpath("usage_add.lua").read_bytes()
        self._add = self._client.register_script(script)

    async def open(self) -> None:
        """Look whether Redis answers."""
        with _troubles():
            await self._do("PING")

    async def spent(self, day: str) -> dict[str, int]:
        """Nano-dollars by key."""
        spent: dict[str, int] = defaultdict(int)
        for row in await self.rows(day, day):
            spent[row.key] += row.cost
        return dict(spent)

    async def rows(self, first_day: str, last_day: str) -> list[UsageRow]:
        """The rows of these days."""
        found: list[UsageRow] = []
        with _troubles():
            for day in await self._days(first_day, last_day):
                found += _USAGE.entries(day, await self._do("HGETALL", _USAGE.key(self._tag, day)))
        return found

    async def books(self, first_day: str, last_day: str) -> UsageSnapshot:
        """All of these days; what is told of one day is of one moment."""
        found = UsageSnapshot([], [], [])
        with _troubles():
            for day in await self._days(first_day, last_day):
                together = self._client.pipeline(transaction=True)
                ask: Callable[..., object] = together.execute_command  # untyped there
                for key in self._hashes(day):
                    ask("HGETALL", key)
                rows, savings, alternatives = await together.execute()
                found.rows.extend(_USAGE.entries(day, rows))
                found.savings.extend(_SAVINGS.entries(day, savings))
                found.alternatives.extend(_ALTERNATIVES.entries(day, alternatives))
        return found

    async def add(self, batch: UsageBatch) -> None:
        """Each day's part is one atomic step that Redis takes once.

        So after a time-out, which leaves open whether it was taken, it is safe to send it again.
        """
        days: dict[str, list[str | bytes | int]] = {}

        def put(number: int, day: str, fields: Iterable[tuple[bytes, int]]) -> None:
            arguments = days.setdefault(day, [day, _REMEMBERED])
            for field, count in fields:
                arguments += (number, field, count)

        for row in batch.rows:
            put(1, row.day, _USAGE.fields(row))
        for saving in batch.savings:
            put(2, saving.day, _SAVINGS.fields(saving))
        for alternative in batch.alternatives:
            put(3, alternative.day, _ALTERNATIVES.fields(alternative))
        for day, arguments in days.items():
            keys = [*self._hashes(day), f"{self._tag}:days", f"{self._tag}:batch:{batch.id}:{day}"]
            with _troubles():
                await self._add(keys, arguments)

    async def _days(self, first: str, last: str) -> list[str]:
        days = [member.decode() for member in await self._do("SMEMBERS", f"{self._tag}:days")]
        return [day for day in days if first <= day <= last]

    def _hashes(self, day: str) -> list[str]:
        return [kind.key(self._tag, day) for kind in (_USAGE, _SAVINGS, _ALTERNATIVES)]

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


@contextmanager
def _troubles() -> Iterator[None]:
    try:
        yield
    # A server that speaks no RESP makes the parser raise ValueError.
    except (RedisError, OSError, ValueError) as error:
        raise UsageUnavailable(f"redis: {error}") from error
