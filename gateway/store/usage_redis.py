"""Usage in Redis: one hash of sums a day, which any number of processes and machines add to."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from typing import Any, Final

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.store.usage import Batch, Row, UsageTrouble
from gateway.units import Secret

_NUMBERS: Final = Row._fields[4:]
# Seconds for which a batch that was taken is remembered: longer than any trouble in which it comes again.
_REMEMBERED: Final = 7 * 86400


class RedisUsage:
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

    async def rows(self, first_day: str, last_day: str) -> list[Row]:
        """The rows of these days."""
        found: list[Row] = []
        with _troubles():
            for member in await self._do("SMEMBERS", f"{self._tag}:days"):
                day = member.decode()
                if first_day <= day <= last_day:
                    found += _rows(day, await self._do("HGETALL", f"{self._tag}:day:{day}"))
        return found

    async def add(self, batch: Batch) -> None:
        """Each day's part is one atomic step that Redis takes once.

        So after a time-out, which leaves open whether it was taken, it is safe to send it again.
        """
        days: dict[str, list[str | bytes | int]] = {}
        for row in batch.rows:
            arguments = days.setdefault(row.day, [row.day, _REMEMBERED])
            for name, number in zip(_NUMBERS, row[4:], strict=True):
                if number:
                    arguments += (msgspec.json.encode((row.key, row.model, row.upstream, name)), number)
        for day, arguments in days.items():
            keys = [f"{self._tag}:day:{day}", f"{self._tag}:days", f"{self._tag}:batch:{batch.id}:{day}"]
            with _troubles():
                await self._add(keys, arguments)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _rows(day: str, sums: Mapping[bytes, bytes]) -> list[Row]:
    rows: dict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
    for field, number in sums.items():
        key, model, upstream, name = msgspec.json.decode(field, type=tuple[str, str, str, str])
        rows[key, model, upstream][name] = int(number)
    return [Row(day, *place, *[numbers.get(name, 0) for name in _NUMBERS]) for place, numbers in rows.items()]


@contextmanager
def _troubles() -> Iterator[None]:
    try:
        yield
    # A server that speaks no RESP makes the parser raise ValueError.
    except (RedisError, OSError, ValueError) as error:
        raise UsageTrouble(f"redis: {error}") from error
