"""The access log: one line per finished call, as JSON for machines or text for people.

It bypasses Python's logging, whose `LogRecord` costs five times as much as the line itself.
"""

import datetime
import json
import re
from typing import Final

import msgspec

from gateway.core.call import Call
from gateway.core.errors import Rejection
from gateway.core.units import NANO, usd
from gateway.telemetry.settings_of import settings_of

_MAX_MODEL_CHARACTERS: Final = 128
"""Characters logged of a model name that the config does not know."""


_MAX_SENTENCE: Final = 500
_CODE: Final = re.compile(r"[\w.-]{0,64}", re.ASCII)  # an upstream may have made it up
LEVELS: Final = {
    "upstream_error": "warning",
    "upstream_timeout": "warning",
    "truncated": "warning",
    "shed": "warning",
    "internal_error": "error",
}
"""The level of a call's line by its outcome, where it is not `info`: whose fault it was."""


class AccessRecord(msgspec.Struct, omit_defaults=True):
    """The fields of one line, in order. JSON omits fields that have their default."""

    ts: str
    level: str
    msg: str
    request_id: str
    endpoint: str
    model: str | None
    key: str | None
    status: int
    outcome: str
    stream: bool
    total_ms: float
    upstream: str = ""
    model_served: str = ""
    attempts: int = 0
    queue_ms: float | None = None
    overhead_ms: float | None = None
    ttft_ms: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0
    usage: str = ""
    finish: str = ""
    batch_size: int = 0
    cache: str = ""
    route: str = ""
    context: str = ""
    trace_id: str = ""
    cost_usd: float | None = None
    code: str = ""
    error: str = ""
    failures: list[str] = []
    reason: str = ""
    see: str = ""


def record_of(call: Call, now: float) -> AccessRecord:
    """The record of a call, without its wall-clock time; `now` in monotonic seconds."""
    record = AccessRecord(
        "",
        LEVELS.get(call.response.outcome, "info"),
        "request",
        call.request.id,
        str(call.request.endpoint),
        call.routing.route.name or call.request.model[:_MAX_MODEL_CHARACTERS] or None,
        call.caller.name or None,
        call.response.status,
        call.response.outcome,
        call.request.stream,
        _ms(now - call.timing.accepted_at),
    )
    if call.attempts:
        record.upstream, record.model_served = call.routing.candidate.upstream, call.routing.candidate.model
        record.attempts = call.attempts
    if call.attempts or call.timing.queue_s:
        record.queue_ms = _ms(call.timing.queue_s)
    if call.timing.answered_at:
        record.overhead_ms = _ms(call.overhead_s(now))
    if call.timing.first_token_at:
        record.ttft_ms = _ms(call.timing.first_token_at - call.timing.sent_at)
    _add_usage(record, call)
    if call.response.finish == "length":
        record.finish = call.response.finish
    if call.batch_size > 1:
        record.batch_size = call.batch_size
    record.cache = call.cached_by
    if call.trace is not None:
        record.trace_id = f"{call.trace.trace_id:032x}"
    if call.response.notes:
        record.route = call.response.notes.get("x-sluice-routing", "")
        record.context = call.response.notes.get("x-sluice-overflow", "")
    if call.response.error is not None:
        _add_error(record, call, call.response.error)
    elif call.failures:
        record.failures = [f"{each.upstream}/{each.model} {each.result}" for each in call.failures]
    return record


def _add_error(record: AccessRecord, call: Call, error: Rejection) -> None:
    """Say what the client got, and why each attempt failed."""
    record.code = error.kind.code if _CODE.fullmatch(error.kind.code) else ""
    record.error = (error.logged or error.message)[:_MAX_SENTENCE]
    if call.failures:
        record.failures = [f"{each.upstream}/{each.model} {each.result}" for each in call.failures]
        reason = call.failures[-1].sentence[:_MAX_SENTENCE]
        record.reason = reason if reason != record.error else ""
    result, upstream = (call.failures[-1].result, call.failures[-1].upstream) if call.failures else ("", "")
    names = {"key": call.caller.name, "model": call.routing.route.name, "upstream": upstream}
    record.see = settings_of(record.code, result, names)


def _add_usage(record: AccessRecord, call: Call) -> None:
    tokens = call.usage.tokens
    if tokens is not None:
        record.input_tokens, record.output_tokens = tokens.input, tokens.output
        record.cached_tokens = tokens.cached_input
    elif call.usage.estimated and call.usage.estimate is not None:
        record.input_tokens, record.output_tokens = call.usage.estimate.input, call.usage.generated
        record.usage = "estimated"
    if call.usage.cost is not None:
        record.cost_usd = call.usage.cost / NANO


def as_json(record: AccessRecord, unix: float) -> str:
    """The JSON line, with its line end; `unix` in seconds since 1970.

    Escapes everything that could start a new line, control a terminal or reverse the writing direction.
    """
    record.ts = datetime.datetime.fromtimestamp(unix, datetime.UTC).isoformat(timespec="milliseconds")
    try:
        text = msgspec.json.encode(record).decode()
    except UnicodeEncodeError:  # half a surrogate pair
        text = "\n"
    if not text.isprintable():
        text = json.dumps(msgspec.to_builtins(record))
    return text + "\n"


def as_text(record: AccessRecord, unix: float) -> str:
    """The text line, with its line end: fixed columns, then the other fields that are set. Escaped too."""
    when = datetime.datetime.fromtimestamp(unix).strftime("%H:%M:%S")
    columns = f"{when} {record.level} {record.status:>3} {record.outcome:<16} {record.total_ms:>10.2f} ms "
    model = record.model or "-"
    # Quoted, so that a client's model name cannot imitate the fields after it.
    words = [record.endpoint.removeprefix("/v1/"), json.dumps(model) if " " in model else model]
    if record.upstream:
        words.append(f"> {record.upstream}/{record.model_served}")
    if record.key is not None:
        words.append(f"key={record.key}")
    if record.stream:
        words.append("stream")
    words += [f"{name}={value}" for name, value in _text_fields(record) if value]
    text = columns + " ".join((*words, f"id={record.request_id}"))
    return (text if text.isprintable() else "".join(map(_escape, text))) + "\n"


def _text_fields(record: AccessRecord) -> tuple[tuple[str, object], ...]:
    return (
        ("attempts", record.attempts if record.attempts > 1 else 0),
        ("queue_ms", record.queue_ms),
        ("ttft_ms", record.ttft_ms),
        ("in", record.input_tokens),
        ("out", record.output_tokens),
        ("cached", record.cached_tokens),
        ("usage", record.usage),
        ("finish", record.finish),
        ("batch", record.batch_size),
        ("cache", record.cache),
        ("route", record.route),
        ("context", record.context),
        ("usd", record.cost_usd and usd(round(record.cost_usd * NANO))),
        ("code", record.code),
        ("failures", record.failures and json.dumps(", ".join(record.failures))),
        ("error", record.error and json.dumps(record.error)),
        ("reason", record.reason and json.dumps(record.reason)),
        ("see", record.see and json.dumps(record.see)),
    )


def _escape(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
