"""What the inspector tells about a call, as plain data: the one place that reads it from a `Call`'s records."""

import datetime
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from gateway.core.call import Candidate, Considered, FailedAttempt
from gateway.core.caller import KeyLimits, LimitStatus
from gateway.core.units import usd
from gateway.inspector.bodies import Bodies, BodyMask
from gateway.inspector.conversation import Conversation, conversation
from gateway.inspector.finished_call import LONGEST_TEXT, FinishedCall

_ROUTING: Final = "x-sluice-routing"
_OVERFLOW: Final = "x-sluice-overflow"
_TRUNCATED: Final = "x-sluice-truncated"
_CACHE: Final = "cache-status"


class Step(Struct, frozen=True, omit_defaults=True):
    """A bar of the waterfall, in milliseconds since the call was accepted.

    `name` is `door` (head and body arrive), `decide` (the gateway before its first attempt), `wait` (for a slot or a
    batch), `attempt`, `pause` (between two attempts), `first_token` (until it, inside of its attempt), `stream`,
    `finish` (the gateway after the answer) or `open` (under way).
    """

    name: str
    start_ms: float
    end_ms: float
    upstream: str = ""
    model: str = ""
    verdict: str = ""
    """Of an attempt: `ok`, or why it failed."""
    reason: str = ""
    """The sentence of a failure."""
    pieces: int = 0


class ScoredCandidate(Struct, frozen=True, omit_defaults=True):
    """A candidate of the model, and what the router thought of it. `excluded`: why it was not compared."""

    upstream: str
    model: str
    chosen: bool = False
    score: float | None = None
    unit: str = ""
    excluded: str = ""
    input_usd: str = ""
    """Price of a million input tokens; empty if it is unknown."""
    output_usd: str = ""


class LimitState(Struct, frozen=True):
    """What a key had left; None without such a limit."""

    requests: int | None
    tokens: int | None


class Limits(Struct, frozen=True):
    """A key's limits around a call."""

    rpm: float | None
    tpm: float | None
    concurrency: int | None
    usd_per_day: str | None
    before: LimitState | None
    after: LimitState | None
    reserved_tokens: int | None
    reserved_usd: str | None


class Tokens(Struct, frozen=True):
    """Tokens used by one upstream call; None is unknown."""

    input: int | None
    output: int | None
    cached_input: int = 0
    reasoning: int = 0
    estimated: bool = False


class Failure(Struct, frozen=True):
    """What the client got in place of an answer."""

    status: int
    code: str
    type: str
    message: str
    retry_after_s: float | None


class CallSummary(Struct, frozen=True):
    """One line of the list of calls. `at` is when it was accepted, in UTC; `position` orders calls by their end."""

    id: str
    at: str
    endpoint: str
    model: str
    key: str
    status: int
    outcome: str
    live: bool
    stream: bool
    total_ms: float
    queue_ms: float
    first_token_ms: float | None
    upstream: str
    upstream_model: str
    attempts: int
    input: int | None
    output: int | None
    cost_usd: str | None
    cache: str
    code: str
    position: str


class CallRecord(Struct, frozen=True):
    """Everything about one call. `bodies` is None unless they are kept."""

    summary: CallSummary
    priority: str
    steps: list[Step]
    routing: str
    candidates: list[ScoredCandidate]
    skipped: list[str]
    limits: Limits | None
    cache_status: str
    batch_size: int
    tokens: Tokens | None
    failed_tokens: list[Tokens]
    saved_usd: str | None
    overflow: str
    truncated: str
    finish: str
    upstream_headers: dict[str, str]
    error: Failure | None
    of_fallback: bool
    """The candidate belongs to another model."""
    bodies: Conversation | None = None


def summary_of(call: FinishedCall, now: float, to_unix: Callable[[float], float]) -> CallSummary:
    """The line of a call; `to_unix` turns monotonic seconds into seconds since 1970."""
    timing, tokens = call.timing, _tokens(call)
    candidate, called = call.routing.candidate, call.attempts > 0
    began = timing.accepted_at
    when = datetime.datetime.fromtimestamp(to_unix(began), datetime.UTC)
    return CallSummary(
        call.id,
        when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        str(call.endpoint),
        call.routing.route.name or call.asked_model,
        call.key,
        call.status,
        call.outcome if call.ended_at else "",
        not call.ended_at,
        call.stream,
        _ms((call.ended_at or now) - began),
        _ms(timing.queue_s),
        _ms(timing.first_token_at - began) if timing.first_token_at else None,
        candidate.upstream if called else "",
        candidate.model if called else "",
        call.attempts,
        None if tokens is None else tokens.input,
        None if tokens is None else tokens.output,
        None if call.usage.cost is None else usd(call.usage.cost),
        call.cached_by,
        call.error.kind.code if call.error is not None else "",
        position(call),
    )


def position(call: FinishedCall) -> str:
    """The call's place in the order of ends: comparable as text, over all processes of a machine."""
    return f"{int(call.ended_at * 1e6):020d}-{call.number:012d}"


def record_of(call: FinishedCall, now: float, to_unix: Callable[[float], float], mask: BodyMask) -> CallRecord:
    """The whole record of a call."""
    usage, notes = call.usage, call.notes
    return CallRecord(
        summary_of(call, now, to_unix),
        call.priority,
        list(_steps(call, now)),
        notes.get(_ROUTING, ""),
        list(_candidates(call)),
        [f"{one.upstream}/{one.model} {one.reason}" for one in call.routing.skipped],
        _limits(call),
        notes.get(_CACHE, ""),
        call.batch_size,
        _tokens(call),
        [Tokens(*each.tokens[:4], estimated=each.estimated) for each in usage.failed],
        None if usage.saved_cost is None else usd(usage.saved_cost),
        notes.get(_OVERFLOW, ""),
        notes.get(_TRUNCATED, ""),
        call.finish,
        {name: value[:LONGEST_TEXT] for name, value in call.upstream_headers},
        _failure(call),
        call.attempts > 0 and call.routing.candidate not in call.routing.route.candidates,
        _conversation(call.bodies, mask),
    )


def _conversation(bodies: Bodies | None, mask: BodyMask) -> Conversation | None:
    return None if bodies is None else conversation(bodies, mask)


def _failure(call: FinishedCall) -> Failure | None:
    error = call.error
    if error is None:
        return None
    kind, message = error.kind, error.logged or error.message
    return Failure(kind.status, kind.code, kind.type, message[:LONGEST_TEXT], error.retry_after)


def _tokens(call: FinishedCall) -> Tokens | None:
    usage = call.usage
    if usage.tokens is not None:
        input_, output, cached, reasoning, *_ = usage.tokens
        return Tokens(input_, output, cached, reasoning)
    if usage.estimated:
        return Tokens(usage.estimate.input if usage.estimate is not None else None, usage.generated, estimated=True)
    return None


def _limits(call: FinishedCall) -> Limits | None:
    limits, reserved = call.limits, call.usage.reserved
    if limits is None:
        return None
    rpm, tpm, concurrency, budget = limits
    return Limits(
        rpm,
        tpm,
        concurrency,
        None if budget is None else usd(budget),
        None if reserved is None else _left(limits, reserved.before),
        None if call.limits_after is None else _left(limits, call.limits_after),
        None if reserved is None else reserved.tokens,
        None if reserved is None else usd(reserved.cost),
    )


def _left(limits: KeyLimits, status: LimitStatus) -> LimitState:
    return LimitState(
        None if limits.rpm is None else status.requests_left, None if limits.tpm is None else status.tokens_left
    )


def _candidates(call: FinishedCall) -> Iterator[ScoredCandidate]:
    """Every candidate of the model, in config order, then the fallback that took the call."""
    routing = call.routing
    considered, chosen = routing.considered, routing.candidate if call.attempts else None
    everyone: Sequence[Candidate] = routing.route.candidates
    if chosen is not None and chosen not in everyone:
        everyone = (*everyone, chosen)
    for candidate in everyone:
        score, unit, excluded = None, "", ""
        if considered is not None and candidate in routing.route.candidates:
            compared = list(considered.candidates)
            if candidate in compared and considered.values:
                score, unit = considered.values[compared.index(candidate)], considered.unit
            else:
                excluded = _why_not(call, considered, candidate)
        price = candidate.price
        yield ScoredCandidate(
            candidate.upstream,
            candidate.model,
            candidate is chosen,
            None if score is None else score / 1e9 if unit == "usd" else round(score, 4),
            unit,
            excluded,
            "" if price is None else usd(price.input),
            "" if price is None or price.output is None else usd(price.output),
        )


def _why_not(call: FinishedCall, considered: Considered, candidate: Candidate) -> str:
    """Why the router did not compare a candidate: empty, or one of `reasons.EXCLUDED` with a detail."""
    if candidate in considered.unusable:
        return "unusable"
    if candidate in considered.candidates:
        return ""
    if lacking := considered.needed - (candidate.capabilities or considered.needed):
        return f"capability: {', '.join(sorted(lacking))}"
    return "window" if call.routing.ceiling is None else "budget"


def _steps(call: FinishedCall, now: float) -> Iterator[Step]:
    """The bars of the waterfall, in the order in which they begin."""
    timing, failures = call.timing, call.failures
    began, ended = timing.accepted_at, call.ended_at or now
    body_at = failures[0].ready_at if failures and failures[0].ready_at else timing.ready_at

    def bar(name: str, start: float, end: float, **more: str | int) -> Step:
        # Shared calls lend their times to callers that came later.
        start, end = min(max(start, began), ended), min(max(end, began), ended)
        return Step(name, _ms(start - began), _ms(max(start, end) - began), **more)  # type: ignore[arg-type]

    yield bar("door", began, body_at)
    idle, before, waited = "decide", body_at, 0.0
    for failure in failures:
        if not failure.sent_at or failure.ended_at > ended:
            continue
        yield from _before(bar, idle, before, failure.sent_at, failure.queue_s - waited, failure.upstream)
        yield bar("attempt", failure.sent_at, failure.ended_at, **_verdict(failure))
        idle, before, waited = "pause", failure.ended_at, failure.queue_s
    last = failures[-1] if failures else None
    succeeded = timing.sent_at and (last is None or timing.sent_at > last.sent_at)
    candidate = call.routing.candidate
    if not succeeded:
        wait = timing.queue_s - waited
        if not call.ended_at and not timing.sent_at:
            yield bar("open", before, ended)
        elif wait > 0:
            yield bar("wait", ended - wait, ended, upstream=candidate.upstream)
        return
    yield from _before(bar, idle, before, timing.sent_at, timing.queue_s - waited, candidate.upstream)
    where = {"upstream": candidate.upstream, "model": candidate.model}
    if not timing.answered_at:
        verdict = call.outcome if call.ended_at else "open"
        yield bar("attempt", timing.sent_at, ended, verdict=verdict, **where)
        return
    yield bar("attempt", timing.sent_at, timing.answered_at, verdict="ok", **where)
    if call.stream and timing.first_token_at:
        yield bar("first_token", timing.sent_at, timing.first_token_at, upstream=candidate.upstream)
        yield bar("stream", timing.first_token_at, timing.last_piece_at or ended, pieces=call.pieces)
    yield bar("finish", timing.last_piece_at or timing.answered_at, ended)


def _before(
    bar: Callable[..., Step], idle: str, start: float, sent_at: float, queued_s: float, upstream: str
) -> Iterator[Step]:
    """What comes before an attempt: deciding or pausing, then waiting in a queue just before it is sent."""
    queued_from = max(start, sent_at - max(0.0, queued_s))
    if queued_from > start:
        yield bar(idle, start, queued_from)
    if queued_s > 0:
        yield bar("wait", queued_from, sent_at, upstream=upstream)


def _verdict(failure: FailedAttempt) -> dict[str, str]:
    return {
        "upstream": failure.upstream,
        "model": failure.model,
        "verdict": failure.result,
        "reason": failure.sentence[:LONGEST_TEXT],
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
