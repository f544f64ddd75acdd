"""The folder of the workers' metrics: whether it can be used, and whether it has space."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gateway.config import model as cfg
from gateway.config.problems import Problem

_EXPECTED: Final = 4 * 1024 * 1024
"""Bytes that one worker may need: some 10,000 histograms or 40,000 counters."""

FIELD: Final = "server.metrics_dir"


def problems(config: cfg.Config) -> Iterator[Problem]:
    """A problem if the configured folder is none, or cannot be written to."""
    if config.server.metrics_dir is None:
        return
    folder = Path(config.server.metrics_dir)
    if not folder.is_dir():
        yield Problem(FIELD, f"{folder} is not a folder; create it")
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield Problem(FIELD, f"{folder} cannot be written to")


def warnings(config: cfg.Config) -> Iterator[str]:
    """A warning if several workers have little space for their metrics."""
    workers = config.server.workers
    if workers < 2:
        return
    folder = config.server.metrics_dir or tempfile.gettempdir()
    try:
        free = shutil.disk_usage(folder).free
    except OSError:  # a problem of its own, or of nobody
        return
    if free < _EXPECTED * workers:
        yield (
            f"{FIELD}: {folder} has {free / 2**20:.1f} MiB free; the metrics of {workers} workers may need "
            f"{_EXPECTED * workers / 2**20:.0f} MiB, and what finds no space is lost if a worker is killed"
        )
