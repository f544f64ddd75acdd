"""One event is one line of the log, whatever stands in it."""

import json
import logging
import sys

import pytest

from gateway.telemetry.logging import _JsonFormatter, _TextFormatter

EVIL = [
    "a\nb",
    "a\r\nlevel=error",
    "\x1b[2J\x1b[31m",
    "\x00",
    "\u2028",
    "\x85",
    "\u202egpj",
    '"},{"level":"error"',
    "\ud800",
]


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("formatter", [_JsonFormatter(), _TextFormatter()])
def test_nothing_starts_a_line_or_steers_a_terminal(formatter: logging.Formatter, evil: str) -> None:
    record = logging.LogRecord("sluice", logging.INFO, "x.py", 1, "asked for %s", (evil,), None)
    record.model = evil
    line = formatter.format(record)
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    assert "\x00" not in line
    if isinstance(formatter, _JsonFormatter):
        assert json.loads(line)["level"] == "info"
    else:
        assert line.isprintable()


@pytest.mark.parametrize("evil", EVIL)
def test_a_trace_is_indented_and_escaped(evil: str) -> None:
    try:
        raise ValueError(evil)
    except ValueError:
        record = logging.LogRecord("sluice", logging.ERROR, "x.py", 1, "a bug", None, sys.exc_info())
    first, *trace = _TextFormatter().format(record).split("\n")
    assert first.endswith("error a bug")
    assert trace
    assert all(line.startswith("  ") and line.isprintable() for line in trace)
    assert json.loads(_JsonFormatter().format(record))["exception"].startswith("Traceback")
