"""The command `serve`: what it says, how it fails, and several workers on one port."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from doubles.gateway import ROOT, GatewayProcess
from doubles.rawclient import call
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0, ask
from doubles.waiting import eventually


def refused_to_start(folder: Path, config: object) -> tuple[int, str]:
    """Exit status and words of a `serve` that cannot."""
    file = folder / "sluice.yaml"
    file.write_text(config if isinstance(config, str) else yaml.safe_dump(config), encoding="utf-8")
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_broken_config_is_exit_2_and_one_line_each(tmp_path: Path) -> None:
    config = settings("http://127.0.0.1:1/v1", server={"prot": 1}, log={"level": "loud"})
    status, said = refused_to_start(tmp_path, config)
    assert status == 2
    assert "server.prot" in said
    assert "log.level" in said
    assert "Traceback" not in said
    assert refused_to_start(tmp_path, "server: [")[0] == 2


@pytest.mark.parametrize("section", ["server", "admin"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_taken_port_is_one_clear_line(tmp_path: Path, section: str, workers: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = settings("http://127.0.0.1:1/v1", server={"workers": workers})
        config[section]["port"] = taken.getsockname()[1]
        status, said = refused_to_start(tmp_path, config)
    assert status == 1
    assert f"{section}.port {config[section]['port']} is taken (address already in use)" in said
    assert "Traceback" not in said


async def test_it_says_how_many_streams_it_can_hold(upstream: FaultUpstream, tmp_path: Path) -> None:
    with GatewayProcess(settings(upstream.url), tmp_path) as gateway:
        assert "streams_per_worker" in gateway.log


@pytest.fixture
def two_workers(upstream: FaultUpstream, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway of two workers."""
    with GatewayProcess(settings(upstream.url, server={"workers": 2}), tmp_path) as gateway:
        yield gateway


async def test_two_workers_answer_on_one_port_and_are_counted_as_one(two_workers: GatewayProcess) -> None:
    for number in range(40):
        answer = await ask(two_workers.port, S0 if number % 2 else C0)
        assert answer.complete
    # A call is counted after its last byte.
    await eventually(
        lambda: two_workers.metrics().value("sluice_requests_total", outcome="ok") >= 40, "all are counted"
    )
    assert two_workers.metrics().value("sluice_requests_total", outcome="ok") == 40
    assert (await call(two_workers.admin_port, "GET", "/readyz")).status == 200
    assert (await call(two_workers.admin_port, "GET", "/livez")).status == 200
    assert (await call(two_workers.admin_port, "GET", "/admin/stack")).status == 200


async def test_without_redis_no_series_tells_of_it(two_workers: GatewayProcess) -> None:
    text = (await call(two_workers.admin_port, "GET", "/metrics")).body
    assert b"sluice_build_info" in text
    assert b"sluice_redis_up" not in text


async def test_a_dead_worker_is_replaced_and_a_drain_meanwhile_ends(two_workers: GatewayProcess) -> None:
    before = two_workers.workers()
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    await eventually(
        lambda: len(now := two_workers.workers()) == 2 and before[0] not in now,
        "two workers again",
        within=15,
    )
    for _ in range(20):
        assert (await ask(two_workers.port, C0)).status == 200
    assert two_workers.process.poll() is None


async def test_workers_do_not_outlive_their_parent(upstream: FaultUpstream, tmp_path: Path) -> None:
    with GatewayProcess(settings(upstream.url, server={"workers": 2}), tmp_path) as gateway:
        workers = gateway.workers()
        gateway.process.kill()
        gateway.process.wait(10)
        await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "no worker left", within=15)


async def test_workers_drain(two_workers: GatewayProcess) -> None:
    workers = two_workers.workers()
    assert (await call(two_workers.port, "POST", CHAT, C0)).status == 200
    two_workers.stop()
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
