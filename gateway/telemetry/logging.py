"""Logging: one line per event, as JSON for machines or text for people. Never bodies, never secrets.

The JSON encoder or `repr` escapes every value, so nothing that a client sends can start a new line or control
a terminal.
"""

import datetime
import json
import logging
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from gateway.core.call import Call
from gateway.core.clock import unix
from gateway.telemetry.access_log import LEVELS, AccessRecord, as_json, as_text, record_of
from gateway.telemetry.nonblocking_output import NonBlockingStream, nonblocking_write

logger: Final = logging.getLogger("sluice")
_render: Callable[[AccessRecord, float], str] = as_json
_NUMBERS: Final = {outcome: logging.getLevelNamesMapping()[level.upper()] for outcome, level in LEVELS.items()}
_RESERVED: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def setup(level: str, format_: str) -> None:
    """Log to stderr. `format_` is `json`, `text` or `auto` (text on a terminal)."""
    global _render
    as_lines = format_ == "text" or (format_ == "auto" and sys.stderr is not None and sys.stderr.isatty())
    _render = as_text if as_lines else as_json
    handler = logging.StreamHandler(output())
    handler.setFormatter(_TextFormatter() if as_lines else _JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logger.setLevel(level.upper())


@lru_cache(maxsize=1)
def output() -> NonBlockingStream:
    """The process's non-blocking stream to stderr."""
    stderr = sys.__stderr__
    # If stderr was closed before the start, descriptor 2 may belong to anything else.
    descriptor = os.open(os.devnull, os.O_WRONLY) if stderr is None else stderr.fileno()
    return NonBlockingStream(nonblocking_write(descriptor), _report_dropped)


def _report_dropped(lines: int) -> None:
    logger.warning("log lines were dropped: stderr was not read in time", extra={"lines": lines})


def access(call: Call, now: float) -> None:
    """Log one finished call."""
    if logger.isEnabledFor(_NUMBERS.get(call.response.outcome, logging.INFO)):
        stream = output()
        stream.write(_render(record_of(call, now), unix()))
        stream.flush()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _RESERVED}


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "ts": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            text = msgspec.json.encode(line, enc_hook=str).decode()
        except UnicodeEncodeError:  # half a surrogate pair
            text = "\n"
        # JSON text may contain line separators and bidirectional marks; escaped they are harmless.
        return text if text.isprintable() else json.dumps(line, default=str)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        values = [f"{name}={_printable(value)}" for name, value in _fields(record).items() if value is not None]
        line = " ".join([when, record.levelname.lower(), _printable(record.getMessage()), *values])
        if not record.exc_info:
            return line
        # Indented, so that an exception's message cannot imitate a log line.
        trace = self.formatException(record.exc_info).split("\n")
        return "\n".join([line, *(f"  {_printable(each)}" for each in trace)])


def _printable(value: object) -> str:
    text = str(value)
    return text if text.isprintable() else repr(text)
