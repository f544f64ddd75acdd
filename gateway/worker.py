"""One worker process, started by `gateway.workers`: config on stdin, ready line on stdout."""

import asyncio
import pickle
import sys

import uvloop

from gateway import log
from gateway.app import Gateway
from gateway.config.model import Config
from gateway.process import READY, Signals, cannot_listen, settle_memory


async def _run(config: Config, admin_socket: str) -> int:
    gateway = Gateway(config, admin_socket=admin_socket, reuse_port=True)
    signals = Signals()
    orphaned = asyncio.create_task(_parent_gone())
    try:
        await gateway.start()
    except OSError as error:
        return cannot_listen(error)
    settle_memory()
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
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


def main(admin_socket: str) -> int:
    """Take the config from the parent, serve, and give the exit status."""
    size = int.from_bytes(sys.stdin.buffer.read(8), "big")
    # From our own parent, through a pipe that nobody else holds.
    config: Config = pickle.loads(sys.stdin.buffer.read(size))
    log.setup(config.log.level, config.log.format)
    return uvloop.run(_run(config, admin_socket))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
