"""A worker process, started by `gateway.process.worker_handle`: configs on stdin, replies on stdout."""

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import uvloop

from gateway.assembly.gateway import Gateway
from gateway.assembly.reload import apply
from gateway.assembly.upstreams import WorkerShare
from gateway.process.lifecycle import (
    APPLIED,
    READY,
    Signals,
    cannot_listen,
    freeze_gc,
    log_usage_error,
    read_config,
)
from gateway.telemetry import logging as log
from gateway.telemetry.series_file import SeriesFile
from gateway.usage.store import UsageUnavailable


async def _run(admin_socket: str, number: int, series_path: Path) -> int:
    messages = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(messages), sys.stdin)
    first = await read_config(messages)
    if first is None:  # the parent has ended
        return 1
    config = first[1]
    log.setup(config.log.level, config.log.format)
    gateway = Gateway(
        config,
        admin_socket=admin_socket,
        reuse_port=True,
        share=WorkerShare(number, config.server.workers),
        series=SeriesFile(series_path, _log_no_space),
    )
    # When a whole control group is signalled, the parent's SIGTERM is the second one here and must not cut
    # off open calls; the parent kills its workers when it has to. Reloads come through the pipe.
    signals = Signals(at_second=lambda: None)
    try:
        await gateway.start()
    except OSError as error:
        return cannot_listen(error)
    except UsageUnavailable as error:
        return log_usage_error(error)
    freeze_gc()
    _write(READY)
    orphaned = asyncio.create_task(_follow_reloads(gateway, messages))
    ends: set[asyncio.Future[None]] = {signals.first, orphaned}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    orphaned.cancel()
    await gateway.stop()
    return 0


async def _follow_reloads(gateway: Gateway, messages: asyncio.StreamReader) -> None:
    """Apply the configs that the parent sends. Returns when the parent has died, which closes stdin."""
    while (received := await read_config(messages)) is not None:
        number, config = received
        failure = await apply(gateway, config)
        answer = APPLIED if failure is None else " ".join(failure.split())
        _write(f"{number} {answer}\n".encode())


def _write(line: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # the parent has died; the drain begins at once
        os.write(sys.stdout.fileno(), line)


def _log_no_space(error: OSError) -> None:
    log.logger.warning(
        "no space for metrics: new series are kept in this worker's memory, and are lost if it is killed",
        extra={"reason": error.strerror or str(error), "setting": "server.metrics_dir"},
    )


def main(admin_socket: str, number: str, series_path: str) -> int:
    """Read the config from the parent, serve, and return the exit status."""
    return uvloop.run(_run(admin_socket, int(number), Path(series_path)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
