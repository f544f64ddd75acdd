"""Makes the results of a batch's lines durable, in groups, and counts them only then.

A result is written at once, so that it survives the process, and reaches the disk with the next group.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from gateway.batch_jobs.records import LineTally
from gateway.batch_jobs.store import BatchStoreUnavailable, BlobStore, JobStore

_RETRY_S: Final = 1.0


class OpenTask:
    """A claimed task: its lines without a result, and the tally of those with one."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.left = 0
        self.tally = LineTally()
        self.all_read = False

    @property
    def done(self) -> bool:
        """Whether every line has a result."""
        return self.all_read and not self.left


class LineLog:
    """The log of one process for one batch. `unsaved` counts results that are not durable yet."""

    def __init__(self, batch: str, store: JobStore, blobs: BlobStore, trouble: Callable[[str], None]) -> None:
        """`trouble(sentence)` is called while results cannot be written, and with an empty one afterwards."""
        self._batch = batch
        self._store = store
        self._blobs = blobs
        self._trouble = trouble
        self._records: list[bytes] = []
        self._waiting: deque[Callable[[], None]] = deque()
        self._touched: dict[int, OpenTask] = {}
        self._written: dict[int, tuple[LineTally, bool]] = {}  # what to save of each task, and whether it is done
        self._written_records = 0
        self._arrived, self._to_save, self._saved = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._busy = 0
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._save())]
        self.unsaved = 0

    def add(self, task: OpenTask, record: bytes, tally: LineTally, written: Callable[[], None]) -> None:
        """Add the result of a line of this task; `written` is called once it survives this process."""
        task.left -= 1
        self._waiting.append(written)
        task.tally = task.tally.plus(tally)
        self._records.append(record)
        self.unsaved += 1
        self.touch(task)

    def touch(self, task: OpenTask) -> None:
        """Save a task that has changed."""
        self._touched[task.number] = task
        self._arrived.set()

    async def saved(self, timeout: float) -> bool:
        """Wait until everything is durable, at most so many seconds; whether it is."""
        try:
            async with asyncio.timeout(timeout):
                while self._touched or self._written or self._busy:
                    self._saved.clear()
                    await self._saved.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Stop; what is not durable yet is lost."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._tell_written(len(self._waiting))

    def _tell_written(self, count: int) -> None:
        for _ in range(count):
            self._waiting.popleft()()

    async def _write(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            self._busy += 1
            records, self._records = self._records, []
            touched, self._touched = self._touched, {}
            # Results that arrive during the writing belong to the next group.
            states = {number: (task.tally, task.done) for number, task in touched.items()}
            if records:
                await self._insist(partial(self._blobs.append, self._batch, self._store.owner, b"".join(records)))
            self._tell_written(len(records))
            self._written |= states
            self._written_records += len(records)
            self._busy -= 1
            self._to_save.set()

    async def _save(self) -> None:
        while True:
            await self._to_save.wait()
            self._to_save.clear()
            self._busy += 1
            states, self._written = self._written, {}
            count, self._written_records = self._written_records, 0
            if count:
                await self._insist(partial(self._blobs.sync, self._batch, self._store.owner))
            for number, (tally, done) in states.items():
                await self._insist(partial(self._store.save, self._batch, number, tally, finished=done))
            self.unsaved -= count
            self._busy -= 1
            self._saved.set()

    async def _insist(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write, again and again while there is no room: what was answered is paid for."""
        failed = False
        while True:
            try:
                await write()
            except BatchStoreUnavailable as error:
                failed = True
                self._trouble(str(error))
            else:
                break
            try:
                async with asyncio.timeout(_RETRY_S):
                    await asyncio.Event().wait()
            except TimeoutError:
                pass
        if failed:
            self._trouble("")
