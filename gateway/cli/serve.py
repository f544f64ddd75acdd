"""`sluice serve`: reads the config, then runs one gateway process or a supervisor with several workers."""

import asyncio
import os
import resource
import signal
import sys
from functools import partial
from pathlib import Path

import uvloop

from gateway.assembly.gateway import Gateway
from gateway.assembly.reload import ConfigSource, Reloader, apply, log_warnings
from gateway.cli.wrapped import say
from gateway.config.model import Config
from gateway.http.server import _aiohttp
from gateway.process.lifecycle import Signals, cannot_listen, freeze_gc, listening, log_usage_error
from gateway.process.supervisor import supervise
from gateway.telemetry import logging as log
from gateway.usage.store import UsageUnavailable

_DESCRIPTORS_PER_STREAM = 2  # one to the client, one to the upstream
_OTHER_DESCRIPTORS = 64  # listeners, admin, log, Python's own


def serve(path: Path, host: str | None, port: int | None, workers: int | None) -> int:
    """Run until a signal and return the exit status. The three options override the file."""
    options = {"host": host, "port": port, "workers": workers}
    overrides = {name: value for name, value in options.items() if value is not None}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until a reload is possible
    source = ConfigSource(path, os.environ, overrides)
    loaded = source.read()
    if loaded.config is None:
        for problem in loaded.problems:
            say(problem, sys.stderr)
        return 2
    config = loaded.config
    log.setup(config.log.level, config.log.format)
    log_warnings(loaded)
    descriptors = raise_descriptor_limit()
    streams = max(0, descriptors - _OTHER_DESCRIPTORS) // _DESCRIPTORS_PER_STREAM
    log.logger.info("descriptor limit", extra={"descriptors": descriptors, "streams_per_worker": streams})
    try:
        _aiohttp.check()
    except RuntimeError as error:
        log.logger.error("cannot serve: %s", error)
        return 1
    if config.server.workers > 1:
        return supervise(config, source)
    return uvloop.run(_serve_alone(config, source))


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard limit and return the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = 1_048_576 if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < target:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
            soft = target
        except (OSError, ValueError):
            log.logger.warning("cannot raise the limit of open files", extra={"descriptors": soft})
    return soft


async def _serve_alone(config: Config, source: ConfigSource) -> int:
    gateway = Gateway(config)
    signals = Signals()
    try:
        await gateway.start()
    except OSError as error:
        return cannot_listen(error)
    except UsageUnavailable as error:
        return log_usage_error(error)
    freeze_gc()
    listening(config, gateway.port, gateway.admin_port)
    reloader = Reloader(source, config, partial(apply, gateway), gateway.reloads)
    gateway.reload_files = partial(reloader.reload, "admin")
    reloading = asyncio.create_task(reloader.run(signals.reload))
    await signals.first
    reloading.cancel()
    log.logger.info("draining; a second signal ends at once", extra={"audit": "drain"})
    await gateway.stop()
    log.logger.info("stopped")
    return 0
