"""One line per event: JSON for machines, text for people. Never bodies, never secrets.

Every value is escaped by the JSON encoder or by `repr`, so nothing a client sends can start a new line or
steer a terminal.
"""

import datetime
import logging
import sys
from typing import Any, Final

import msgspec

from gateway.call import Call
from gateway.units import NANO

logger: Final = logging.getLogger("sluice")
_RESERVED: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def setup(level: str, shape: str) -> None:
    """Send everything to stderr. `shape` is `json`, `text` or `auto` (text on a terminal)."""
    as_text = shape == "text" or (shape == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_TextFormatter() if as_text else _JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logger.setLevel(level.upper())


def access(call: Call, now: float) -> None:
    """The line of one finished call."""
    if not logger.isEnabledFor(logging.INFO):
        return
    fields: dict[str, object] = {
        "request_id": call.request_id,
        "endpoint": call.endpoint,
        "model": call.route.name if call.route is not None else None,
        "key": call.caller.name if call.caller is not None else None,
        "status": call.status,
        "outcome": call.outcome,
        "stream": call.stream,
        "total_ms": _ms(now - call.accepted_at),
    }
    if call.candidate is not None and call.attempts:
        fields |= {"upstream": call.candidate.upstream, "model_served": call.candidate.model}
        fields |= {"attempts": call.attempts, "queue_ms": _ms(call.queue_s)}
    if call.first_token_at:
        fields["ttft_ms"] = _ms(call.first_token_at - call.sent_at)
    if call.tokens is not None:
        fields |= {"input_tokens": call.tokens.input, "output_tokens": call.tokens.output}
    if call.cost is not None:
        fields["cost_usd"] = call.cost / NANO
    logger.info("request", extra=fields)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


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
        return msgspec.json.encode(line, enc_hook=str).decode()


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        values = [f"{name}={_plain(value)}" for name, value in _fields(record).items() if value is not None]
        line = " ".join([when, record.levelname.lower(), _plain(record.getMessage()), *values])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _plain(value: object) -> str:
    text = str(value)
    return text if text.isprintable() else repr(text)
