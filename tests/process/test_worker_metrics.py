"""The series of all workers together: what runs, and what ended workers have left."""

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.process.worker_metrics import WorkerMetrics
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.series_file import SeriesFile, SeriesRow


class Worker:
    """A worker's metrics in its file."""

    def __init__(self, folder: Path, number: int) -> None:
        self.path = folder / f"{number}.series"
        self.metrics = Metrics(store=SeriesFile(self.path, lambda error: None))

    def counted(self, model: str, size: int) -> None:
        """Count two retries and observe a batch."""
        self.metrics.retries.adder(model, "connect")(2)
        self.metrics.batch_size.observer(model, "e")(size)
        self.metrics.cache_bytes.add(size)


async def shown(together: WorkerMetrics, *workers: Worker, in_memory: Sequence[SeriesRow] = ()) -> dict[str, float]:
    """The samples of the families that workers count here, as text."""
    only = {"sluice_retries_total", "sluice_batch_size", "sluice_cache_bytes", "sluice_build_info"}
    files = [worker.path for worker in workers]
    text = "".join([piece async for piece in together.text(only, lambda: files, in_memory, (), openmetrics=False)])
    return {
        " ".join([one.name, *(value for label, value in one.labels.items() if label != "version")]): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if not one.name.endswith("_bucket") or one.labels["le"] == "+Inf"
    }


async def test_counters_outlive_their_worker_and_gauges_do_not(tmp_path: Path) -> None:
    together = WorkerMetrics(Metrics())
    a, b = Worker(tmp_path, 1), Worker(tmp_path, 2)
    a.counted("m", 3)
    b.counted("m", 4)
    b.counted("n", 5)
    both = {
        "sluice_retries_total connect m": 4,
        "sluice_retries_total connect n": 2,
        "sluice_batch_size_bucket e m +Inf": 2,
        "sluice_batch_size_count e m": 2,
        "sluice_batch_size_sum e m": 7,
        "sluice_batch_size_bucket e n +Inf": 1,
        "sluice_batch_size_count e n": 1,
        "sluice_batch_size_sum e n": 5,
        "sluice_build_info": 1,
        "sluice_cache_bytes": 12,
    }
    assert await shown(together, a, b) == both
    together.fold(b.path)
    assert await shown(together, a) == {**both, "sluice_cache_bytes": 3}
    together.fold(a.path)
    assert await shown(together) == {**both, "sluice_cache_bytes": 0}
    assert not list(tmp_path.iterdir())
    c = Worker(tmp_path, 3)
    c.counted("m", 1)
    after = await shown(together, c)
    assert (after["sluice_retries_total connect m"], after["sluice_cache_bytes"]) == (6, 1)


async def test_a_worker_that_ends_during_a_scrape_is_counted_once(tmp_path: Path) -> None:
    together = WorkerMetrics(Metrics())
    a, b = Worker(tmp_path, 1), Worker(tmp_path, 2)
    a.counted("m", 1)
    b.counted("m", 1)
    running = [a.path, b.path]

    def files() -> list[Path]:
        found = list(running)
        if len(running) == 2:  # it ends after it was listed, before it is read
            running.pop()
            together.fold(b.path)
        return found

    text = "".join([piece async for piece in together.text((), files, (), (), openmetrics=False)])
    assert 'sluice_retries_total{reason="connect",upstream="m"} 4.0' in text


async def test_what_a_worker_keeps_in_memory_is_added(tmp_path: Path) -> None:
    together, a = WorkerMetrics(Metrics()), Worker(tmp_path, 1)
    a.counted("m", 1)
    rows: list[SeriesRow] = [
        ("sluice_retries", ("m", "connect"), (5.0,)),
        ("sluice_retries", ("o", "connect"), (1.0,)),
        ("of another version", (), (1.0,)),
    ]
    told = await shown(together, a, in_memory=rows)
    assert (told["sluice_retries_total connect m"], told["sluice_retries_total connect o"]) == (7, 1)


async def test_metr_03_of_a_damaged_file_the_others_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    together = WorkerMetrics(Metrics())
    a, b = Worker(tmp_path, 1), Worker(tmp_path, 2)
    a.counted("m", 1)
    b.counted("m", 1)
    b.path.write_bytes(b.path.read_bytes()[:40])
    with caplog.at_level(logging.ERROR, "sluice"):
        for _ in range(3):
            assert (await shown(together, a, b))["sluice_retries_total connect m"] == 2
        together.fold(b.path)
    assert [record.message for record in caplog.records] == ["metrics of a worker cannot be read"]
    assert [path.name for path in tmp_path.iterdir()] == ["1.series"]
