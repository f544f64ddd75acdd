"""How `sluice up` watches and ends processes: small stand-ins for the engine, the real gateway."""

import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from tenacity import Retrying

from backend import engine, install, processes, templates, up
from backend.errors import Problem, Stopped
from backend.prepare import Prepared
from backend.progress import Progress, log_lines, log_step
from backend.signals import StopSignals

STAND_IN = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die":
            print("(Core pid=7) ERROR 11-29 16:05:00 [core.py:12] RuntimeError: out of luck", flush=True)
            os._exit(3)
        self.send_response(200); self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
print("up and deaf", flush=True)
time.sleep(300)
"""


def up_with_a_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once_ready: Callable[[int], None]
) -> tuple[int, list[processes.Child]]:
    """Run `sluice up` on a stand-in; `once_ready` gets the engine's port."""
    python = Path(sys.executable)
    started: list[processes.Child] = []
    start = processes.start

    def remember(*given: object) -> processes.Child:
        started.append(start(*given))
        return started[-1]

    def ready(host: str, port: int, admin: int, engine_ports: dict[str, int], *_: str) -> str:
        assert all(engine.healthy(host, at) for at in (port, engine_ports["smollm2"]))
        once_ready(engine_ports["smollm2"])
        return "ready"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(up, "prepare", lambda *_: Prepared(python, install.CPU, tmp_path, tmp_path))
    monkeypatch.setattr(engine, "command", lambda _, __, port: [sys.executable, "-c", STAND_IN, str(port)])
    monkeypatch.setattr(processes, "start", remember)
    monkeypatch.setattr(templates, "ready", ready)
    return up.main(["--port", "0", "--admin-port", "0", "--engine-port", "0"]), started


def test_sigterm_ends_gateway_and_engine_with_status_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, started = up_with_a_stand_in(tmp_path, monkeypatch, lambda port: os.kill(os.getpid(), signal.SIGTERM))
    assert status == 0
    assert [child.name for child in started] == ["the engine of smollm2", "the gateway"]
    assert started[1].process.returncode == 0  # it drained
    assert not any(processes.session_members(child.process.pid) for child in started)
    assert capsys.readouterr().err == ""


def test_an_engine_that_dies_stops_the_gateway_and_is_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def kill(port: int) -> None:
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/die", timeout=10)

    status, started = up_with_a_stand_in(tmp_path, monkeypatch, kill)
    assert status == 1
    assert started[1].process.returncode == 0
    assert not any(processes.session_members(child.process.pid) for child in started)
    said = capsys.readouterr().err
    assert 'the engine of smollm2 ended with status 3, saying "RuntimeError: out of luck"' in said
    assert said.count("\n") == 1


def test_a_session_that_ignores_sigterm_is_killed_whole(tmp_path: Path) -> None:
    child = processes.start("deaf", [sys.executable, "-c", STUBBORN], tmp_path / "log")
    with StopSignals() as signals:
        processes.wait_ready(
            {child: lambda: log_lines(child.log).count("up and deaf") == 2},
            Progress(StringIO()),
            signals,
            "Starting",
            30,
        )
    assert len(processes.session_members(child.process.pid)) == 2
    child.stop(0, lambda: False)
    assert child.process.returncode == -signal.SIGKILL
    assert processes.session_members(child.process.pid) == []


def test_what_is_left_of_a_dead_leaders_session_is_killed(tmp_path: Path) -> None:
    leaves = STUBBORN.replace("os.fork()", "if os.fork(): os._exit(0)")
    child = processes.start("gone", [sys.executable, "-c", leaves], tmp_path / "log")
    child.process.wait(30)
    assert len(processes.session_members(child.process.pid)) == 1
    child.stop(0, lambda: False)
    assert processes.session_members(child.process.pid) == []


def test_a_step_that_fails_is_a_problem_with_its_error_and_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = "import sys; print('Collecting x'); print('ERROR: No space left'); sys.exit(1)"
    child = processes.start("Installing", [sys.executable, "-c", script], log)
    with StopSignals() as signals, pytest.raises(Problem) as failed:
        processes.finish(child, Progress(StringIO()), signals, "Installing")
    assert str(failed.value) == f'Installing ended with status 1, saying "No space left" (log: {log})'


def test_ctrl_c_ends_a_step(tmp_path: Path) -> None:
    with StopSignals() as signals:
        child = processes.start("it", [sys.executable, "-c", "import time; time.sleep(300)"], tmp_path / "log")
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Stopped):
            processes.finish(child, Progress(StringIO()), signals, "Waiting")
    assert child.process.returncode == -signal.SIGTERM


def test_a_program_that_is_missing_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"cannot start the engine: .*no-such-program"):
        processes.start("the engine", ["./no-such-program"], tmp_path / "log")


def test_log_lines_lose_prefixes_colours_and_old_states_of_bars(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "(APIServer pid=1) INFO 11-29 16:05:00 [api.py:1] \x1b[32mStarting\x1b[0m up\n"
        "----\n\nLoading: 0%\rLoading: 50%\r\nINFO:     Waiting for it.\n"
    )
    assert log_lines(log) == ["Starting up", "Loading: 50%", "Waiting for it."]
    assert log_lines(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("said", "step"),
    [
        ("Collecting numpy==2.4.6\n  Using cached numpy-2.4.6.whl (16 MB)\n", "Collecting numpy==2.4.6"),
        ("Downloading a.whl\n     ━━━━ 3.1/9.0 MB 12.1 MB/s eta 0:00:01\n", "Downloading a.whl"),
        (
            "Installing collected packages: setuptools, a\n  Attempting uninstall: setuptools\n"
            "    Found existing installation: setuptools 65.5.0\n    Uninstalling setuptools-65.5.0:\n"
            "      Successfully uninstalled setuptools-65.5.0\n",
            "Installing collected packages: setuptools, a",
        ),
        (
            "(Worker pid=7) INFO 11-29 21:46:01 [cpu_model_runner.py:68] Starting to load model /m...\n"
            "(EngineCore pid=6) INFO 11-29 21:46:01 [ompmultiprocessing.py:185] \treserved_cpus=[1]\n",
            "Starting to load model /m...",
        ),
        (
            "INFO 11-29 21:45:46 [core.py:133] Initializing a V1 LLM engine (v1) with config: model=/m\n",
            "Initializing a V1 LLM engine (v1)",
        ),
        ("Found 3 things\n", ""),
    ],
)
def test_the_shown_step_is_no_noise(tmp_path: Path, said: str, step: str) -> None:
    log = tmp_path / "log"
    log.write_text(said)
    assert log_step(log) == step


def test_what_is_shown_of_a_child_is_its_step(tmp_path: Path) -> None:
    shown: list[str] = []
    printed = tmp_path / "printed"

    class Shown(Progress):
        def update(self, detail: str) -> None:
            shown.append(detail)
            if detail:
                printed.touch()

    script = (
        "import pathlib, sys, time\nprint('Collecting a\\nUsing cached a.whl', flush=True)\nleft = 3000\n"
        "while not pathlib.Path(sys.argv[1]).exists() and (left := left - 1): time.sleep(0.01)\n"
    )
    child = processes.start("it", [sys.executable, "-c", script, str(printed)], tmp_path / "log")
    with StopSignals() as signals:
        processes.finish(child, Shown(StringIO()), signals, "Waiting")
    assert set(shown) - {""} == {"Collecting a"}


def test_progress_off_a_terminal_is_lines() -> None:
    out = StringIO()
    progress = Progress(out)
    progress.begin("Working")
    for _ in range(3):
        progress.update("still")
    progress.done()
    assert out.getvalue() == "Working ...\nWorking: done in 0 s\n"


def test_tenacity_waits_until_every_child_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[Retrying] = []

    class Recorded(Retrying):
        def begin(self) -> None:
            super().begin()
            loops.append(self)

    monkeypatch.setattr(processes, "Retrying", Recorded)
    answers = iter([False, False, True])
    child = processes.start("it", [sys.executable, "-c", "import time; time.sleep(300)"], tmp_path / "log")
    try:
        with StopSignals() as signals:
            ready = {child: lambda: next(answers)}
            processes.wait_ready(ready, Progress(StringIO()), signals, "Starting", 30)
    finally:
        child.stop(0, lambda: False)
    assert [loop.statistics["attempt_number"] for loop in loops] == [3]


def test_a_child_that_is_never_ready_is_a_problem_and_ctrl_c_ends_the_wait(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = processes.start("it", [sys.executable, "-c", "import time; time.sleep(300)"], log)
    try:
        with StopSignals() as signals:
            with pytest.raises(Problem, match=r"it was not ready after 0 s"):
                processes.wait_ready({child: bool}, Progress(StringIO()), signals, "Starting", 0.3)
            os.kill(os.getpid(), signal.SIGINT)
            with pytest.raises(Stopped):
                processes.wait_ready({child: bool}, Progress(StringIO()), signals, "Starting", 30)
    finally:
        child.stop(0, lambda: False)


class Terminal(StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_is_a_spinner_that_leaves_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    progress = Progress(out)
    progress.begin("Loading [7B] it")
    progress.update("Capturing graphs " * 20)
    progress.done()
    text = out.getvalue()
    assert "⠋" in text  # rich's spinner
    assert "Loading [7B] it ... 0 s" in text  # not markup
    hidden, shown = text.count("\x1b[?25l"), text.count("\x1b[?25h")
    assert hidden == shown == 1
    assert text.splitlines()[-1].endswith("Loading [7B] it: done in 0 s")
