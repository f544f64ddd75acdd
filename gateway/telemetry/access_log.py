"""The line of one finished call, made after its last byte: JSON for machines, text for people.

It goes past Python's logging, whose records cost five times as much as the line itself.
"""

import datetime
import json
from typing import Final

import msgspec

from gateway.core.call import Call
from gateway.core.units import NANO, usd

_LONGEST: Final = 128
"""Characters of a model's name that a client has made up."""


class AccessRecord(msgspec.Struct, omit_defaults=True):
    """Its fields, in order; those that have their default are left out of the JSON."""

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


def record_of(call: Call, now: float) -> AccessRecord:
    """All of it but the time of day; `now` in monotonic seconds."""
    line = AccessRecord(
        "",
        "info",
        "request",
        call.request_id,
        call.endpoint,
        call.route.name if call.route is not None else call.model[:_LONGEST] or None,
        call.caller.name if call.caller is not None else None,
        call.status,
        call.outcome,
        call.stream,
        _ms(now - call.accepted_at),
    )
    if call.candidate is not None and call.attempts:
        line.upstream, line.model_served = call.candidate.upstream, call.candidate.model
        line.attempts = call.attempts
    if call.attempts or call.queue_s:
        line.queue_ms = _ms(call.queue_s)
    if call.answered_at:
        line.overhead_ms = _ms(call.overhead_s(now))
    if call.first_token_at:
        line.ttft_ms = _ms(call.first_token_at - call.sent_at)
    _tell_use(line, call)
    if call.finish == "length":
        line.finish = call.finish
    if call.batch_size > 1:
        line.batch_size = call.batch_size
    line.cache = call.cached_by
    if call.trace is not None:
        line.trace_id = f"{call.trace.trace_id:032x}"
    if call.response_notes:
        line.route = call.response_notes.get("x-sluice-routing", "")
        line.context = call.response_notes.get("x-sluice-overflow", "")
    return line


def _tell_use(line: AccessRecord, call: Call) -> None:
    used = call.tokens
    if used is not None:
        line.input_tokens, line.output_tokens, line.cached_tokens = used.input, used.output, used.cached_input
    elif call.estimated and call.estimate is not None:
        line.input_tokens, line.output_tokens, line.usage = call.estimate.input, call.generated, "estimated"
    if call.cost is not None:
        line.cost_usd = call.cost / NANO


def as_json(line: AccessRecord, unix: float) -> str:
    """With its end; `unix` in seconds since 1970.

    Whatever could start a line, steer a terminal or turn writing round is escaped.
    """
    line.ts = datetime.datetime.fromtimestamp(unix, datetime.UTC).isoformat(timespec="milliseconds")
    try:
        text = msgspec.json.encode(line).decode()
    except UnicodeEncodeError:  # half a surrogate pair
        text = "\n"
    if not text.isprintable():
        text = json.dumps(msgspec.to_builtins(line))
    return text + "\n"


def as_text(line: AccessRecord, unix: float) -> str:
    """With its end: what stands in columns first, then what the call has of the rest. Escaped likewise."""
    when = datetime.datetime.fromtimestamp(unix).strftime("%H:%M:%S")
    columns = f"{when} info {line.status:>3} {line.outcome:<16} {line.total_ms:>10.2f} ms "
    model = line.model or "-"
    # Else a client's invention could pass for the fields behind it.
    words = [line.endpoint.removeprefix("/v1/"), json.dumps(model) if " " in model else model]
    if line.upstream:
        words.append(f"> {line.upstream}/{line.model_served}")
    if line.key is not None:
        words.append(f"key={line.key}")
    if line.stream:
        words.append("stream")
    words += [f"{name}={value}" for name, value in _rest(line) if value]
    text = columns + " ".join((*words, f"id={line.request_id}"))
    return (text if text.isprintable() else "".join(map(_shown, text))) + "\n"


def _rest(line: AccessRecord) -> tuple[tuple[str, object], ...]:
    return (
        ("attempts", line.attempts if line.attempts > 1 else 0),
        ("queue_ms", line.queue_ms),
        ("ttft_ms", line.ttft_ms),
        ("in", line.input_tokens),
        ("out", line.output_tokens),
        ("cached", line.cached_tokens),
        ("usage", line.usage),
        ("finish", line.finish),
        ("batch", line.batch_size),
        ("cache", line.cache),
        ("route", line.route),
        ("context", line.context),
        ("usd", line.cost_usd and usd(round(line.cost_usd * NANO))),
    )


def _shown(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
