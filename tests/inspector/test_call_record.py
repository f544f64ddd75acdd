"""The waterfall of a call and its reasons, with plain numbers."""

import pytest
from kit.calls import make_call, make_candidate, make_route

from gateway.core.call import (
    Call,
    Considered,
    FailedAttempt,
    FailedUsage,
    LimitUse,
    Price,
    SkippedCandidate,
    TokenUsage,
)
from gateway.core.caller import Caller, KeyLimits, LimitStatus
from gateway.core.errors import RESET, UPSTREAM_TIMEOUT, Rejection
from gateway.inspector.bodies import BodyMask
from gateway.inspector.call_record import CallRecord, LimitState, record_of
from gateway.inspector.finished_call import snapshot
from gateway.inspector.reasons import SENTENCES, reasons

DEAR = make_candidate("dear", Price(9_000_000_000, 9_000_000_000, 0))
CHEAP = make_candidate("cheap", Price(1_000_000_000, 2_000_000_000, 0))


def record(call: Call, ended_at: float) -> CallRecord:
    return record_of(snapshot(call, 1, ended_at, ended_at), ended_at, lambda moment: moment, BodyMask(()))


def bars(of: CallRecord) -> list[tuple[str, float, float]]:
    return [(step.name, step.start_ms, step.end_ms) for step in of.steps]


def codes(of: CallRecord) -> list[str]:
    return [one.code for one in reasons(of)]


def test_a_stream_that_waited():
    call = make_call(
        now=10.0,
        route=make_route(CHEAP),
        stream=True,
        ready_at=10.1,
        queue_s=0.7,
        sent_at=11.0,
        answered_at=12.0,
        first_token_at=12.0,
        last_piece_at=14.0,
        pieces=7,
        attempts=1,
        outcome="ok",
        status=200,
    )
    shown = record(call, 14.1)
    assert bars(shown) == [
        ("door", 0.0, 100.0),
        ("decide", 100.0, 300.0),
        ("wait", 300.0, 1000.0),
        ("attempt", 1000.0, 2000.0),
        ("first_token", 1000.0, 2000.0),
        ("stream", 2000.0, 4000.0),
        ("finish", 4000.0, 4100.0),
    ]
    assert shown.steps[5].pieces == 7
    assert codes(shown) == ["slow_stream"]


def test_a_failed_attempt_its_pause_and_the_next_one():
    failed = FailedAttempt("dear", "up", "reset", "It died.", 1.0, 2.0, 0.5, 0.25)
    call = make_call(
        route=make_route(DEAR, CHEAP),
        candidate=CHEAP,
        ready_at=2.0,
        sent_at=3.0,
        answered_at=4.0,
        queue_s=0.75,
        attempts=2,
        failures=(failed,),
        outcome="ok",
        status=200,
        failed=(FailedUsage(DEAR, TokenUsage(5, 6)),),
        tokens=TokenUsage(1, 2),
    )
    shown = record(call, 4.0)
    assert bars(shown) == [
        ("door", 0.0, 250.0),
        ("decide", 250.0, 500.0),
        ("wait", 500.0, 1000.0),
        ("attempt", 1000.0, 2000.0),
        ("pause", 2000.0, 2750.0),
        ("wait", 2750.0, 3000.0),
        ("attempt", 3000.0, 4000.0),
        ("finish", 4000.0, 4000.0),
    ]
    assert [step.verdict for step in shown.steps if step.name == "attempt"] == ["reset", "ok"]
    assert codes(shown)[:2] == ["attempt_failed", "elsewhere"]
    assert "dear_retries" in codes(shown)


def test_a_refusal_in_the_queue_shows_the_wait():
    rejection = Rejection(UPSTREAM_TIMEOUT, "Too late.")
    call = make_call(route=make_route(CHEAP), queue_s=2.0, error=rejection, outcome="shed", status=503)
    shown = record(call, 2.5)
    assert bars(shown) == [("door", 0.0, 0.0), ("wait", 500.0, 2500.0)]
    assert codes(shown)[:2] == ["refused", "slow_wait"]


def test_bars_never_leave_the_call_or_run_backwards():
    # A caller that joined a shared call late has times from before it came.
    call = make_call(now=5.0, route=make_route(CHEAP), sent_at=1.0, answered_at=2.0, ready_at=0.5, attempts=1)
    for step in record(call, 6.0).steps:
        assert 0.0 <= step.start_ms <= step.end_ms <= 1000.0


def test_the_router_is_explained_by_the_values_it_compared():
    call = make_call(route=make_route(CHEAP, DEAR), candidate=CHEAP, attempts=1, outcome="ok")
    call.routing.considered = Considered([CHEAP, DEAR], "usd", [1_500_000, None])
    shown = record(call, 1.0)
    assert [(one.upstream, one.chosen, one.score, one.unit) for one in shown.candidates] == [
        ("cheap", True, 0.0015, "usd"),
        ("dear", False, None, "usd"),
    ]


@pytest.mark.parametrize(
    ("considered", "ceiling", "why"),
    [
        (Considered([DEAR], needed=frozenset({"tools"})), None, "capability: tools"),
        (Considered([DEAR]), None, "window"),
        (Considered([DEAR]), 5, "budget"),
        (Considered([DEAR], unusable=[]), None, "window"),
        (Considered([CHEAP, DEAR]), None, ""),
    ],
)
def test_a_candidate_that_was_not_compared_says_why(considered: Considered, ceiling: int | None, why: str):
    cheap = CHEAP
    if considered.needed:
        cheap = make_candidate("cheap", CHEAP.price, capabilities=frozenset({"vision"}))
    call = make_call(route=make_route(cheap, DEAR), candidate=DEAR, attempts=1, outcome="ok", ceiling=ceiling)
    call.routing.considered = considered
    shown = record(call, 1.0)
    assert shown.candidates[0].excluded == why
    assert ("excluded" in codes(shown)) is bool(why)


def test_an_unusable_candidate_is_named():
    call = make_call(route=make_route(CHEAP, DEAR), candidate=DEAR, attempts=1, outcome="ok")
    call.routing.considered = Considered([DEAR], unusable=[CHEAP])
    assert record(call, 1.0).candidates[0].excluded == "unusable"


def test_a_skipped_candidate_and_a_dear_one():
    call = make_call(route=make_route(CHEAP, DEAR), candidate=DEAR, attempts=1, outcome="ok")
    call.routing.skipped = (SkippedCandidate("cheap", "up", "breaker_open"),)
    shown = record(call, 1.0)
    assert codes(shown) == ["skipped_breaker", "elsewhere", "dear_price"]
    assert reasons(shown)[2].text == "Dear: dear/up costs 9 USD a million input tokens; cheap/up costs 1."


def test_a_fallback_model_is_no_candidate_of_the_route():
    call = make_call(route=make_route(CHEAP), candidate=DEAR, attempts=2, outcome="ok")
    shown = record(call, 1.0)
    assert [one.upstream for one in shown.candidates] == ["cheap", "dear"]
    assert "fallback" in codes(shown)


class Account:
    limits = KeyLimits(rpm=60.0, usd_per_day=2_000_000_000)

    def status(self, now: float) -> LimitStatus:
        return LimitStatus(41, 0.0, 0, 0.0)


def test_limits_before_and_after():
    call = make_call(route=make_route(CHEAP))
    call.caller = Caller("team", None, Account())
    call.usage.reserved = LimitUse(100, 500_000_000, LimitStatus(42, 0.0, 0, 0.0))
    limits = record(call, 1.0).limits
    assert limits is not None
    assert (limits.before, limits.after) == (LimitState(42, None), LimitState(41, None))
    assert (limits.reserved_usd, limits.usd_per_day) == ("0.5", "2")


def test_every_sentence_has_all_its_values():
    call = make_call(
        route=make_route(CHEAP, DEAR),
        candidate=DEAR,
        stream=True,
        ready_at=1.0,
        queue_s=1.0,
        sent_at=3.0,
        answered_at=4.0,
        first_token_at=4.0,
        attempts=2,
        batch_size=3,
        finish="length",
        outcome="ok",
        estimated=True,
        failures=(FailedAttempt("cheap", "up", RESET, "{braces} in a sentence", 1.5, 2.5, 0.0, 1.0),),
        failed=(FailedUsage(CHEAP, TokenUsage(1, 1)),),
        notes={"x-sluice-overflow": "dropped {x}"},
    )
    texts = [one.text for one in reasons(record(call, 5.0))]
    assert any("{braces}" in text for text in texts)
    assert len(texts) >= 8
    assert all(SENTENCES[one.code] for one in reasons(record(call, 5.0)))
