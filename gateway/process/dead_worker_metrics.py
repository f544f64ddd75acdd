"""The counters of workers that have died, in one file of each kind: a worker that is started again and again
leaves no more of them behind, and `/metrics` has no more to read.
"""

import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from gateway.telemetry.logging import logger

# prometheus-client leaves these untyped.
_Values: Callable[[str], Any] = MmapedDict
_read: Callable[[str], Iterable[tuple[str, float, float, int]]] = MmapedDict.read_all_values_from_file
_forget_gauges: Callable[[int, str], None] = mark_process_dead
_collector: Any = MultiProcessCollector

_BROKEN: Final = (RuntimeError, ValueError, struct.error)
"""What a file that was cut short or overwritten makes of reading it."""

_FOLDED: Final[dict[str, Callable[[float, float], float]]] = {
    "counter": float.__add__,
    "histogram": float.__add__,
    "gauge_max": max,
}


def collect(folder: Path) -> Iterable[Metric]:
    """The counters of all workers; those in files that cannot be read are left out, and told of once."""
    collector = _collector(None, path=str(folder))
    try:
        return list(collector.collect())
    except _BROKEN:
        _set_aside(folder)
        return list(collector.collect())


def _set_aside(folder: Path) -> None:
    """The files that cannot be read: each would fail every scrape."""
    for file in folder.glob("*.db"):
        try:
            _collector.merge([str(file)])
        except FileNotFoundError:
            pass  # its worker has just died
        except _BROKEN as error:
            file.rename(file.with_suffix(".broken"))
            logger.error("counters cannot be read", extra={"file": file.name, "reason": repr(error)})


def fold(pid: int, folder: Path) -> None:
    """Add what the dead worker `pid` has counted to what others had before it; forget what was under way."""
    _forget_gauges(pid, str(folder))
    _set_aside(folder)  # else what cannot be read would get into the file of them all
    for kind, together in _FOLDED.items():
        try:
            _fold(folder / f"{kind}_{pid}.db", folder / f"{kind}_dead.db", together)
        except OSError as error:  # then it is read where it is
            logger.warning("cannot fold the counters of a dead worker: %s", error.strerror or error)


def _fold(dead: Path, kept: Path, together: Callable[[float, float], float]) -> None:
    """One file takes the place of both, whole or not at all."""
    if not dead.exists():
        return
    if not kept.exists():
        dead.rename(kept)
        return
    new = kept.with_suffix(".new")
    try:
        with new.open("wb") as file:
            # Its blocks are there before it is mapped: a full disk is an OSError here, and a SIGBUS there.
            os.posix_fallocate(file.fileno(), 0, kept.stat().st_size + dead.stat().st_size)
        values = _Values(str(new))
        try:
            for source in (kept, dead):
                for key, value, stamp, _ in _read(str(source)):
                    values.write_value(key, together(values.read_value(key)[0], value), stamp)
        finally:
            values.close()
        os.replace(new, kept)
    finally:
        new.unlink(missing_ok=True)
    dead.unlink()
