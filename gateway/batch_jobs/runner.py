"""Runs batches: checks their input, sends their lines while there is room, and writes their files."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from gateway.batch_jobs.finisher import finish
from gateway.batch_jobs.input_lines import InputCheck, TaskRange
from gateway.batch_jobs.job_run import JobRun
from gateway.batch_jobs.library import DISK_USED_UP, BatchLibrary
from gateway.batch_jobs.records import BatchJob, InputError, LineTally
from gateway.batch_jobs.send_gate import SendGate
from gateway.batch_jobs.store import CHECK, FINISH, BatchStoreUnavailable, BlobMissing
from gateway.batch_jobs.traffic import LineOwner, LineTraffic
from gateway.batch_jobs.windows import late
from gateway.core.clock import Clock
from gateway.telemetry.logging import logger

_POLL_S: Final = 1.0
"""Seconds between two looks at what other processes have changed."""
_ADOPT_S: Final = 5.0
_SWEEP_S: Final = 600.0
_MOST_JOBS: Final = 32
_MOST_OF_KEY: Final = 4
_WHOLE: Final = TaskRange(0, 0, 0)


class BatchFigures(NamedTuple):
    """Lines of the batches that have not ended, the age in seconds of the oldest, and how many will be late."""

    waiting: int = 0
    under_way: int = 0
    completed: int = 0
    failed: int = 0
    age_s: float = 0.0
    late: int = 0


class BatchRunner:
    """Follows every batch that has not ended; several processes may follow the same one."""

    def __init__(
        self,
        library: BatchLibrary,
        traffic: LineTraffic,
        gate: SendGate,
        clock: Clock,
        unix: Clock,
        publish: Callable[[BatchFigures], None],
    ) -> None:
        """`publish` takes the figures after each look around."""
        self._library = library
        self._traffic = traffic
        self._gate = gate
        self._clock = clock
        self._unix = unix
        self._publish = publish
        self._wake = asyncio.Event()
        self._following: dict[str, asyncio.Task[None]] = {}
        self._runs: dict[str, JobRun] = {}
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._adopted = self._swept = -_SWEEP_S
        self._trouble = ""

    def start(self) -> None:
        """Begin; the stores are open."""
        self._task = asyncio.create_task(self._run())

    def note(self, job: BatchJob) -> None:
        """A client has made or cancelled this batch: look around at once."""
        if job.closing and job.id in self._runs:
            self._runs[job.id].stop()
        self._wake.set()

    def drain(self) -> None:
        """Send no more lines; those under way go on."""
        self._stopping = True
        for run in self._runs.values():
            run.stop()
        self._wake.set()

    async def close(self) -> None:
        """Stop, save the results that have arrived, and let others take over the rest."""
        self.drain()
        if self._task is None:
            return
        tasks = {self._task, *self._following.values()}
        _, late_ones = await asyncio.wait(tasks, timeout=5)
        for task in late_ones:
            task.cancel()
        if late_ones:
            await asyncio.wait(late_ones)

    async def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                await self._look_around()
            except BatchStoreUnavailable as error:
                self._note_trouble(str(error))
            else:
                self._note_trouble("")
            await self._wait()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(_POLL_S):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _note_trouble(self, sentence: str) -> None:
        if sentence and sentence != self._trouble:
            logger.warning("batches wait: %s", sentence)
        self._trouble = sentence

    async def _look_around(self) -> None:
        now = self._clock()
        if now - self._adopted >= _ADOPT_S:
            self._adopted = now
            await self._library.store.adopt()
        if now - self._swept >= _SWEEP_S:
            self._swept = now
            await self._library.sweep()
        jobs = await self._library.unfinished()
        if jobs:
            self._gate.closed = "" if await self._library.room() > 0 else DISK_USED_UP
        for job in worked_on(jobs):
            if job.id not in self._following and not self._stopping:
                task = self._following[job.id] = asyncio.create_task(self._follow(job.id))
                task.add_done_callback(partial(self._left, job.id))
        self._publish(await self._figures(jobs))

    def _left(self, id: str, task: "asyncio.Task[None]") -> None:
        del self._following[id]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("bug in the gateway; batch %s is tried again", id, exc_info=error)

    async def _figures(self, jobs: Iterable[BatchJob]) -> BatchFigures:
        figures, now = BatchFigures(), self._unix()
        for job in jobs:
            tally = LineTally() if job.status == "validating" else await self._library.tally(job)
            under_way = self._runs[job.id].under_way if job.id in self._runs else 0
            done = tally.completed + tally.failed
            began = job.stamps.get("in_progress", job.created_at)
            figures = BatchFigures(
                figures.waiting + max(0, job.total - done - under_way),
                figures.under_way + under_way,
                figures.completed + tally.completed,
                figures.failed + tally.failed,
                max(figures.age_s, now - job.created_at),
                figures.late + (job.status == "in_progress" and late(now, began, done, job.total, job.expires_at)),
            )
        return figures

    async def _follow(self, id: str) -> None:
        """Take part in a batch until it has ended."""
        while not self._stopping:
            try:
                job = await self._library.any_batch(id)
                if job is None or job.ended:
                    return
                if not await self._step(job):
                    await self._wait()
            except BatchStoreUnavailable as error:
                self._note_trouble(str(error))
                await self._wait()

    async def _step(self, job: BatchJob) -> bool:
        """Do what can be done now; False if there was nothing to do."""
        if job.status == "validating":
            return await self._check(job)
        if job.status == "in_progress":
            return await self._send(job)
        return await self._finish(job)

    async def _check(self, job: BatchJob) -> bool:
        store = self._library.store
        await store.add_tasks(job.id, [(CHECK, _WHOLE)])
        task = await store.claim(job.id)
        if task is None:
            return False
        if task.number != CHECK:  # another process has just checked it
            await store.give_back(job.id, task.number)
            return False
        rules = self._library.rules
        check = InputCheck(
            job.endpoint,
            rules.max_lines,
            rules.max_line,
            lambda model: self._traffic.refused_model(LineOwner(job.key, job.group), model),
        )
        try:
            async for piece in self._library.blobs.read(job.input_file_id):
                check.feed(piece)
            check.end()
        except BlobMissing:
            check.errors = [_missing()]
        now = self._unix()
        if check.errors:
            after = job.at("failed", now, errors=tuple(check.errors))
        else:
            await store.add_tasks(job.id, list(enumerate(check.tasks, 1)))
            after = job.at("in_progress", now, total=check.total, model=check.model)
        changed = await self._library.change(job, after)
        await store.save(job.id, CHECK, None, finished=True)
        if changed is not None and changed.ended:
            await store.drop_tasks(job.id)
        return True

    async def _send(self, job: BatchJob) -> bool:
        run = self._runs[job.id] = JobRun(job, self._library, self._traffic, self._gate, self._clock, self._unix)
        try:
            sent = await run.run()
        finally:
            del self._runs[job.id]
            await run.close()
        if self._stopping:
            return True
        if run.input_missing:
            return await self._close(job, "failed", errors=(_missing(),))
        if self._unix() >= job.expires_at:
            return await self._close(job, "expired")
        progress = await self._library.store.progress(job.id)
        if progress.tasks == progress.finished:
            return await self._close(job, "completed")
        return sent

    async def _close(self, job: BatchJob, closing: str, **changes: object) -> bool:
        """Let the batch end this way, once all lines under way have ended."""
        current = await self._library.any_batch(job.id) or job
        if current.status == "in_progress":
            after = current.at("finalizing", self._unix(), closing=closing, paused="", **changes)
            await self._library.change(current, after)
        return True

    async def _finish(self, job: BatchJob) -> bool:
        store = self._library.store
        await store.add_tasks(job.id, [(FINISH, _WHOLE)])
        while (task := await store.claim(job.id)) is not None:
            if task.number != FINISH:  # its lines are not sent any more
                await store.save(job.id, task.number, None, finished=True)
                continue
            if (await store.progress(job.id)).held > 1:  # lines are under way somewhere
                await store.give_back(job.id, FINISH)
                await store.adopt()
                return False
            ended = await finish(self._library, job, self._unix)
            logger.info(
                "batch ended",
                extra={
                    "batch": job.id,
                    "key": job.key,
                    "status": ended.status,
                    "completed": ended.tally.completed,
                    "failed": ended.tally.failed,
                },
            )
            return True
        return False


def worked_on(jobs: Iterable[BatchJob]) -> list[BatchJob]:
    """The batches that are worked on at a time: the oldest ones, some of each key, so that memory is bounded."""
    chosen: list[BatchJob] = []
    of_key: dict[str, int] = {}
    for job in sorted(jobs, key=lambda job: job.id):
        if len(chosen) < _MOST_JOBS and of_key.get(job.key, 0) < _MOST_OF_KEY:
            of_key[job.key] = of_key.get(job.key, 0) + 1
            chosen.append(job)
    return chosen


def _missing() -> InputError:
    return InputError("input_file_missing", "The content of the input file is gone.", None, "input_file_id")
