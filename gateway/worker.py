"""One worker process, started by `gateway.workers`: config on stdin, ready line on stdout."""

import asyncio
import contextlib
import os
import pickle
import sys

import uvloop

from gateway import log
from gateway.app import Gateway
from gateway.assembly import Share
from gateway.config.model import Config
from gateway.process import READY, Signals, cannot_count, cannot_listen, settle_memory
from gateway.store.usage import UsageTrouble


async def _run(config: Config, admin_socket: str, number: int) -> int:
    try:
        gateway = Gateway(
            config, admin_socket=admin_socket, reuse_port=True, share=Share(number, config.server.workers)
        )
    except OSError as error:  # its counters are files
        log.logger.error("cannot start: %s", error)
        return 1
    # When a whole control group is signalled, the parent's SIGTERM is the second one here and must not cut
    # off open calls: it is the parent that kills when it is in a hurry.
    signals = Signals(at_second=lambda: None)
    orphaned = asyncio.create_task(_parent_gone())
    try:
        await gateway.start()
    except OSError as error:
        return cannot_listen(error)
    except UsageTrouble as error:
        return cannot_count(error)
    settle_memory()
    with contextlib.suppress(BrokenPipeError):  # the parent is gone: the drain comes at once
        os.write(sys.stdout.fileno(), READY)
    ends: set[asyncio.Future[None]] = {signals.first, orphaned}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    orphaned.cancel()
    await gateway.stop()
    return 0


async def _parent_gone() -> None:
    """The parent holds the other end of stdin for as long as it lives."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


def main(admin_socket: str, number: str) -> int:
    """Take the config from the parent, serve, and give the exit status."""
    size = int.from_bytes(sys.stdin.buffer.read(8), "big")
    sent = sys.stdin.buffer.read(size)
    if not sent or len(sent) < size:  # the parent has ended meanwhile
        return 1
    # From our own parent, through a pipe that nobody else holds.
    config: Config = pickle.loads(sent)
    log.setup(config.log.level, config.log.format)
    return uvloop.run(_run(config, admin_socket, int(number)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
