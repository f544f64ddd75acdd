"""Every `python -m benchmarks...` answers `--help` and rejects unknown options before doing anything."""

import ast
import re
import runpy
from pathlib import Path

import pytest
from kit.pages import ROOT

BENCHMARKS = ROOT / "benchmarks"
COMMANDS = [
    file for file in sorted(BENCHMARKS.rglob("*.py")) if 'if __name__ == "__main__":' in file.read_text("utf-8")
]


def name(file: Path) -> str:
    """As `python -m` takes it."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")


@pytest.fixture(params=COMMANDS, ids=name)
def command(request: pytest.FixtureRequest) -> Path:
    file: Path = request.param
    # Before it is run: one that does not look at its arguments would measure for minutes, here.
    assert re.search(r"\b(arguments|parser_of|ArgumentParser)\(.*__doc__", file.read_text("utf-8")), file
    return file


def run(command: Path, argument: str, monkeypatch: pytest.MonkeyPatch) -> object:
    """Its exit status."""
    monkeypatch.setattr("sys.argv", [str(command), argument])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(command), run_name="__main__")
    return ended.value.code


def test_help_is_the_docstring(
    command: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "--help", monkeypatch) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"usage: python -m {name(command)} ")
    doc = ast.get_docstring(ast.parse(command.read_text("utf-8")))
    assert doc
    assert "".join(doc.split()) in "".join(out.split())  # however it is broken into lines
    assert err == ""


def test_what_it_does_not_know_is_wrong_usage(
    command: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "--no-such-option", monkeypatch) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"usage: python -m {name(command)} ")
