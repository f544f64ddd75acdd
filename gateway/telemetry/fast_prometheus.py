"""Counting past prometheus-client's public methods, and every private name of it that the gateway uses.

`Counter.inc` and `Histogram.observe` take a lock and walk the buckets; going to the values directly costs a
tenth. This is safe because everything that counts, and everything that reads, runs on one event loop. With
several workers a value is a cell of a mapped file, and is written whole.

A value that is counted through this module must not be counted in any other way.
"""

import contextlib
import logging
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, cast

from prometheus_client import Counter, Histogram
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.values import MutexValue

TESTED: Final = "0.26"
REQUIREMENT: Final = "prometheus-client>=0.26,<0.27"

Add = Callable[[float], None]

# prometheus-client leaves these untyped.
_open_values: Callable[[str], Any] = MmapedDict
_new_value: Callable[..., Any] = MutexValue
_read_values: Callable[[str], Iterable[tuple[str, float, float, int]]] = MmapedDict.read_all_values_from_file


def fast_inc(child: Counter) -> Add:
    """A function that does what `child.inc` does; `child.inc` itself if a private name is missing."""
    try:
        return _adder(cast(Any, child)._value)
    except AttributeError:
        return child.inc


def fast_incs(family: Counter) -> Callable[..., Add]:
    """A function from labels to their `fast_inc`, cached: the label sets are closed."""
    return lru_cache(maxsize=None)(lambda *labels: fast_inc(family.labels(*labels)))


def counter(family: Counter) -> Callable[..., None]:
    """A function that counts one for the labels it is given."""
    child = fast_incs(family)
    return lambda *labels: child(*labels)(1)


def fast_observe(histogram: Histogram) -> Add:
    """A function that does what `histogram.observe` does, or `observe` itself if a private name is missing.

    prometheus-client stores a count per bucket, not cumulated, and the sum.
    """
    private = cast(Any, histogram)
    try:
        bounds, total, buckets = private._upper_bounds, private._sum, private._buckets
        add, counts = _adder(total), [_adder(bucket) for bucket in buckets]
    except AttributeError:
        return histogram.observe
    if isinstance(total, MutexValue):

        def observe(value: float) -> None:
            total._value += value
            buckets[bisect_left(bounds, value)]._value += 1

        return observe

    def observe_mapped(value: float) -> None:
        add(value)
        counts[bisect_left(bounds, value)](1)

    return observe_mapped


def fast_observes(family: Histogram) -> Callable[..., Add]:
    """A function from labels to their `fast_observe`, cached."""
    return lru_cache(maxsize=None)(lambda *labels: fast_observe(family.labels(*labels)))


def _adder(value: Any) -> Add:
    """A function that adds to one value, without its lock. AttributeError if a private name is missing."""
    if isinstance(value, MutexValue):
        value._value += 0.0  # AttributeError here, not in the middle of a request

        def add(amount: float) -> None:
            value._value += amount

        return add
    file = value._file
    cells, at = memoryview(file._m).cast("d"), file._positions[value._key] // 8

    def add_mapped(amount: float) -> None:
        cells[at] += amount

    return add_mapped


def fold_values(sources: Iterable[Path], into: Path, combine: Callable[[float, float], float]) -> None:
    """Adds the values of several workers' files to the file `into`.

    Raises AttributeError if a private name is missing, and what reading a broken file raises.
    """
    values = _open_values(str(into))
    try:
        for source in sources:
            for key, value, stamp, _ in _read_values(str(source)):
                values.write_value(key, combine(values.read_value(key)[0], value), stamp)
    finally:
        values.close()


def warn_if_unsupported(logger: logging.Logger) -> None:
    """Logs a warning at start-up if the installed prometheus-client lacks a private name used here."""
    try:
        missing = missing_names()
    except OSError:  # no room for the probe: whatever needs files reports that itself
        return
    if missing:
        logger.warning(
            "prometheus-client %s lacks %s, which version %s has. Counting uses its public methods and is "
            "slower; install '%s'.",
            version("prometheus-client"),
            ", ".join(missing),
            TESTED,
            REQUIREMENT,
        )


def missing_names() -> list[str]:
    """The private names that the installed prometheus-client lacks. Writes a small temporary file."""
    with tempfile.TemporaryDirectory() as folder:
        file = _open_values(f"{folder}/probe.db")
        wanted = {
            "Counter": (Counter("probe", "probe", registry=None), ("_value",)),
            "Histogram": (Histogram("probe", "probe", registry=None), ("_upper_bounds", "_sum", "_buckets")),
            "MutexValue": (_new_value("counter", "probe", "probe", (), (), "probe"), ("_value",)),
            "MmapedDict": (file, ("_m", "_positions", "read_value", "write_value", "close")),
        }
        missing = [
            f"{name}.{attribute}"
            for name, (example, attributes) in wanted.items()
            for attribute in attributes
            if not hasattr(example, attribute)
        ]
        with contextlib.suppress(AttributeError):
            file.close()
    return missing
