"""`sluice serve`: read the config, then be one gateway process or the parent of several."""

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from gateway import log
from gateway.config.load import load
from gateway.config.model import Config
from gateway.config.unbuilt import unbuilt

READY = b"ready\n"
"""What a worker writes to stdout once it listens."""

_DESCRIPTORS_PER_STREAM = 2  # one to the client, one to the upstream
_OTHER_DESCRIPTORS = 64  # listeners, admin, log, Python's own


def serve(path: Path, host: str | None, port: int | None, workers: int | None) -> int:
    """Run until a signal; gives the exit status. The three options override the file."""
    given = {"host": host, "port": port, "workers": workers}
    overrides = {name: value for name, value in given.items() if value is not None}
    loaded = load(path, os.environ, server=overrides)
    if loaded.config is None:
        for problem in loaded.problems:
            print(problem, file=sys.stderr)
        return 2
    config = loaded.config
    log.setup(config.log.level, config.log.format)
    for warning in loaded.warnings:
        log.logger.warning(warning)
    missing = unbuilt(loaded)
    if missing:
        log.logger.warning("configured but not built yet: %s", "; ".join(missing))
    descriptors = raise_descriptor_limit()
    streams = max(0, descriptors - _OTHER_DESCRIPTORS) // _DESCRIPTORS_PER_STREAM
    log.logger.info("descriptor limit", extra={"descriptors": descriptors, "streams_per_worker": streams})
    if config.server.workers > 1:
        from gateway.workers import supervise

        return supervise(config)
    return uvloop.run(_serve_alone(config))


def raise_descriptor_limit() -> int:
    """Set the soft limit of open files to the hard one; gives the limit now in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1_048_576 if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):
            log.logger.warning("cannot raise the limit of open files", extra={"descriptors": soft})
    return soft


async def _serve_alone(config: Config) -> int:
    from gateway.app import Gateway

    gateway = Gateway(config)
    signals = Signals()
    try:
        await gateway.start()
    except OSError as error:
        return cannot_listen(error)
    listening(config, gateway.port, gateway.admin_port)
    await signals.first
    log.logger.info("draining; a second signal ends at once")
    await gateway.stop()
    log.logger.info("stopped")
    return 0


def listening(config: Config, port: int, admin_port: int) -> None:
    """Say where the gateway listens; scripts read the ports from this line."""
    urls = {"url": _url(config.server.host, port), "admin": _url(config.admin.host, admin_port)}
    log.logger.info("listening", extra=urls)


def cannot_listen(error: OSError) -> int:
    """Say why not; gives the exit status."""
    log.logger.error("cannot listen: %s", error.strerror or error)
    return 1


class Signals:
    """SIGTERM and SIGINT: the first one asks to stop, the second one ends the process at once."""

    def __init__(self, at_second: Callable[[], None] = lambda: None) -> None:
        """`at_second` is called before the process ends."""
        loop = asyncio.get_running_loop()
        self._at_second = at_second
        self.first: asyncio.Future[None] = loop.create_future()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received)

    def _received(self) -> None:
        if self.first.done():
            self._at_second()
            os._exit(1)
        self.first.set_result(None)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
