"""A new config while the gateway serves: read and checked whole, then in force whole, or not at all."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from gateway.assembly.cascade import checked
from gateway.assembly.gateway import Gateway
from gateway.config.load import Loaded, load
from gateway.config.model import Config
from gateway.config.problems import Problem
from gateway.core.clock import unix
from gateway.pricing.resolver import Pricing
from gateway.telemetry import logging as log
from gateway.telemetry.collectors import ReloadCollector
from gateway.usage.store import UsageUnavailable

POLL_S: Final = 1.0
"""Seconds between two looks at the files."""

_FIXED: Final[dict[str, tuple[str, ...]]] = {
    "server": ("host", "port", "workers", "keepalive_timeout", "max_queue", "timezone"),
    "admin": ("host", "port"),
    "redis": ("url", "timeout", "prefix", "on_failure"),
    "usage": ("store", "path"),
    "traces": ("enabled",),
}
_Seen = tuple[tuple[int, ...] | None, ...]


class ConfigSource:
    """The config file, the `.env` beside it, and what overrides them."""

    def __init__(self, path: Path, environ: Mapping[str, str], server: Mapping[str, object]) -> None:
        """`environ` and `server` as `load` takes them."""
        self._path = path
        self._environ = environ
        self._server = server
        self._read: _Seen = ()
        self._latest: _Seen = ()

    def read(self) -> Loaded:
        """Read and check them. What changes during it will be noticed."""
        self._read = self._latest = self._look()
        return checked(load(self._path, self._environ, server=self._server))

    def changed(self) -> bool:
        """Whether they are others than those that were read last, and the same as at the last look.

        The latter because a file may be seen half written.
        """
        before, self._latest = self._latest, self._look()
        return self._latest == before and self._latest != self._read

    def _look(self) -> _Seen:
        return tuple(_stat(path) for path in (self._path, self._path.parent / ".env"))


def _stat(path: Path) -> tuple[int, ...] | None:
    """Of the file that links lead to: where one of them is exchanged, as Kubernetes does, it is another."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev)


def immovable(old: Config, new: Config) -> list[Problem]:
    """The fields that differ and that only a start can change."""
    problems = []
    for section, fields in _FIXED.items():
        before, after = getattr(old, section), getattr(new, section)
        if (before is None) is not (after is None):
            problems.append(_restart(section))
        elif before is not None:
            problems += [
                _restart(f"{section}.{field}")
                for field in fields
                if getattr(before, field) != getattr(after, field)
            ]
    return problems


def _restart(place: str) -> Problem:
    return Problem(place, "has changed, which takes a restart")


def changes(old: Config, new: Config) -> list[str]:
    """The sections that differ, entries of named ones by their names; never a value."""
    found = []
    for section in Config.__struct_fields__:
        before, after = _named(getattr(old, section)), _named(getattr(new, section))
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            names = dict.fromkeys((*before, *after))
            found += [f"{section}.{name}" for name in names if before.get(name) != after.get(name)]
        elif before != after:
            found.append(section)
    return found


def _named(section: object) -> object:
    return {one.name: one for one in section} if isinstance(section, tuple) else section


def tell(loaded: Loaded) -> None:
    """Log what is odd about a config that is good."""
    for warning in loaded.warnings:
        log.logger.warning(warning)
    for warning in Pricing(unix).unknown(loaded.config) if loaded.config is not None else ():
        log.logger.warning(warning)


async def take(gateway: Gateway, config: Config) -> str | None:
    """Hand a config to a gateway of this process. None when it is in force, else why it is not."""
    try:
        await gateway.reload(config)
    except UsageUnavailable as error:
        return f"usage: {error}"
    except Exception:  # noqa: BLE001 - a reload ends here, and the gateway serves on
        log.logger.exception("bug in the gateway; the config is not reloaded")
        return "a bug in the gateway"
    log.setup(config.log.level, config.log.format)
    return None


class Reloader:
    """Reloads when it is asked to, and when the files have changed."""

    def __init__(
        self,
        source: ConfigSource,
        config: Config,
        take: Callable[[Config], Awaitable[str | None]],
        reloads: ReloadCollector,
    ) -> None:
        """`config` is what has been read at the start; `take` puts another one in force, or says why not."""
        self._source = source
        self._config = config
        self._take = take
        self._reloads = reloads

    async def run(self, asked: asyncio.Event, look_s: float = POLL_S) -> None:
        """Until it is cancelled."""
        while True:
            cause = "signal"
            try:
                async with asyncio.timeout(look_s):
                    await asked.wait()
            except TimeoutError:
                if not self._source.changed():
                    continue
                cause = "files"
            asked.clear()
            await self.reload(cause)

    async def reload(self, cause: str = "signal") -> None:
        """Once; the log tells its cause. Never raises for anything that may be wrong with the files."""
        loaded = await asyncio.to_thread(self._source.read)
        config = loaded.config
        problems = loaded.problems if config is None else immovable(self._config, config)
        wrong = [str(problem) for problem in problems]
        if config is not None and not wrong:
            refused = await self._take(config)
            wrong = [refused] if refused is not None else []
        self._reloads.succeeded = not wrong
        told: dict[str, object] = {"audit": "reload", "cause": cause}
        if config is None or wrong:
            for line in wrong:
                log.logger.error("config not reloaded, the one before stays: %s", line, extra=told)
            return
        tell(loaded)
        self._reloads.generation += 1
        changed, self._config = changes(self._config, config), config
        told |= {"generation": self._reloads.generation, "changed": changed}
        log.logger.info("config reloaded", extra=told)
