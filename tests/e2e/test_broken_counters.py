"""Files of counters that cannot be read, and workers that die in the middle of calls: figures go on."""

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest
from doubles.gateway import GatewayProcess, Metrics
from doubles.script import NEVER
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, ask
from doubles.waiting import eventually
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from gateway.process import dead_worker_metrics as dead_counters

DAMAGES = {
    "cut": lambda data: data[:60],
    "empty": lambda data: b"",
    "two bytes": lambda data: data[:2],
    "overwritten": lambda data: data[:8] + b"\x7f" * (len(data) - 8),
    "another's": lambda data: b"\x40\0\0\0\0\0\0\0" + b"\x04\0\0\0nope" + b"\0" * 100,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_metr_03_of_a_damaged_file_the_others_are_told(damage: str, tmp_path: Path) -> None:
    for pid in (1, 2):
        values = MmapedDict(str(tmp_path / f"counter_{pid}.db"))
        values.write_value(mmap_key("calls", "calls_total", ["model"], ["m"], "Calls."), 3.0, 0.0)
        values.close()
    damaged = tmp_path / "counter_1.db"
    damaged.write_bytes(DAMAGES[damage](damaged.read_bytes()))
    for _ in range(2):
        (family,) = dead_counters.collect(tmp_path)
        assert [one.value for one in family.samples] == [3.0]
    assert not damaged.exists()


async def test_metr_03_a_damaged_file_of_counters_breaks_no_scrape(
    upstream: FaultUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(tmp_path))
    with GatewayProcess(settings(upstream.url, server={"workers": 2}), tmp_path) as gateway:
        for _ in range(4):
            assert (await ask(gateway.port, C0)).status == 200
        file = next(tmp_path.glob("sluice-*/counter_*.db"))
        # As of a worker that has died: nobody has it mapped into memory.
        file.with_name("counter_1.db").write_bytes(DAMAGES["cut"](file.read_bytes()))
        async with asyncio.timeout(10):
            while (await asyncio.to_thread(gateway.metrics)).value("sluice_requests_total") != 4:
                pass
        assert (await asyncio.to_thread(gateway.metrics)).value("sluice_requests_total") == 4
        assert gateway.log.count("counters cannot be read") == 1


def test_metr_03_a_dead_workers_damaged_file_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for pid, damage in ((7, "another's"), (8, "cut")):
        (tmp_path / f"counter_{pid}.db").write_bytes(DAMAGES[damage](b"\x40\0\0\0" * 50))
    with caplog.at_level(logging.ERROR, "sluice"):
        dead_counters.fold(7, tmp_path)
        assert list(dead_counters.collect(tmp_path)) == []
    assert len(caplog.records) == 2
    assert sorted(one.name for one in tmp_path.iterdir()) == ["counter_7.broken", "counter_8.broken"]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("PROMETHEUS_MULTIPROC_DIR", "of another run"),
        ("PROMETHEUS_MULTIPROC_DIR", "that is not there"),
        ("prometheus_multiproc_dir", "that is not there"),
    ],
)
async def test_metr_03_a_folder_of_counters_in_the_environment_is_not_ours(
    upstream: FaultUpstream, tmp_path: Path, name: str, folder: str
) -> None:
    place = tmp_path / "counters"
    if folder == "of another run":
        place.mkdir()
        (place / "counter_1.db").write_bytes(DAMAGES["another's"](b""))
    before = list(tmp_path.rglob("counters/*"))
    with GatewayProcess(settings(upstream.url), tmp_path, {name: str(place)}) as gateway:
        assert (await ask(gateway.port, C0)).status == 200
        async with asyncio.timeout(10):
            while (await asyncio.to_thread(gateway.metrics)).value("sluice_requests_total") != 1:
                pass
    assert list(tmp_path.rglob("counters/*")) == before


async def test_metr_03_what_a_killed_worker_had_under_way_is_no_longer_counted(
    upstream: FaultUpstream, tmp_path: Path
) -> None:
    upstream.always([NEVER])
    with GatewayProcess(settings(upstream.url, server={"workers": 2}), tmp_path) as gateway:

        async def in_flight() -> float:
            return (await asyncio.to_thread(gateway.metrics)).value("sluice_upstream_inflight")

        calls = [asyncio.create_task(ask(gateway.port, C0)) for _ in range(10)]
        await upstream.holding(10)
        assert await in_flight() == 10
        for pid in gateway.workers():
            os.kill(pid, signal.SIGKILL)
        await eventually(lambda: gateway.log.count("worker died") == 2, "both are dead", within=10)
        await asyncio.gather(*calls, return_exceptions=True)
        assert await in_flight() == 0
        metrics: Metrics = await asyncio.to_thread(gateway.metrics)
        assert metrics.value("sluice_upstream_queue_depth") == 0
