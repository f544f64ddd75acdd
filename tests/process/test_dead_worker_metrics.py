"""Counters outlive their worker, in one file of each kind."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from gateway.process.dead_worker_metrics import fold

COUNTS = """
from prometheus_client import Counter, Gauge, Histogram
import os, sys
counted = Counter("calls", "Calls.", ["model"])
for model in sys.argv[1:]:
    counted.labels(model).inc(2)
Histogram("size", "Sizes.", buckets=(1, 10)).observe(5)
Gauge("build", "Builds.", ["version"], multiprocess_mode="max").labels("1").set(1)
Gauge("held", "Held.", multiprocess_mode="livesum").set(7)
print(os.getpid())
"""


def worker(folder: Path, *models: str) -> int:
    """Run a worker that counts two calls for each of these models, and return its pid."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTS, *models],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return int(done.stdout)


def shown(folder: Path) -> list[str]:
    """The samples of all workers together."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))
    return sorted(line for line in generate_latest(registry).decode().splitlines() if line[0] != "#")


def test_counters_of_dead_workers_are_added_up_in_one_file_of_each_kind(tmp_path: Path) -> None:
    for models in (("a",), ("a", "b"), ("b", "c" * 5000)):
        fold(worker(tmp_path, *models), tmp_path)
        assert len(list(tmp_path.iterdir())) == 3
    assert [line for line in shown(tmp_path) if "ccc" not in line] == [
        'build{version="1"} 1.0',
        'calls_total{model="a"} 4.0',
        'calls_total{model="b"} 4.0',
        'size_bucket{le="+Inf"} 3.0',
        'size_bucket{le="1.0"} 0.0',
        'size_bucket{le="10.0"} 3.0',
        "size_count 3.0",
        "size_sum 15.0",
    ]


def test_a_full_disk_loses_no_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fold(worker(tmp_path, "a"), tmp_path)
    second = worker(tmp_path, "a")

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.posix_fallocate", full)
    fold(second, tmp_path)
    assert 'calls_total{model="a"} 4.0' in shown(tmp_path)
    assert not list(tmp_path.glob("*.new"))
    monkeypatch.undo()
    fold(second, tmp_path)
    assert 'calls_total{model="a"} 4.0' in shown(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
