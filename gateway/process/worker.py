"""One worker process, started by `gateway.process.worker_handle`: configs on stdin, answers on stdout."""

import asyncio
import contextlib
import os
import sys

import uvloop

from gateway.assembly.gateway import Gateway
from gateway.assembly.reload import take
from gateway.assembly.upstreams import WorkerShare
from gateway.process.lifecycle import (
    READY,
    TAKEN,
    Signals,
    cannot_listen,
    freeze_gc,
    log_usage_error,
    read_config,
)
from gateway.telemetry import logging as log
from gateway.usage.store import UsageUnavailable


async def _run(admin_socket: str, number: int) -> int:
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    first = await read_config(orders)
    if first is None:  # the parent has ended meanwhile
        return 1
    config = first[1]
    log.setup(config.log.level, config.log.format)
    try:
        gateway = Gateway(
            config,
            admin_socket=admin_socket,
            reuse_port=True,
            share=WorkerShare(number, config.server.workers),
        )
    except OSError as error:  # its counters are files
        log.logger.error("cannot start: %s", error)
        return 1
    # When a whole control group is signalled, the parent's SIGTERM is the second one here and must not cut
    # off open calls: it is the parent that kills when it is in a hurry. Its SIGHUP is the parent's alone.
    signals = Signals(at_second=lambda: None)
    try:
        await gateway.start()
    except OSError as error:
        return cannot_listen(error)
    except UsageUnavailable as error:
        return log_usage_error(error)
    freeze_gc()
    _say(READY)
    orphaned = asyncio.create_task(_obey(gateway, orders))
    ends: set[asyncio.Future[None]] = {signals.first, orphaned}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    orphaned.cancel()
    await gateway.stop()
    return 0


async def _obey(gateway: Gateway, orders: asyncio.StreamReader) -> None:
    """Reload what the parent sends; it holds the other end of stdin for as long as it lives."""
    while (received := await read_config(orders)) is not None:
        number, config = received
        refused = await take(gateway, config)
        answer = TAKEN if refused is None else " ".join(refused.split())
        _say(f"{number} {answer}\n".encode())


def _say(line: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # the parent is gone: the drain comes at once
        os.write(sys.stdout.fileno(), line)


def main(admin_socket: str, number: str) -> int:
    """Take the config from the parent, serve, and give the exit status."""
    return uvloop.run(_run(admin_socket, int(number)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
