"""The line of one finished call: its fields, its two shapes, and that it stays one line."""

import json
import re
from typing import Any

import pytest
from kit.calls import make_call

from gateway.core.call import UNROUTED, Call, Candidate, ClientRequest, Credentials, Route, TokenEstimate, TokenUsage
from gateway.core.caller import STRANGER, Caller
from gateway.telemetry import logging as log
from gateway.telemetry.access_log import as_json, as_text, record_of
from gateway.telemetry.nonblocking_output import NonBlockingStream
from gateway.wire.openai.chat import CHAT

AT = 1_796_000_000.25
CANDIDATE = Candidate("local", "up-small", b'"up-small"')
ROUTE = Route("small", b'"small"', (CANDIDATE,))
EVIL = ["a\nb", "a\r\nx", "\x1b[2J", "\x00", "\x7f", "\u2028", "\x85", "\u202egpj", '"},{"', "\ud800"]


def finished() -> Call:
    """Accepted at 100.0, body there at 100.5, waited 0.25, sent at 101.0, first token at 103.0."""
    call = Call(ClientRequest(CHAT, "req-1", Credentials("Bearer sk-secret", None, None)), 100.0)
    call.timing.ready_at, call.timing.queue_s, call.timing.sent_at = 100.5, 0.25, 101.0
    call.timing.answered_at = call.timing.first_token_at = 103.0
    call.request.model, call.routing.route, call.routing.candidate, call.attempts = "small", ROUTE, CANDIDATE, 2
    call.caller, call.request.body = Caller("team-a", None), b'{"messages":"a secret"}'
    call.response.status, call.response.outcome, call.request.stream = 200, "ok", True
    return call


def told(call: Call, now: float = 105.0) -> dict[str, Any]:
    """The JSON line, read."""
    text = as_json(record_of(call, now), AT)
    assert text.endswith("}\n")
    fields: dict[str, Any] = json.loads(text)
    return fields


def test_all_that_is_known_of_a_call() -> None:
    call = finished()
    call.usage.tokens, call.usage.cost, call.batch_size = TokenUsage(input=10, output=4, cached_input=8), 1_234_000, 3
    call.cached_by, call.response.finish = "collapsed", "length"
    call.response.notes = {"x-sluice-routing": "least_loaded", "x-sluice-overflow": "drop_oldest", "age": "1"}
    assert told(call) == {
        "ts": "2026-11-30T00:53:20.250+00:00",
        "level": "info",
        "msg": "request",
        "request_id": "req-1",
        "endpoint": CHAT,
        "model": "small",
        "key": "team-a",
        "status": 200,
        "outcome": "ok",
        "stream": True,
        "total_ms": 5000.0,
        "upstream": "local",
        "model_served": "up-small",
        "attempts": 2,
        "queue_ms": 250.0,
        "overhead_ms": 250.0,
        "ttft_ms": 2000.0,
        "input_tokens": 10,
        "output_tokens": 4,
        "cached_tokens": 8,
        "finish": "length",
        "batch_size": 3,
        "cache": "collapsed",
        "route": "least_loaded",
        "context": "drop_oldest",
        "cost_usd": 0.001234,
    }


def test_what_is_not_known_is_left_out() -> None:
    call = make_call(now=100.0, request_id="req-1")
    call.caller, call.request.model = STRANGER, "m" * 1000
    call.response.status, call.response.outcome = 404, "client_error"
    assert told(call, 100.5) == {
        "ts": "2026-11-30T00:53:20.250+00:00",
        "level": "info",
        "msg": "request",
        "request_id": "req-1",
        "endpoint": CHAT,
        "model": "m" * 128,
        "key": None,
        "status": 404,
        "outcome": "client_error",
        "stream": False,
        "total_ms": 500.0,
    }


def test_usage_that_nobody_has_counted_is_said_to_be_estimated() -> None:
    call = finished()
    call.usage.estimated, call.usage.estimate, call.usage.generated = True, TokenEstimate(7, 100, capped=False), 3
    fields = told(call)
    assert (fields["input_tokens"], fields["output_tokens"], fields["usage"]) == (7, 3, "estimated")


def test_a_call_that_was_refused_in_the_queue_tells_how_long_it_waited() -> None:
    call = finished()
    call.attempts, call.timing.answered_at, call.timing.queue_s = 0, 0.0, 1.5
    fields = told(call)
    assert fields["queue_ms"] == 1500.0
    assert "upstream" not in fields


def test_for_people_it_is_one_line_in_columns() -> None:
    call = finished()
    call.usage.tokens, call.usage.cost = TokenUsage(input=10, output=4), 1_234_000
    text = as_text(record_of(call, 105.0), AT)
    assert re.sub(r"^\d\d:\d\d:\d\d", "hh:mm:ss", text) == (
        "hh:mm:ss info 200 ok                  5000.00 ms chat/completions small > local/up-small key=team-a "
        "stream attempts=2 queue_ms=250.0 ttft_ms=2000.0 in=10 out=4 usd=0.001234 id=req-1\n"
    )


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("shape", [as_json, as_text])
def test_nothing_starts_a_line_or_steers_a_terminal(shape: Any, evil: str) -> None:
    call = finished()
    call.routing.route, call.request.model = UNROUTED, evil
    text = shape(record_of(call, 105.0), AT)
    assert text[-1] == "\n"
    assert text[:-1].isprintable()
    if shape is as_json:
        assert json.loads(text)["model"] == evil


def test_a_made_up_model_passes_for_no_other_field() -> None:
    call = finished()
    call.routing.route, call.request.model = UNROUTED, 'x" key=admin'
    assert ' "x\\" key=admin" > ' in as_text(record_of(call, 105.0), AT)


@pytest.mark.parametrize("shape", [as_json, as_text])
def test_neither_body_nor_key_is_logged(shape: Any) -> None:
    assert "secret" not in shape(record_of(finished(), 105.0), AT)


@pytest.mark.parametrize(("shape", "begins"), [("json", '{"ts":'), ("text", "")])
def test_it_goes_where_the_log_goes_in_its_shape(shape: str, begins: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    to = NonBlockingStream(lambda data: written.append(data) or len(data), lambda lines: None)
    monkeypatch.setattr(log, "output", lambda: to)
    monkeypatch.setattr(log, "_render", log._render)
    root = log.logging.getLogger()
    before = (root.handlers[:], root.level, log.logger.level)
    try:
        log.setup("info", shape)
        log.access(finished(), 105.0)
        assert len(written) == 1
        assert written[0].decode().startswith(begins)
        assert (b'"msg":"request"' in written[0]) == (shape == "json")
        log.setup("warning", shape)
        log.access(finished(), 105.0)
        assert len(written) == 1
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        log.logger.setLevel(before[2])
