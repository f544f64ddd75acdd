"""One line per event: JSON for machines, text for people. Never bodies, never secrets.

Every value is escaped by the JSON encoder or by `repr`, so nothing a client sends can start a new line or
steer a terminal.
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
from gateway.telemetry.access_log import AccessRecord, as_json, as_text, record_of
from gateway.telemetry.nonblocking_output import NonBlockingStream, unblocked

logger: Final = logging.getLogger("sluice")
_render: Callable[[AccessRecord, float], str] = as_json
_RESERVED: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def setup(level: str, shape: str) -> None:
    """Send everything to stderr. `shape` is `json`, `text` or `auto` (text on a terminal)."""
    global _render
    for_people = shape == "text" or (shape == "auto" and sys.stderr is not None and sys.stderr.isatty())
    _render = as_text if for_people else as_json
    handler = logging.StreamHandler(output())
    handler.setFormatter(_TextFormatter() if for_people else _JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logger.setLevel(level.upper())


@lru_cache(maxsize=1)
def output() -> NonBlockingStream:
    """The one way to stderr, whatever is set up."""
    stderr = sys.__stderr__
    # Where it was closed before the start its number may be that of anything else.
    descriptor = os.open(os.devnull, os.O_WRONLY) if stderr is None else stderr.fileno()
    return NonBlockingStream(unblocked(descriptor), _tell_dropped)


def _tell_dropped(lines: int) -> None:
    logger.warning("log lines were dropped: nobody took them in time", extra={"lines": lines})


def access(call: Call, now: float) -> None:
    """The line of one finished call."""
    if logger.isEnabledFor(logging.INFO):
        to = output()
        to.write(_render(record_of(call, now), unix()))
        to.flush()


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
        # JSON may hold line separators and marks that turn the writing round; escaped they are harmless.
        return text if text.isprintable() else json.dumps(line, default=str)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        values = [f"{name}={_plain(value)}" for name, value in _fields(record).items() if value is not None]
        line = " ".join([when, record.levelname.lower(), _plain(record.getMessage()), *values])
        if not record.exc_info:
            return line
        # Indented, so that no message of an exception looks like a line of ours.
        trace = self.formatException(record.exc_info).split("\n")
        return "\n".join([line, *(f"  {_plain(one)}" for one in trace)])


def _plain(value: object) -> str:
    text = str(value)
    return text if text.isprintable() else repr(text)
