"""`sluice batch`: submits, shows, fetches and cancels batches of a running gateway."""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final, TextIO

import msgspec
from rich.console import Console

from gateway.cli.batch.client import BatchClient, BatchCommandError, BatchView, pause
from gateway.cli.batch.progress import BatchProgress
from gateway.core.clock import monotonic
from gateway.core.units import Secret

_POLL_S: Final = 1.0
_SHOWN_ERRORS: Final = 10


class _FirstLine(msgspec.Struct):
    url: str = ""


def run(
    options: argparse.Namespace, environ: Mapping[str, str], out: TextIO, err: TextIO, poll_s: float = _POLL_S
) -> int:
    """Run the command and return the exit status: 0; 1 if something or some line failed; 2 for wrong input."""
    key = options.key or environ.get("OPENAI_API_KEY")
    try:
        return asyncio.run(_Command(options, Secret(key) if key else None, out, err, poll_s).run())
    except BatchCommandError as error:
        print(f"sluice batch: {error}", file=err)
        return 1
    except ValueError as error:
        print(f"sluice batch: {error}", file=err)
        return 2


class _Command:
    def __init__(
        self, options: argparse.Namespace, key: Secret | None, out: TextIO, err: TextIO, poll_s: float
    ) -> None:
        self._options = options
        self._key = key
        self._out = out
        self._err = err
        self._poll_s = poll_s

    async def run(self) -> int:
        options = self._options
        if options.action in ("submit", "run"):
            endpoint = options.endpoint or _endpoint(options.file)
        async with BatchClient(options.url, self._key) as client:
            if options.action == "cancel":
                return self._show(await client.cancel(options.id))
            if options.action == "result":
                return await self._result(client, await client.batch(options.id))
            if options.action == "status":
                return await self._status(client)
            batch = await client.create(await client.upload(options.file), endpoint, options.window)
            if options.action == "submit":
                print(batch.id, file=self._out, flush=True)
                return self._show(await self._wait(client, batch)) if options.wait else 0
            return await self._whole(client, batch)

    async def _status(self, client: BatchClient) -> int:
        if self._options.id is None:
            for batch in await client.latest():
                self._line(batch)
            return 0
        batch = await client.batch(self._options.id)
        return self._show(await self._wait(client, batch) if self._options.wait else batch)

    async def _whole(self, client: BatchClient, batch: BatchView) -> int:
        batch = await self._wait(client, batch)
        out: Path = self._options.out
        for file, path in ((batch.output_file_id, out), (batch.error_file_id, out.with_name(out.name + ".errors"))):
            if file is not None:
                await _fetch(client, file, path)
        return self._show(batch)

    async def _result(self, client: BatchClient, batch: BatchView) -> int:
        if not batch.ended:
            raise BatchCommandError(f"{batch.id} has not ended: it is {batch.status}")
        file = batch.error_file_id if self._options.errors else batch.output_file_id
        if file is None:
            raise BatchCommandError(f"{batch.id} has no {'error' if self._options.errors else 'output'} file")
        if self._options.out is not None:
            await _fetch(client, file, self._options.out)
        else:
            self._out.flush()
            await client.download(file, _bytes_of(self._out))
        return 0

    async def _wait(self, client: BatchClient, batch: BatchView) -> BatchView:
        """Show the progress until the batch has ended."""
        try:
            with BatchProgress(Console(file=self._err), monotonic) as bar:
                bar.show(batch)
                while not batch.ended:
                    await pause(self._poll_s)
                    batch = await client.batch(batch.id)
                    bar.show(batch)
        except asyncio.CancelledError:
            print(f"\n{batch.id} goes on; see it with: sluice batch status {batch.id}", file=self._err)
            raise
        return batch

    def _line(self, batch: BatchView) -> None:
        counts = batch.request_counts
        failed = f", {counts['failed']} failed" if counts.get("failed") else ""
        cost = f", {batch.cost_usd} USD" if batch.cost_usd is not None else ""
        paused = f", paused: {batch.paused}" if batch.paused else ""
        done = f"{counts.get('completed', 0)} of {counts.get('total', 0)} lines"
        print(f"{batch.id}  {batch.status}  {batch.endpoint}  {done}{failed}{cost}{paused}", file=self._out)

    def _show(self, batch: BatchView) -> int:
        """Show a batch, and its first errors. 1 if it or one of its lines failed."""
        self._line(batch)
        for error in (batch.errors or {}).get("data", [])[:_SHOWN_ERRORS]:
            where = f"line {error['line']}: " if error.get("line") else ""
            print(f"  {where}{error['message']}", file=self._err)
        failed = batch.ended and (batch.status != "completed" or batch.request_counts.get("failed", 0) > 0)
        return int(failed and self._options.action != "cancel")


def _endpoint(file: Path) -> str:
    """The endpoint that the first line of a file names. ValueError if it names none."""
    with file.open("rb") as lines:
        first = next((line for line in lines if line.strip()), b"")
    try:
        url = msgspec.json.decode(first.removeprefix(b"\xef\xbb\xbf"), type=_FirstLine).url
    except msgspec.DecodeError:
        url = ""
    if not url:
        raise ValueError(f"{file}: the first line is no request with a url; see the format in docs/batches.md")
    return url


async def _fetch(client: BatchClient, file: str, path: Path) -> None:
    """Write a file, which appears when it is complete."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as out:
            await client.download(file, out)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _bytes_of(out: TextIO) -> BinaryIO:
    return out.buffer if out is sys.stdout else _Encoded(out)  # type: ignore[return-value]


class _Encoded:
    """Bytes written to a text stream, whole lines or not."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, piece: bytes) -> None:
        self._out.write(piece.decode("utf-8", "surrogateescape"))
