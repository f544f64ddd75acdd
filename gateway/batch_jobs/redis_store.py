"""Job store in Redis, shared by the gateways of several machines.

The tasks of a batch are the entries of a stream with one consumer group, in which each process is a consumer. A
process keeps its pending entries young; those of a process that died grow old and are claimed by another.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from redis.exceptions import RedisError, ResponseError

from gateway.batch_jobs.input_lines import TaskRange
from gateway.batch_jobs.records import LineTally
from gateway.batch_jobs.store import BatchStoreUnavailable, ClaimedTask, Progress, RecordKind
from gateway.core.units import Secret
from gateway.redis.following_client import FollowingClient

_GROUP: Final = "gateways"
_FREE: Final = "given-back"
"""The consumer of tasks that were given back."""
_MOST_HELD: Final = 10_000
_SWAP: Final = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""


class _Owned(Struct):
    key: str


class RedisJobStore:
    """A `JobStore`. All its keys have one hash tag, so that a cluster stores them in one slot."""

    def __init__(self, url: Secret, prefix: str, owner: str, *, dead_s: float = 30.0, timeout: float = 5.0) -> None:
        """A process that has shown no life for `dead_s` seconds loses its tasks. `timeout`: seconds per command."""
        self.owner = owner
        self._tag = f"{prefix}:{{batches}}"
        self._client = FollowingClient(url, timeout, self._records("batch"))
        self._dead_ms = round(dead_s * 1000)
        self._batches: set[str] = set()  # with tasks that this process may hold

    async def open(self) -> None:
        """Check that Redis answers."""
        await self._do("PING")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def put(self, kind: RecordKind, key: str, id: str, record: bytes) -> None:
        """Add a record or replace it."""
        await self._together(("HSET", self._records(kind), id, record), ("ZADD", self._index(kind, key), 0, id))

    async def get(self, kind: RecordKind, id: str) -> bytes | None:
        """Return a record."""
        found: bytes | None = await self._do("HGET", self._records(kind), id)
        return found

    async def page(
        self, kind: RecordKind, key: str, after: str | None, limit: int, *, ascending: bool = False
    ) -> list[bytes]:
        """Return records of a key in order of their ids, behind `after`."""
        start = f"({after}" if after is not None else "-" if ascending else "+"
        bounds = (start, "+", "BYLEX") if ascending else (start, "-", "BYLEX", "REV")
        ids = await self._do("ZRANGE", self._index(kind, key), *bounds, "LIMIT", 0, limit)
        found = await self._do("HMGET", self._records(kind), *ids) if ids else []
        return [record for record in found if record is not None]

    async def all(self, kind: RecordKind) -> list[bytes]:
        """Return the records of all keys."""
        return list(await self._do("HVALS", self._records(kind)))

    async def swap(self, id: str, before: bytes, after: bytes) -> bool:
        """Replace a batch's record if it still is `before`."""
        return bool(await self._do("EVAL", _SWAP, 1, self._records("batch"), id, before, after))

    async def remove(self, kind: RecordKind, id: str) -> bool:
        """Remove a record; False if there was none."""
        record = await self.get(kind, id)
        if record is None:
            return False
        index = self._index(kind, msgspec.json.decode(record, type=_Owned).key)
        removed, _ = await self._together(("HDEL", self._records(kind), id), ("ZREM", index, id))
        return bool(removed)

    async def add_tasks(self, batch: str, tasks: Sequence[tuple[int, TaskRange]]) -> None:
        """Add tasks in ascending order; those that exist stay as they are."""
        try:
            await self._do("XGROUP", "CREATE", self._stream(batch), _GROUP, "0", "MKSTREAM")
        except _Refused as refused:
            if "BUSYGROUP" not in str(refused):
                raise
        last = await self._run(lambda client: client.xrevrange(self._stream(batch), count=1))
        newest = _number(last[0][0]) if last else -1
        new = [(number, each) for number, each in tasks if number > newest]
        if new:
            await self._together(
                *(
                    ("XADD", self._stream(batch), _id(number), "range", msgspec.json.encode(each))
                    for number, each in new
                )
            )

    async def claim(self, batch: str) -> ClaimedTask | None:
        """Claim the first new task, or one that was given back or whose process has died."""
        stream = self._stream(batch)
        self._batches.add(batch)
        try:
            new = await self._run(lambda client: client.xreadgroup(_GROUP, self.owner, {stream: ">"}, count=1))
            if new:
                return _claimed(new[0][1], resumed=False)
            old = await self._run(
                lambda client: client.xautoclaim(stream, _GROUP, self.owner, self._dead_ms, "0-0", count=1)
            )
        except _Refused as refused:
            if "NOGROUP" in str(refused):  # the batch has just ended
                return None
            raise
        return _claimed(old[1], resumed=True)

    async def save(self, batch: str, number: int, tally: LineTally | None, *, finished: bool) -> None:
        """Set the tally of a claimed task (None: leave it); a finished one is no longer held."""
        steps: list[tuple[Any, ...]] = []
        if tally is not None:
            steps.append(("HSET", self._tallies(batch), number, msgspec.json.encode(tally)))
        if finished:
            steps.append(("XACK", self._stream(batch), _GROUP, _id(number)))
        if steps:
            await self._together(*steps)

    async def give_back(self, batch: str, number: int) -> None:
        """Free a claimed task for others: it is as old as that of a dead process."""
        stream, old = self._stream(batch), self._dead_ms
        await self._run(lambda client: client.xclaim(stream, _GROUP, _FREE, 0, [_id(number)], idle=old, justid=True))

    async def progress(self, batch: str) -> Progress:
        """Return the sum of all tasks."""
        stream = self._stream(batch)
        tally = LineTally()
        for each in await self._do("HVALS", self._tallies(batch)):
            tally = tally.plus(msgspec.json.decode(each, type=LineTally))
        try:
            claimed = await self._run(lambda client: client.xpending(stream, _GROUP))
            (group,) = await self._run(lambda client: client.xinfo_groups(stream))
        except _Refused:  # no tasks yet, or no more
            return Progress(tally, 0, 0, 0)
        delivered = group["last-delivered-id"]
        waiting = await self._run(lambda client: client.xrange(stream, b"(" + delivered))
        tasks, pending = await self._do("XLEN", stream), claimed["pending"]
        free = sum(each["pending"] for each in claimed["consumers"] if each["name"] == _FREE.encode())
        return Progress(tally, tasks, tasks - len(waiting) - pending, pending - free)

    async def adopt(self) -> None:
        """Keep this process's tasks young; `claim` takes those that have grown old."""
        for batch in tuple(self._batches):
            try:
                await self._renew(self._stream(batch))
            except _Refused:
                self._batches.discard(batch)

    async def _renew(self, stream: str) -> None:
        mine = await self._run(lambda client: client.xpending_range(stream, _GROUP, "-", "+", _MOST_HELD, self.owner))
        if ids := [each["message_id"] for each in mine]:
            await self._run(lambda client: client.xclaim(stream, _GROUP, self.owner, 0, ids, justid=True))

    async def drop_tasks(self, batch: str) -> None:
        """Forget the tasks of a batch that has ended."""
        self._batches.discard(batch)
        await self._do("DEL", self._stream(batch), self._tallies(batch))

    def _records(self, kind: RecordKind) -> str:
        return f"{self._tag}:{kind}"

    def _index(self, kind: RecordKind, key: str) -> str:
        return f"{self._tag}:{kind}:of:{key}"

    def _stream(self, batch: str) -> str:
        return f"{self._tag}:tasks:{batch}"

    def _tallies(self, batch: str) -> str:
        return f"{self._tag}:tallies:{batch}"

    async def _do(self, *words: Any) -> Any:
        return await self._run(lambda client: client.execute_command(*words))

    async def _together(self, *commands: tuple[Any, ...]) -> list[Any]:
        async def step(client: Any) -> list[Any]:
            transaction = client.pipeline(transaction=True)
            for command in commands:
                transaction.execute_command(*command)
            return list(await transaction.execute())

        return list(await self._run(step))

    async def _run(self, step: Callable[[Any], Awaitable[Any]]) -> Any:
        """The result of a step. redis-py's types are too wide for it."""
        try:
            return await self._client.run(step)
        except (RedisError, OSError, ValueError) as error:
            refused = _Refused if isinstance(error, ResponseError) else BatchStoreUnavailable
            raise refused(f"redis: {error}") from error


class _Refused(BatchStoreUnavailable):
    """Redis answers, and does not execute the command."""


def _id(number: int) -> str:
    """A stream's ids begin above 0-0, and grow."""
    return f"{number + 1}-0"


def _number(id: bytes) -> int:
    return int(id.partition(b"-")[0]) - 1


def _claimed(entries: list[tuple[bytes, dict[bytes, bytes]]], *, resumed: bool) -> ClaimedTask | None:
    if not entries:
        return None
    id, fields = entries[0]
    return ClaimedTask(_number(id), msgspec.json.decode(fields[b"range"], type=TaskRange), resumed)
