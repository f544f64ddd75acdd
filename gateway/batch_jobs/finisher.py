"""Ends a batch: sorts the logs of all processes into its output and its error file.

It can be interrupted at any moment and done again: names and contents come out the same.
"""

from typing import Final

from gateway.batch_jobs.input_lines import LineSplitter, TaskRange, lines_of
from gateway.batch_jobs.library import BatchLibrary
from gateway.batch_jobs.records import BatchJob, LineTally
from gateway.batch_jobs.results import LinesDone, line_id, records, undone
from gateway.batch_jobs.store import BlobMissing, BlobStore, BlobWriter
from gateway.core.clock import Clock

_PIECE: Final = 256 * 1024
_UNDONE: Final = {
    "expired": ("batch_expired", "This request was not executed before the end of the completion window."),
    "cancelled": ("batch_cancelled", "This request was not executed because the batch was cancelled."),
}
_LOST: Final = "batch_failed", "This request has no result because the batch failed."


class _ResultFile:
    """A file of results that begins with its first line."""

    def __init__(self, blobs: BlobStore, id: str) -> None:
        self.id = id
        self.size = 0
        self._blobs = blobs
        self._writer: BlobWriter | None = None
        self._buffer = bytearray()

    async def add(self, line: bytes) -> None:
        self._buffer += line
        if len(self._buffer) >= _PIECE:
            await self._flush()

    async def _flush(self) -> None:
        if self._writer is None:
            self._writer = await self._blobs.writer(self.id)
        await self._writer.write(bytes(self._buffer))
        self.size += len(self._buffer)
        self._buffer.clear()

    async def commit(self) -> None:
        if self._buffer:
            await self._flush()
        if self._writer is not None:
            await self._writer.commit()

    async def abort(self) -> None:
        if self._writer is not None:
            await self._writer.abort()


async def finish(library: BatchLibrary, job: BatchJob, unix: Clock) -> BatchJob:
    """Write the files of a batch whose lines have stopped, and let it end as its `closing` says."""
    name = job.id.removeprefix("batch_")
    output, errors = _ResultFile(library.blobs, f"file-{name}o"), _ResultFile(library.blobs, f"file-{name}e")
    parts = await library.blobs.parts(job.id)
    closing = job.closing or "completed"
    try:
        done, tally = await _sort(library, parts, output, errors)
        if tally.completed + tally.failed < job.total:
            missing = await _name_undone(library, job, done, errors)
            tally = tally.plus(LineTally(failed=missing))
        await output.commit()
        await errors.commit()
    finally:
        await output.abort()
        await errors.abort()
    ids: dict[str, str] = {}
    for field, purpose_file, suffix in (("output_file_id", output, "output"), ("error_file_id", errors, "error")):
        if purpose_file.size:
            filename = f"{job.id}_{suffix}.jsonl"
            await library.add_file(
                job.key, purpose_file.id, filename, "batch_output", purpose_file.size, job.output_keep_s
            )
            ids[field] = purpose_file.id
    ended = job.at(closing, unix(), tally=tally, **ids)
    if await library.change(job, ended) is None:
        return job
    await library.forget_lines(ended)
    return ended


async def _sort(
    library: BatchLibrary, parts: list[str], output: _ResultFile, errors: _ResultFile
) -> tuple[LinesDone, LineTally]:
    """Each line's first result goes into its file."""
    done, tally = LinesDone(), LineTally()
    for part in parts:
        splitter = LineSplitter()
        async for piece in library.blobs.read(part):
            for record in records(splitter.feed(piece)):
                if done.add(record.number):
                    tally = tally.plus(record.tally)
                    await (output if record.ok else errors).add(record.result + b"\n")
    return done, tally


async def _name_undone(library: BatchLibrary, job: BatchJob, done: LinesDone, errors: _ResultFile) -> int:
    """Name the lines without a result in the error file; nothing if the input is gone."""
    code, message = _UNDONE.get(job.closing or "", _LOST)
    splitter, number, count = LineSplitter(), 0, 0
    try:
        async for piece in library.blobs.read(job.input_file_id):
            for _, line in splitter.feed(piece):
                number += 1
                count += await _name(number, line, job, done, errors, code, message)
        for _, line in splitter.end():
            count += await _name(number + 1, line, job, done, errors, code, message)
    except BlobMissing:
        pass
    return count


async def _name(
    number: int, line: bytes, job: BatchJob, done: LinesDone, errors: _ResultFile, code: str, message: str
) -> int:
    if number in done:
        return 0
    count = 0
    for request in lines_of(TaskRange(0, 0, number), line):
        await errors.add(undone(request.custom_id, line_id(job.id, number), code, message))
        count += 1
    return count
