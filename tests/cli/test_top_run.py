"""`sluice top` against a real gateway: one screen, a gateway that is away, and where it looks for it."""

import asyncio
import io
import os
import select
import socket
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from doubles.gateway import ROOT, GatewayProcess, InProcessGateway, StartGateway
from doubles.settings import settings
from doubles.threaded import ThreadedUpstream
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, S0, ask
from rich.console import Console

from gateway.cli.main import main
from gateway.cli.top.admin_client import (
    DEFAULT,
    AdminAddress,
    AdminPort,
    AwayError,
    UnknownError,
    admin_address,
    given_address,
)
from gateway.cli.top.run import LiveView, once


def console(width: int = 100) -> Console:
    return Console(file=io.StringIO(), width=width)


def text(of: Console) -> str:
    return of.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def closed() -> int:
    """A port where nobody listens."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        return int(reserved.getsockname()[1])


async def test_one_screen_of_a_real_gateway(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    usage = {"store": "sqlite", "path": str(tmp_path / "usage.db")}
    gateway = await start_gateway(settings(upstream.url, usage=usage))
    for body in (C0, S0, {**C0, "model": "nope"}):
        await ask(gateway.port, body)
    await gateway.counted("sluice_requests_total", 3)
    shown, err = console(), io.StringIO()
    assert await once(AdminAddress(f"http://127.0.0.1:{gateway.admin_port}"), 0.1, shown, err) == 0
    lines = [line.split() for line in text(shown).splitlines()]
    assert err.getvalue() == ""
    assert ["ok", "0", "2"] in lines
    assert ["client_error", "0", "1"] in lines
    assert ["local", "up", "closed", "0", "0", "0", "0", "0"] in [line[:8] for line in lines]
    assert ["anonymous", "m-small", "2", "10", "4", "0"] in lines


async def test_without_a_ledger_it_says_so(gateway: InProcessGateway) -> None:
    shown = console()
    await once(AdminAddress(f"http://127.0.0.1:{gateway.admin_port}"), 0.1, shown, io.StringIO())
    assert "not recorded" in text(shown)


async def test_once_and_nobody_there(closed: int) -> None:
    shown, err = console(), io.StringIO()
    assert await once(AdminAddress(f"http://127.0.0.1:{closed}"), 0.1, shown, err) == 1
    assert err.getvalue() == f"sluice top: http://127.0.0.1:{closed} does not answer: connection refused\n"
    assert text(shown) == ""


async def test_somebody_else_there(gateway: InProcessGateway) -> None:
    async with AdminPort(AdminAddress(f"http://127.0.0.1:{gateway.port}")) as admin:
        with pytest.raises(AwayError, match="is not a gateway's admin port"):
            await admin.read()


async def test_a_gateway_that_goes_away_leaves_its_last_screen(gateway: InProcessGateway, closed: int) -> None:
    shown = console()
    hours = iter(["10:00", "11:00"])
    watch = LiveView(AdminAddress("here"), shown, lambda: next(hours))
    async with (
        AdminPort(AdminAddress(f"http://127.0.0.1:{gateway.admin_port}")) as there,
        AdminPort(AdminAddress(f"http://127.0.0.1:{closed}")) as away,
    ):
        for admin in (there, away, away, there, away):
            shown.print(await watch.refresh(admin))
    assert text(shown).count("upstreams") == 5
    assert [line.rpartition("since ")[2] for line in text(shown).splitlines() if "trying again" in line] == [
        "10:00)",
        "10:00)",
        "11:00)",
    ]


async def test_a_gateway_that_was_never_there(closed: int) -> None:
    shown = console()
    async with AdminPort(AdminAddress(f"http://127.0.0.1:{closed}")) as admin:
        shown.print(await LiveView(AdminAddress("here"), shown).refresh(admin))
    assert "connection refused; trying again" in text(shown)


def read_within(descriptor: int, seconds: float) -> bytes:
    """What there is to read."""
    ready, _, _ = select.select([descriptor], [], [], seconds)
    assert ready, "nothing more was written"
    return os.read(descriptor, 65536)


def config(folder: Path, admin: str) -> Path:
    file = folder / "sluice.yaml"
    file.write_text(f"admin: {admin}\nupstreams: {{a: {{base_url: '${{UNSET_HERE}}'}}}}\n", encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("admin", "address"),
    [
        ("null", "http://127.0.0.1:9464"),
        ("{port: 9999}", "http://127.0.0.1:9999"),
        ("{host: 0.0.0.0}", "http://127.0.0.1:9464"),
        ("{host: '::', port: 1}", "http://[::1]:1"),
        ("{host: metrics.internal}", "http://metrics.internal:9464"),
        ("{port: '${PORT}'}", "http://127.0.0.1:7777"),
    ],
)
def test_the_address_is_that_of_the_config(tmp_path: Path, admin: str, address: str) -> None:
    assert admin_address(config(tmp_path, admin), {"PORT": "7777"}, named=True) == AdminAddress(address)


@pytest.mark.parametrize(
    ("admin", "said"),
    [
        ("{port: 0}", "admin.port: 0 takes a free port"),
        ("{port: many}", "admin.port: must be a whole number"),
        ("{port: '${UNSET_HERE}'}", "environment variable UNSET_HERE is not set"),
        ("]", "line 1, column"),
    ],
)
def test_what_the_config_does_not_tell(tmp_path: Path, admin: str, said: str) -> None:
    with pytest.raises(UnknownError, match=said):
        admin_address(config(tmp_path, admin), {}, named=True)


def test_without_a_config_it_is_the_default(tmp_path: Path) -> None:
    assert admin_address(tmp_path / "sluice.yaml", {}, named=False) == AdminAddress(DEFAULT)
    with pytest.raises(UnknownError, match="no such file"):
        admin_address(tmp_path / "sluice.yaml", {}, named=True)


def test_the_command(tmp_path: Path, closed: int, capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadedUpstream() as engine, GatewayProcess(settings(engine.upstream.url), tmp_path) as gateway:
        assert main(["top", "--once", "--interval", "100ms", "--admin", gateway.admin_url]) == 0
    assert capsys.readouterr().out.startswith("Sluice ")
    file = config(tmp_path, f"{{port: {closed}}}")
    assert main(["top", "--once", "--config", str(file)]) == 1
    assert main(["top", "--once", "--config", str(tmp_path / "none.yaml")]) == 2
    assert capsys.readouterr().err.count("\n") == 2


@pytest.mark.parametrize(
    "wrong",
    [
        ["--admin", "127.0.0.1:9464"],
        ["--admin", "http://"],
        ["--admin", "http://u:p@h"],
        ["--admin", "http://h:99999"],
        ["--admin", "http://["],
        ["--interval", "10ms"],
        ["--interval", "soon"],
    ],
)
def test_wrong_usage_is_one_line_and_status_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["top", *wrong])
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n"), err.startswith("sluice top: ")) == (2, "", 1, True)


def test_in_a_terminal_q_quits_and_leaves_it_as_it_was(closed: int) -> None:
    ours, theirs = os.openpty()
    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-m", "gateway", "top", "--admin", f"http://127.0.0.1:{closed}"]
    environ = {**os.environ, "TERM": "xterm"}
    running = subprocess.Popen(command, cwd=ROOT, env=environ, stdin=theirs, stdout=theirs, stderr=theirs)
    try:
        seen = b""
        while b"trying again" not in seen:
            seen += read_within(ours, 20)
        assert b"\x1b[?1049h" in seen  # on a screen of its own
        os.write(ours, b"q")
        while b"\x1b[?1049l" not in seen:
            seen += read_within(ours, 20)
        assert running.wait(10) == 0
        assert termios.tcgetattr(theirs) == before
    finally:
        running.kill()
        running.wait(10)
        os.close(ours)
        os.close(theirs)


async def test_the_live_view_without_a_terminal_goes_on_until_it_is_stopped(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gateway.cli.top import run as top

    shown = console()
    seen = asyncio.Event()

    async def pause(seconds: float) -> None:
        if text(shown).count("upstreams") == 3:
            seen.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(top, "_pause", pause)
    watching = asyncio.create_task(
        top._watch(LiveView(AdminAddress(f"http://127.0.0.1:{gateway.admin_port}"), shown), 1.0, shown)
    )
    async with asyncio.timeout(5):
        await seen.wait()
    watching.cancel()
    await asyncio.wait([watching])
    assert watching.cancelled()


def test_the_admin_key_comes_from_the_config_or_the_environment(tmp_path: Path) -> None:
    named = admin_address(config(tmp_path, '{keys: ["${ADMIN_KEY}"]}'), {"ADMIN_KEY": "k-12345678"}, named=True)
    assert named == AdminAddress(DEFAULT, "k-12345678")
    assert given_address("http://there", {"SLUICE_ADMIN_KEY": "k-1"}) == AdminAddress("http://there", "k-1")
    assert "k-1" not in str(named)
