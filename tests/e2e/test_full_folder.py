"""A folder of metrics without space: calls go on and are counted, with several workers."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doubles.gateway import GatewayProcess
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import ask
from doubles.waiting import eventually

MODELS = 150


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system in memory with room for 192 KiB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=192k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def config(url: str, folder: Path) -> dict[str, Any]:
    """Two workers and many models: each call of another one makes new series."""
    models = {f"m-{number}": {"candidates": [{"upstream": "local", "model": "up"}]} for number in range(MODELS)}
    return settings(url, server={"workers": 2, "metrics_dir": str(folder)}, models=models)


async def call_every_model(gateway: GatewayProcess) -> None:
    """One call of each, on connections of their own, so that both workers get some."""
    for number in range(MODELS):
        body = {"model": f"m-{number}", "messages": [{"role": "user", "content": "ping"}]}
        assert (await ask(gateway.port, body)).status == 200


async def counted(gateway: GatewayProcess, requests: int) -> None:
    """Wait until so many requests are counted."""
    async with asyncio.timeout(20):
        while (await asyncio.to_thread(gateway.metrics)).value("sluice_requests_total") != requests:
            pass


async def test_a_full_folder_ends_no_worker_and_loses_no_count(
    upstream: FaultUpstream, tmp_path: Path, tiny: Path
) -> None:
    with GatewayProcess(config(upstream.url, tiny), tmp_path) as gateway:
        workers = sorted(gateway.workers())
        assert "server.metrics_dir" in gateway.log
        await call_every_model(gateway)
        await counted(gateway, MODELS)
        metrics = await asyncio.to_thread(gateway.metrics)
        assert metrics.value("sluice_request_duration_seconds_count", model="m-0") == 1
        assert metrics.value("sluice_request_duration_seconds_count", model=f"m-{MODELS - 1}") == 1
        assert sorted(gateway.workers()) == workers
        assert 1 <= gateway.log.count("no space for metrics") <= 2
        free = os.statvfs(tiny)
        assert free.f_bavail * free.f_bsize < 64 * 1024
        # Those that start without any space serve and count too.
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        await eventually(lambda: len(set(gateway.workers()) - set(workers)) == 2, "both are replaced", within=20)
        before = (await asyncio.to_thread(gateway.metrics)).value("sluice_requests_total")
        await eventually(gateway._healthy, "they serve", within=20)
        await call_every_model(gateway)
        await counted(gateway, int(before) + MODELS)
    assert not list(tiny.iterdir())


async def test_a_folder_that_is_not_there_is_a_mistake_of_the_config(upstream: FaultUpstream, tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match=r"server\.metrics_dir: .*none is not a folder; create it"),
        GatewayProcess(config(upstream.url, tmp_path / "none"), tmp_path),
    ):
        pass
