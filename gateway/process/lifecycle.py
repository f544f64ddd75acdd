"""What a gateway process says and hears: ready, listening, signals."""

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
TAKEN = "taken"
"""What it answers there to an order when that config is in force, behind the order's number."""


def encode_config(number: int, config: Config) -> bytes:
    """What a worker reads from stdin: a number, and the config to start with or to reload."""
    pickled = pickle.dumps((number, config))
    return len(pickled).to_bytes(8, "big") + pickled


async def read_config(reader: asyncio.StreamReader) -> tuple[int, Config] | None:
    """The next one; None when there will be no more."""
    try:
        size = int.from_bytes(await reader.readexactly(8), "big")
        pickled = await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        return None
    # From our own parent, through a pipe that nobody else holds.
    received: tuple[int, Config] = pickle.loads(pickled)
    return received


def listening(config: Config, port: int, admin_port: int) -> None:
    """Say where the gateway listens; scripts read the ports from this line."""
    urls = {"url": _url(config.server.host, port), "admin": _url(config.admin.host, admin_port)}
    log.logger.info("listening", extra=urls)


def cannot_listen(error: OSError) -> int:
    """Say why not; gives the exit status."""
    log.logger.error("cannot listen: %s", error.strerror or error)
    return 1


def log_usage_error(error: Exception) -> int:
    """Say why usage cannot be kept, or budgets not be known; gives the exit status."""
    log.logger.error("cannot keep usage: %s", error)
    return 1


def freeze_gc() -> None:
    """Call when everything is built: keep the garbage collector away from what lives for ever.

    Nearly all of a call's objects go by reference count. A full collection walks through every open stream,
    and with thousands of them that is a pause of a tenth of a second: so it is made rare.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 1000)


def abort_process() -> None:
    """End this process without any cleaning up."""
    os._exit(1)


class Signals:
    """SIGTERM and SIGINT: the first one asks to stop, a later one ends the process at once.

    SIGHUP sets `reload`.
    """

    def __init__(self, at_second: Callable[[], None] = abort_process) -> None:
        """`at_second` is what every signal after the first one does."""
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
