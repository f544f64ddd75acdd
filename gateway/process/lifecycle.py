"""Start and stop of a gateway process: its messages to the supervisor, its log lines and its signals."""

import asyncio
import gc
import os
import pickle
import signal
from collections.abc import Callable

from gateway.config.model import Config
from gateway.telemetry import logging as log

READY = b"ready\n"
"""What a worker writes to stdout once it listens."""
APPLIED = "applied"
"""What a worker writes there, after the number of a config, when it has applied that config."""


def encode_config(number: int, config: Config) -> bytes:
    """The message to a worker's stdin: a number, and the config to start with or to reload."""
    pickled = pickle.dumps((number, config))
    return len(pickled).to_bytes(8, "big") + pickled


async def read_config(reader: asyncio.StreamReader) -> tuple[int, Config] | None:
    """The next numbered config; None when the pipe is closed."""
    try:
        size = int.from_bytes(await reader.readexactly(8), "big")
        pickled = await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        return None
    # Trusted: it comes from the parent process, through a pipe that no other process has.
    received: tuple[int, Config] = pickle.loads(pickled)
    return received


def listening(config: Config, port: int, admin_port: int) -> None:
    """Log where the gateway listens; scripts read the ports from this line."""
    urls = {"url": _url(config.server.host, port), "admin": _url(config.admin.host, admin_port)}
    log.logger.info("listening", extra=urls)


def cannot_listen(error: OSError) -> int:
    """Log why the gateway cannot listen and return the exit status."""
    log.logger.error("cannot listen: %s", error.strerror or error)
    return 1


def log_usage_error(error: Exception) -> int:
    """Log why usage cannot be recorded or budgets cannot be read, and return the exit status."""
    log.logger.error("cannot record usage: %s", error)
    return 1


def freeze_gc() -> None:
    """Exempt everything built so far from garbage collection, and make full collections rare.

    Reference counting frees nearly all objects of a call. A full collection visits every open stream; with
    thousands of them it pauses the loop for a tenth of a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 1000)


def abort_process() -> None:
    """End this process at once, without cleanup."""
    os._exit(1)


class Signals:
    """Handles SIGTERM and SIGINT, of which the first asks for a drain and a second ends the process at once.

    SIGHUP sets `reload`.
    """

    def __init__(self, at_second: Callable[[], None] = abort_process) -> None:
        """`at_second` is called on every signal after the first."""
        loop = asyncio.get_running_loop()
        self._at_second = at_second
        self.first: asyncio.Future[None] = loop.create_future()
        self.reload = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received)
        loop.add_signal_handler(signal.SIGHUP, self.reload.set)

    def _received(self) -> None:
        if self.first.done():
            self._at_second()
        else:
            self.first.set_result(None)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
