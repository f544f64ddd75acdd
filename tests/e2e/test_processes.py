"""A parent and its workers: signals to all at once, starts that fail, and what is left behind."""

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from asyncio import Event, to_thread
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml
from doubles import replies
from doubles.gateway import ROOT, GatewayProcess
from doubles.rawclient import RawClient, call
from doubles.script import NEVER, Until
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT
from doubles.waiting import eventually

NOWHERE = "http://127.0.0.1:1/v1"


def temporary(folder: Path) -> dict[str, str]:
    """An environment in which temporary files go to this folder, which is made."""
    folder.mkdir(parents=True)
    return {**os.environ, "TMPDIR": str(folder)}


def serve(folder: Path, config: object) -> list[str]:
    """The command that serves this config."""
    file = folder / "serve.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return [sys.executable, "-m", "gateway", "serve", "--config", str(file)]


async def test_a_signal_to_the_whole_group_lets_open_calls_finish(upstream: FaultUpstream, tmp_path: Path) -> None:
    go_on = Event()
    upstream.always([Until(go_on), *replies.chat()])
    async with AsyncExitStack() as stack:
        gateway = stack.enter_context(GatewayProcess(settings(upstream.url, server={"workers": 2}), tmp_path))
        client = await stack.enter_async_context(await RawClient.open(gateway.port))
        await client.request("POST", CHAT, C0)
        await upstream.received(1)
        # The workers first, so that the parent's own SIGTERM is their second one.
        for pid in [*gateway.workers(), gateway.process.pid]:
            os.kill(pid, signal.SIGTERM)
        await eventually(lambda: "draining" in gateway.log, "the parent drains")
        # One more of each kind, so that nothing hangs on when the parent's arrives.
        for pid in gateway.workers():
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGINT)
        go_on.set()
        assert (await client.response()).status == 200
        assert await to_thread(gateway.process.wait, 10) == 0


async def test_a_second_signal_leaves_no_worker_and_no_folder(upstream: FaultUpstream, tmp_path: Path) -> None:
    upstream.always([NEVER])
    environ = temporary(tmp_path / "temporary")
    async with AsyncExitStack() as stack:
        gateway = stack.enter_context(GatewayProcess(settings(upstream.url, server={"workers": 2}), tmp_path, environ))
        assert [one.name[:7] for one in (tmp_path / "temporary").iterdir()] == ["sluice-"]
        client = await stack.enter_async_context(await RawClient.open(gateway.port))
        await client.request("POST", CHAT, C0)
        await upstream.received(1)
        workers = gateway.workers()
        gateway.terminate()
        await eventually(lambda: "draining" in gateway.log, "the parent drains")
        gateway.terminate()
        assert await to_thread(gateway.process.wait, 10) == 1
        assert list((tmp_path / "temporary").iterdir()) == []
        assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    await upstream.idle()


def ended(command: list[str], environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """What a command that is to end by itself has come to."""
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=30, check=False)


async def test_a_second_gateway_on_the_port_is_refused(upstream: FaultUpstream, tmp_path: Path) -> None:
    config = settings(upstream.url, server={"workers": 2})
    with GatewayProcess(config, tmp_path) as gateway:
        second = {**config, "server": {**config["server"], "port": gateway.port}}
        done = await to_thread(ended, serve(tmp_path, second))
        assert done.returncode == 1
        taken = f"cannot listen: server.port {gateway.port} is taken (address already in use); choose another (--port)"
        assert taken in done.stderr
        assert "Traceback" not in done.stderr
        assert (await call(gateway.port, "POST", CHAT, C0)).status == 200


async def test_a_second_gateway_is_refused_even_before_the_first_ones_workers_listen(
    upstream: FaultUpstream, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # What a supervisor holds whose workers do not listen yet.
    with socket.socket() as claimed, socket.socket(socket.AF_UNIX) as lock:
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        claimed.bind(("127.0.0.1", port))
        lock.bind(f"\0sluice-gateway 127.0.0.1 {port}")
        config = settings(upstream.url, server={"workers": 2, "port": port})
        done = await to_thread(ended, serve(tmp_path, config))
    assert done.returncode == 1
    assert f"server.port {port} is taken" in done.stderr


@pytest.mark.parametrize("workers", [1, 2])
def test_auth_08_without_the_strict_parser_it_does_not_serve(tmp_path: Path, workers: int) -> None:
    config = settings("http://127.0.0.1:9/v1", server={"workers": workers})
    done = ended(serve(tmp_path, config), os.environ | {"AIOHTTP_NO_EXTENSIONS": "1"})
    assert done.returncode == 1
    assert "aiohttp's C parser is missing" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_port_with_connections_of_an_earlier_run_is_free(upstream: FaultUpstream, tmp_path: Path) -> None:
    config = settings(upstream.url, server={"workers": 2})
    async with AsyncExitStack() as stack:
        with GatewayProcess(config, tmp_path) as gateway:
            client = await stack.enter_async_context(await RawClient.open(gateway.port))
            await client.request("POST", CHAT, C0)
            assert (await client.response()).status == 200
            port = gateway.port
        again = {**config, "server": {**config["server"], "port": port}}
        with GatewayProcess(again, tmp_path) as gateway:
            assert gateway.port == port
            assert (await call(port, "POST", CHAT, C0)).status == 200


def test_workers_that_cannot_start_end_the_gateway(tmp_path: Path) -> None:
    ledger = tmp_path / "another.db"
    with contextlib.closing(sqlite3.connect(ledger)) as another:
        another.execute("CREATE TABLE another_programs (name TEXT)")
    config = settings(NOWHERE, server={"workers": 2}, usage={"store": "sqlite", "path": str(ledger)})
    done = ended(serve(tmp_path, config), temporary(tmp_path / "temporary"))
    assert done.returncode == 1, done.stderr
    assert "a worker cannot start" in done.stderr
    assert "starting another" not in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "temporary").iterdir()) == []


async def test_a_long_path_of_temporary_files_is_no_obstacle(upstream: FaultUpstream, tmp_path: Path) -> None:
    environ = temporary(tmp_path / ("x" * 100))
    config = settings(upstream.url, server={"workers": 2})
    with GatewayProcess(config, tmp_path, environ) as gateway:
        assert (await call(gateway.admin_port, "GET", "/admin/stack")).status == 200
        assert (await call(gateway.admin_port, "GET", "/readyz")).status == 200
        assert "worker died" not in gateway.log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_workers_are_ready_is_a_quiet_end(tmp_path: Path, number: signal.Signals) -> None:
    environ = temporary(tmp_path / "temporary")
    parent = subprocess.Popen(
        serve(tmp_path, settings(NOWHERE, server={"workers": 2})),
        cwd=ROOT,
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert parent.stderr is not None
        said = parent.stderr.readline()
        while not list((tmp_path / "temporary").iterdir()):
            assert parent.poll() is None
        pid = parent.pid
        while not Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii"):
            assert parent.poll() is None
        parent.send_signal(number)
        said += parent.communicate(timeout=20)[1]
        assert parent.returncode == 0, said
    finally:
        parent.kill()
        parent.communicate()
    assert "Traceback" not in said
    assert "never retrieved" not in said
    assert list((tmp_path / "temporary").iterdir()) == []


async def test_nothing_is_imported_from_the_current_folder(upstream: FaultUpstream, tmp_path: Path) -> None:
    (tmp_path / "uvloop.py").write_text("import os\nos._exit(77)\n", encoding="utf-8")
    sluice = Path(sys.executable).with_name("sluice")
    file = serve(tmp_path, settings(upstream.url, server={"workers": 2}))[-1]
    with (tmp_path / "said").open("wb") as log:
        parent = subprocess.Popen([sluice, "serve", "--config", file], cwd=tmp_path, stderr=log)
    try:
        said = tmp_path / "said"
        await eventually(
            lambda: '"listening"' in said.read_text() or parent.poll() is not None, "an outcome", within=20
        )
        parent.terminate()
        assert await to_thread(parent.wait, 20) == 0, said.read_text()
    finally:
        parent.kill()
        parent.wait()
