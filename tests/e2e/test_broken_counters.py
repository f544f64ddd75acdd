"""Files of counters that cannot be read, and workers that die in the middle of calls: figures go on."""

import asyncio
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

from gateway.wire.openai.chat import CHAT


async def counted(gateway: GatewayProcess, requests: int) -> None:
    """Waits until so many requests are counted."""
    async with asyncio.timeout(10):
        while (await asyncio.to_thread(gateway.metrics)).value("sluice_requests_total") != requests:
            pass


async def test_metr_03_a_damaged_file_of_counters_breaks_no_scrape(
    upstream: FaultUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(tmp_path))
    with GatewayProcess(settings(upstream.url, server={"workers": 2}), tmp_path) as gateway:
        for _ in range(4):
            assert (await ask(gateway.port, C0)).status == 200
        await counted(gateway, 4)
        # The worker that has served most of the calls first; the other may have served none.
        files = tmp_path.glob("sluice-*/worker-*.series")
        one, other = sorted(files, key=lambda file: file.read_bytes().count(CHAT.encode()), reverse=True)
        kept = one.read_bytes()
        one.write_bytes(kept[:8] + b"\x7f" * (len(kept) - 8))  # as long as before: it stays mapped into memory
        shown = [(await asyncio.to_thread(gateway.metrics)).value("sluice_requests_total") for _ in range(2)]
        assert shown[0] == shown[1] < 4
        assert gateway.log.count("metrics of a worker cannot be read") == 1
        one.write_bytes(kept)
        await counted(gateway, 4)
        assert other.exists()


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
        (place / "counter_1.db").write_bytes(b"\x40\0\0\0\0\0\0\0\x04\0\0\0nope" + bytes(100))
    before = list(tmp_path.rglob("counters/*"))
    with GatewayProcess(settings(upstream.url), tmp_path, {name: str(place)}) as gateway:
        assert (await ask(gateway.port, C0)).status == 200
        await counted(gateway, 1)
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
