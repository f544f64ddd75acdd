"""The command line: usage errors, Ctrl-C, and output that nobody reads."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from doubles.gateway import ROOT
from doubles.script import NEVER
from doubles.settings import settings
from doubles.threaded import ThreadedUpstream

from gateway.cli.main import main


def command(folder: Path, *arguments: str, url: str = "http://127.0.0.1:1/v1") -> list[str]:
    """`sluice ARGUMENTS` with a good config, in which nothing is worth a warning."""
    file = folder / "sluice.yaml"
    file.write_text(yaml.safe_dump(settings(url, upstream={"kind": "vllm"})), encoding="utf-8")
    return [sys.executable, "-m", "gateway", *arguments, "--config", str(file)]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["sreve"], "sluice: argument COMMAND: invalid choice: 'sreve'"),
        (["serve", "--port", "70000"], "sluice serve: argument --port: a port is a number from 0 to 65535"),
        (["serve", "--port", "x"], "sluice serve: argument --port: a port is a number from 0 to 65535"),
        (["serve", "--workers", "0"], "sluice serve: argument --workers: give a whole number from 1"),
        (["check", "--config"], "sluice check: argument --config: expected one argument"),
        (["check", "a.yaml", "two\nlines"], "sluice: unrecognized arguments: two lines"),
        (
            ["check", "a.yaml", "--config", "b.yaml"],
            "sluice: two configs: a.yaml and --config b.yaml; give one",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(wrong: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(wrong)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(said)
    assert err.count("\n") == 1


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: sluice")
    assert all(name in out for name in ("serve", "check", "prices", "report", "top", "bench", "up"))
    assert err == ""


@pytest.mark.parametrize("name", ["check", "prices", "report", "top"])
def test_the_config_may_be_given_without_an_option(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "mine.yaml")
    assert main([name, file]) == main([name, file, "--config", file]) == 2
    assert capsys.readouterr().err.count(f"{file}: no such file") == 2


def test_serve_takes_the_config_without_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Path] = []

    def serve(path: Path, *_: object) -> int:
        served.append(path)
        return 0

    monkeypatch.setattr("gateway.cli.serve.serve", serve)
    assert main(["serve", "mine.yaml"]) == main(["serve", "--port", "0", "mine.yaml"]) == 0
    assert served == [Path("mine.yaml")] * 2


def test_ctrl_c_before_the_gateway_runs_is_130_and_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("gateway.cli.serve.serve", interrupted)
    assert main(["serve"]) == 130
    assert capsys.readouterr() == ("", "")


def test_ctrl_c_while_upstreams_are_asked_is_130_and_silent(tmp_path: Path) -> None:
    with ThreadedUpstream() as threaded:
        threaded.upstream.always([NEVER])
        asking = subprocess.Popen(
            command(tmp_path, "check", "--connect", url=threaded.upstream.url),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            threaded.wait(threaded.upstream.received(1, within=9))
            asking.send_signal(signal.SIGINT)
            assert asking.communicate(timeout=10) == (b"", None)
            assert asking.returncode == 130
        finally:
            asking.kill()
            asking.communicate()


def outcome(arguments: list[str], stdout: int) -> tuple[int, bytes]:
    """Exit status and stderr of a command whose stdout is buffered, as it is for users, and goes there."""
    environ = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        arguments, cwd=ROOT, env=environ, stdout=stdout, stderr=subprocess.PIPE, timeout=30, check=False
    )
    return done.returncode, done.stderr


@pytest.fixture
def unread() -> Iterator[int]:
    """A pipe to write to whose reader has gone."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


@pytest.fixture
def full() -> Iterator[int]:
    """A file to write to on a full disk."""
    with Path("/dev/full").open("wb") as file:
        yield file.fileno()


@pytest.mark.parametrize("arguments", [["check", "--show"], ["check"]])
def test_a_reader_that_has_gone_is_no_traceback(tmp_path: Path, arguments: list[str], unread: int) -> None:
    assert outcome(command(tmp_path, *arguments), unread) == (1, b"")


def test_help_for_a_reader_that_has_gone_is_no_traceback(unread: int) -> None:
    assert outcome([sys.executable, "-m", "gateway", "--help"], unread) == (1, b"")


@pytest.mark.parametrize("arguments", [["check", "--show"], ["check"]])
def test_a_full_disk_is_one_line(tmp_path: Path, arguments: list[str], full: int) -> None:
    assert outcome(command(tmp_path, *arguments), full) == (1, b"sluice: No space left on device\n")
