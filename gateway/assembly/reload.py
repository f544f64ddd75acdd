"""Reload: a new config is read and checked as a whole, then applied as a whole or not at all."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import asdict

from gateway.assembly.cascade import checked
from gateway.assembly.gateway import Gateway
from gateway.config.load import Loaded, load
from gateway.config.model import Config
from gateway.config.problems import Problem
from gateway.core.clock import unix
from gateway.pricing.resolver import Pricing
from gateway.telemetry import logging as log
from gateway.telemetry.collectors import ReloadStatus
from gateway.usage.store import UsageUnavailable

POLL_S: Final = 1.0
"""Seconds between two checks of the files."""

_FIXED: Final[dict[str, tuple[str, ...]]] = {
    "server": ("host", "port", "workers", "keepalive_timeout", "max_queue", "timezone", "learned_path", "metrics_dir"),
    "admin": ("host", "port"),
    "redis": ("url", "timeout", "prefix", "on_failure"),
    "usage": ("store", "path"),
    "traces": ("enabled",),
    "batches": ("enabled", "path", "url", "max_file", "max_lines", "keep", "max_disk", "hours"),
}
_FileStates = tuple[tuple[int, ...] | None, ...]


class ConfigSource:
    """The config file, the `.env` beside it, and the overrides of the command line."""

    def __init__(self, path: Path, environ: Mapping[str, str], server: Mapping[str, object]) -> None:
        """`environ` and `server` are passed to `load`."""
        self._path = path
        self._environ = environ
        self._server = server
        self._read: _FileStates = ()
        self._latest: _FileStates = ()
        self._named: tuple[Path, ...] = ()  # files that the config names

    def read(self) -> Loaded:
        """Read and check the files. A change during the reading counts as a later change."""
        self._read = self._latest = self._states()
        loaded = load(self._path, self._environ, server=self._server)
        if loaded.files != self._named:
            self._named = loaded.files
            self._read = self._latest = self._states()
        return checked(loaded)

    def changed(self) -> bool:
        """Whether the files differ from those read last and were the same at the previous check.

        The second condition avoids reading a half-written file.
        """
        before, self._latest = self._latest, self._states()
        return self._latest == before and self._latest != self._read

    def _states(self) -> _FileStates:
        return tuple(_stat(path) for path in (self._path, self._path.parent / ".env", *self._named))


def _stat(path: Path) -> tuple[int, ...] | None:
    """The identity of the file that links lead to: Kubernetes updates a ConfigMap by replacing a link."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev)


def immovable(old: Config, new: Config) -> list[Problem]:
    """A problem for each differing field that needs a restart."""
    problems = []
    olds, news = asdict(old), asdict(new)
    for section, fields in _FIXED.items():
        before, after = olds[section], news[section]
        if (before is None) is not (after is None):
            problems.append(_restart(section))
        elif before is not None:
            had, has = asdict(before), asdict(after)
            problems += [_restart(f"{section}.{field}") for field in fields if had[field] != has[field]]
    return problems


def _restart(path: str) -> Problem:
    return Problem(path, "has changed, which needs a restart")


def changes(old: Config, new: Config) -> list[str]:
    """The paths that differ: sections, or their named entries; never a value."""
    differing = []
    news = asdict(new)
    for section, value in asdict(old).items():
        before, after = _named(value), _named(news[section])
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            names = dict.fromkeys((*before, *after))
            differing += [f"{section}.{name}" for name in names if before.get(name) != after.get(name)]
        elif before != after:
            differing.append(section)
    return differing


def _named(section: object) -> object:
    return {entry.name: entry for entry in section} if isinstance(section, tuple) else section


def log_warnings(loaded: Loaded) -> None:
    """Log the warnings of a loaded config."""
    for warning in loaded.warnings:
        log.logger.warning(warning)
    for warning in Pricing(unix).warnings(loaded.config) if loaded.config is not None else ():
        log.logger.warning(warning)


async def apply(gateway: Gateway, config: Config) -> str | None:
    """Apply a config to a gateway of this process. Returns None, or the reason why it was not applied."""
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
    """Reloads on request, and when the files change."""

    def __init__(
        self,
        source: ConfigSource,
        config: Config,
        apply: Callable[[Config], Awaitable[str | None]],
        reloads: ReloadStatus,
    ) -> None:
        """`config` is the current one; `apply` applies another and returns None, or why it did not."""
        self._source = source
        self._config = config
        self._apply = apply
        self._reloads = reloads
        self._one_at_a_time = asyncio.Lock()

    async def run(self, requested: asyncio.Event, poll_s: float = POLL_S) -> None:
        """Reload on every `requested` and every change of the files, until cancelled."""
        while True:
            cause = "signal"
            try:
                async with asyncio.timeout(poll_s):
                    await requested.wait()
            except TimeoutError:
                if not self._source.changed():
                    continue
                cause = "files"
            requested.clear()
            await self.reload(cause)

    async def reload(self, cause: str = "signal") -> list[str]:
        """Reload once and log the `cause`; returns why the current config stays, if it does.

        Never raises, whatever is wrong with the files.
        """
        async with self._one_at_a_time:
            return await self._reload(cause)

    async def _reload(self, cause: str) -> list[str]:
        loaded = await asyncio.to_thread(self._source.read)
        config = loaded.config
        problems = loaded.problems if config is None else immovable(self._config, config)
        failures = [str(problem) for problem in problems]
        if config is not None and not failures:
            failure = await self._apply(config)
            failures = [failure] if failure is not None else []
        self._reloads.succeeded = not failures
        fields: dict[str, object] = {"audit": "reload", "cause": cause}
        if config is None or failures:
            for failure in failures:
                log.logger.error("config not reloaded, the current one stays: %s", failure, extra=fields)
            return failures
        log_warnings(loaded)
        self._reloads.generation += 1
        changed, self._config = changes(self._config, config), config
        fields |= {"generation": self._reloads.generation, "changed": changed}
        log.logger.info("config reloaded", extra=fields)
        return []
