"""The counters of dead workers, folded into one file of each kind.

Without this a worker that is restarted again and again would leave a set of files each time, and every scrape
would read them all.
"""

import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from gateway.telemetry.fast_prometheus import fold_values
from gateway.telemetry.logging import logger

# prometheus-client leaves these untyped.
_drop_gauges: Callable[[int, str], None] = mark_process_dead
_collector: Any = MultiProcessCollector

_BROKEN: Final = (RuntimeError, ValueError, struct.error)
"""What reading a truncated or overwritten file raises."""

_FOLDED: Final[dict[str, Callable[[float, float], float]]] = {
    "counter": float.__add__,
    "histogram": float.__add__,
    "gauge_max": max,
}


def collect(folder: Path) -> Iterable[Metric]:
    """The counters of all workers. Unreadable files are left out and logged once."""
    collector = _collector(None, path=str(folder))
    try:
        return list(collector.collect())
    except _BROKEN:
        _quarantine(folder)
        return list(collector.collect())


def _quarantine(folder: Path) -> None:
    """Rename unreadable files, each of which would fail every scrape."""
    for file in folder.glob("*.db"):
        try:
            _collector.merge([str(file)])
        except FileNotFoundError:
            pass  # its worker has just died, and another call has folded it
        except _BROKEN as error:
            file.rename(file.with_suffix(".broken"))
            logger.error("counters cannot be read", extra={"file": file.name, "reason": repr(error)})


def fold(pid: int, folder: Path) -> None:
    """Add the counters of the dead worker `pid` to those of earlier ones, and drop its gauges."""
    _drop_gauges(pid, str(folder))
    _quarantine(folder)  # or unreadable data would get into the common file
    for kind, combine in _FOLDED.items():
        try:
            _fold(folder / f"{kind}_{pid}.db", folder / f"{kind}_dead.db", combine)
        except (OSError, AttributeError) as error:  # the file stays and is still read
            reason = error.strerror if isinstance(error, OSError) else None
            logger.warning("cannot fold the counters of a dead worker: %s", reason or error)


def _fold(dead: Path, total: Path, combine: Callable[[float, float], float]) -> None:
    """Merge `dead` into `total`, completely or not at all."""
    if not dead.exists():
        return
    if not total.exists():
        dead.rename(total)
        return
    new = total.with_suffix(".new")
    try:
        with new.open("wb") as file:
            # Allocate before mapping: a full disk is an OSError here, but a SIGBUS in mapped memory.
            os.posix_fallocate(file.fileno(), 0, total.stat().st_size + dead.stat().st_size)
        fold_values((total, dead), new, combine)
        os.replace(new, total)
    finally:
        new.unlink(missing_ok=True)
    dead.unlink()
