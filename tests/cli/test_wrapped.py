"""Messages are whole lines in files and pipes, and wrapped at words on a terminal."""

import io
from pathlib import Path

import pytest

from gateway.cli.check import run
from gateway.cli.wrapped import say

LONG = "upstreams.paid.api_key: environment variable OPENAI_API_KEY is not set; export it, or put it into ./.env"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_elsewhere_a_message_is_one_line() -> None:
    out = io.StringIO()
    say(LONG, out)
    assert out.getvalue() == LONG + "\n"


def test_on_a_terminal_no_word_is_cut_and_none_is_lost() -> None:
    out = Terminal()
    say(LONG, out)
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("  ")
    assert " ".join(line.strip() for line in lines) == LONG


def test_an_address_stays_in_one_piece() -> None:
    out = Terminal()
    address = "https://example.com/" + "a" * 100
    say(f"base_url: {address}", out)
    assert address in out.getvalue()


def test_problems_of_a_config_are_wrapped(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text("upstreams: {paid: {base_url: 'https://api.openai.com/v1', api_key: '${NO_SUCH_VARIABLE}'}}\n")
    err = Terminal()
    assert run(file, False, False, io.StringIO(), err, {}) == 2
    assert max(map(len, err.getvalue().splitlines())) <= 80
