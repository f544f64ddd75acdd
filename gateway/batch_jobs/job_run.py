"""This process's part in sending the lines of one batch."""

import asyncio
from functools import partial
from typing import Final

from gateway.batch_jobs.input_lines import BatchLine, LineSplitter, lines_of
from gateway.batch_jobs.library import BatchLibrary
from gateway.batch_jobs.line_log import LineLog, OpenTask
from gateway.batch_jobs.records import BatchJob, LineTally
from gateway.batch_jobs.results import answered, line_id, records, tally_of
from gateway.batch_jobs.room import MOST_LINES, UpstreamRoom
from gateway.batch_jobs.send_gate import SendGate
from gateway.batch_jobs.store import CHECK, FINISH, BatchStoreUnavailable, BlobMissing, ClaimedTask
from gateway.batch_jobs.traffic import LineAnswer, LineOwner, LineTraffic
from gateway.batch_jobs.verdict import LineWaits, judge
from gateway.core.clock import Clock

_REFRESH_S: Final = 1.0
_MOST_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the requests under way in one batch."""


class JobRun:
    """Claims tasks and sends their lines until there is nothing left to claim, or the batch is to stop."""

    def __init__(
        self, job: BatchJob, library: BatchLibrary, traffic: LineTraffic, gate: SendGate, clock: Clock, unix: Clock
    ) -> None:
        self._job = job
        self._owner = LineOwner(job.key, job.group)
        self._library = library
        self._traffic = traffic
        self._gate = gate
        self._clock = clock
        self._unix = unix
        self._log = LineLog(job.id, library.store, library.blobs, lambda sentence: self._say("disk", sentence))
        self._lines: set[asyncio.Task[None]] = set()
        self._tasks: dict[int, OpenTask] = {}
        self._bytes = 0
        self._refreshed = clock()
        self._stopped = asyncio.Event()
        self._found: dict[int, LineTally] = {}
        self._read_to: dict[str, int] = {}  # bytes of each part of the log that are in `_found`
        self._pauses: dict[str, str] = {}  # sentences by cause
        self._shown = job.paused
        self.input_missing = False

    @property
    def under_way(self) -> int:
        """Lines without a durable result."""
        return len(self._lines) + self._log.unsaved

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped.set()

    async def run(self) -> bool:
        """Send lines; False if there was nothing to claim."""
        claimed = False
        try:
            while not self._stopped.is_set() and (task := await self._claim()) is not None:
                claimed = True
                await self._send_task(task)
        except BlobMissing:
            self.input_missing = True
        while self._lines:
            await asyncio.wait(self._lines, timeout=_REFRESH_S)
            await self._refresh()
        while not await self._log.saved(_REFRESH_S):
            await self._refresh()
        await self._refresh(always=True)
        return claimed

    async def close(self) -> None:
        """Give back what was claimed and not finished."""
        for line in self._lines:
            line.cancel()
        if self._lines:
            await asyncio.wait(self._lines)
        await self._log.close()
        for task in self._tasks.values():
            if not task.done:
                try:
                    await self._library.store.give_back(self._job.id, task.number)
                except BatchStoreUnavailable:
                    return  # they are free once this process has ended

    async def _claim(self) -> ClaimedTask | None:
        await self._refresh()
        store, id = self._library.store, self._job.id
        while (task := await store.claim(id)) is not None and task.number == CHECK:
            await store.save(id, CHECK, None, finished=True)  # done by a process that died right after it
        if task is not None and task.number == FINISH:
            await store.give_back(id, FINISH)
            return None
        if task is not None and task.number in self._tasks:  # its claim has grown old while its lines are under way
            return None
        return task

    async def _send_task(self, claimed: ClaimedTask) -> None:
        task = self._tasks[claimed.number] = OpenTask(claimed.number)
        source = self._library.blobs.read(self._job.input_file_id, claimed.range.start, claimed.range.end)
        lines = list(lines_of(claimed.range, b"".join([piece async for piece in source])))
        if claimed.resumed:
            lines = await self._without_done(task, lines)
        task.left = len(lines)
        for line in lines:
            while self.under_way >= MOST_LINES or self._bytes + len(line.body) > max(_MOST_BYTES, len(line.body)):
                await self._gate.wait(_REFRESH_S)
                await self._refresh()
            room = await self._place(line)
            if room is None:
                return
            self._bytes += len(line.body)
            sending = asyncio.create_task(self._send_line(task, line, room))
            self._lines.add(sending)
            sending.add_done_callback(self._lines.discard)
            await asyncio.sleep(0)  # noqa: TID251 - live calls must not wait for a burst of lines
        task.all_read = True
        if task.done:
            self._log.touch(task)
        self._tasks = {number: each for number, each in self._tasks.items() if not each.done}

    async def _place(self, line: BatchLine) -> UpstreamRoom | None:
        """A place for the line; None if the batch is to stop."""
        key = self._job.key
        while not self._stopped.is_set():
            await self._refresh()
            wait = _REFRESH_S
            gone = "" if self._traffic.knows(self._owner) else f"the key `{key}` is not in the config any more"
            self._say("key", gone)
            self._say("room", self._gate.closed)
            if not gone:
                room, wait = self._gate.enter(self._owner, line.model)
                if room is not None:
                    return room
            await self._gate.wait(wait)
        return None

    async def _send_line(self, task: OpenTask, line: BatchLine, first: UpstreamRoom) -> None:
        tries, place = 0, first
        try:
            while True:
                try:
                    answer = await self._traffic.send(self._owner, self._job.endpoint, line.body)
                except BaseException:
                    self._gate.leave(place)
                    raise
                verdict = judge(answer.rejection, tries, answer.budget)
                if not isinstance(verdict, LineWaits):
                    place.per_permit.note(answer.batch_size)
                    self._say("limit", "")
                    self._record(task, line, answer, place)
                    return
                self._gate.leave(place)
                tries += verdict.counts
                self._say("limit", verdict.paused)
                if verdict.shared:
                    self._gate.hold(
                        verdict.shared, self._job.key if verdict.shared == "key" else line.model, verdict.seconds
                    )
                else:
                    await self._rest(verdict.seconds)
                again = await self._place(line)
                if again is None:
                    return
                place = again
        finally:
            self._bytes -= len(line.body)

    def _record(self, task: OpenTask, line: BatchLine, answer: LineAnswer, place: UpstreamRoom) -> None:
        id = line_id(self._job.id, line.number)
        record = answered(line, id, answer.request_id, answer.status, answer.body, answer.usage)
        # The place is free once the result survives this process: no more lines than that are ever sent twice.
        self._log.add(task, record, tally_of(answer.status < 400, answer.usage), partial(self._gate.leave, place))

    async def _rest(self, seconds: float) -> None:
        """Wait so long, or until the batch is to stop."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            pass

    async def _without_done(self, task: OpenTask, lines: list[BatchLine]) -> list[BatchLine]:
        """The lines that no process has logged a result of. The task's tally counts the others."""
        await self._read_logs()
        for line in lines:
            if line.number in self._found:
                task.tally = task.tally.plus(self._found[line.number])
        return [line for line in lines if line.number not in self._found]

    async def _read_logs(self) -> None:
        blobs = self._library.blobs
        for part in await blobs.parts(self._job.id):
            splitter = LineSplitter(self._read_to.get(part, 0))
            async for piece in blobs.read(part, splitter.position):
                for record in records(splitter.feed(piece)):
                    self._found.setdefault(record.number, record.tally)
            self._read_to[part] = splitter.position

    def _say(self, cause: str, sentence: str) -> None:
        """Note why the batch pauses; an empty sentence if it does not for this cause."""
        self._pauses[cause] = sentence

    async def _refresh(self, *, always: bool = False) -> None:
        """Learn of a cancellation or of the window's end, and show others why the batch pauses."""
        now, sentence = self._clock(), next(filter(None, self._pauses.values()), "")
        if not always and now - self._refreshed < _REFRESH_S and sentence == self._shown:
            return
        self._refreshed = now
        job = await self._library.any_batch(self._job.id)
        if job is None or job.status != "in_progress" or self._unix() >= job.expires_at:
            self.stop()
        elif job.paused != sentence:
            await self._library.change(job, job.with_(paused=sentence))
        self._shown = sentence
