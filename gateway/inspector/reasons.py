"""Why a call was refused, failed, slow, dear, or answered by another than the first candidate: sentences."""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from gateway.inspector.call_record import CallRecord, Step

_SLOW_MS: Final = 500.0
"""A part of a call that takes less is not worth a sentence."""


class CallReason(Struct, frozen=True):
    """One reason. `code` is a key of `SENTENCES`, whose sentence is filled in with `values`."""

    code: str
    values: Mapping[str, str]

    @property
    def text(self) -> str:
        """The sentence."""
        return SENTENCES[self.code].format_map(self.values)


SENTENCES: Final[Mapping[str, str]] = {
    "refused": "The gateway refused it with {status} {code}: {message}",
    "failed": "It failed with {status} {code}: {message}",
    "client_gone": "The client left before the answer was complete.",
    "truncated": "The stream broke off before it was complete.",
    "attempt_failed": "{upstream}/{model} failed ({result}): {reason}",
    "skipped_breaker": "{upstream}/{model} was passed by: its circuit breaker is open after repeated failures.",
    "skipped_paused": "{upstream}/{model} was passed by: it had asked for a pause.",
    "excluded": "{upstream}/{model} could not take it: {reason}.",
    "elsewhere": "{upstream}/{model} answered, not the first candidate {first}.",
    "fallback": "No candidate of {asked} answered; the fallback {upstream}/{model} did.",
    "slow_body": "Slow: the request took {ms} ms to arrive from the client.",
    "slow_wait": "Slow: it waited {ms} ms for a free slot of {upstream}.",
    "slow_retries": "Slow: failed attempts and the pauses after them took {ms} ms.",
    "slow_first_token": "Slow: {upstream} took {ms} ms to its first token.",
    "slow_upstream": "Slow: {upstream} took {ms} ms to answer.",
    "slow_stream": "Slow: the answer streamed for {ms} ms ({output} tokens).",
    "slow_gateway": "Slow: the gateway itself took {ms} ms.",
    "cached": "Answered from the cache; no upstream was called.",
    "collapsed": "Shared the answer of an equal call that was under way.",
    "batch": "Shared one upstream call with {others} others.",
    "dear_retries": "Dear: failed attempts used {tokens} tokens as well.",
    "dear_price": "Dear: {upstream}/{model} costs {price} USD a million input tokens; {cheaper} costs {less}.",
    "unpriced": "What {upstream}/{model} costs is not known.",
    "usage_estimated": "The upstream reported no usage; its tokens are estimated.",
    "output_cut": "The answer was cut short: {reason}.",
    "overflow": "The prompt did not fit the context window: {reason}.",
    "open": "It is under way.",
}


EXCLUDED: Final[Mapping[str, str]] = {
    "capability": "it does not offer what the request needs",
    "window": "its context window is too small",
    "budget": "it is too dear for what is left of the key's budget",
    "unusable": "its circuit breaker is open, or it had asked for a pause",
}


def excluded_sentence(excluded: str, sentences: Mapping[str, str] = EXCLUDED) -> str:
    """The words for `ScoredCandidate.excluded`."""
    code, _, detail = excluded.partition(": ")
    return sentences[code] + (f" ({detail})" if detail else "")


def reasons(record: CallRecord) -> list[CallReason]:
    """The reasons for what happened to a call, the most important first."""
    return [CallReason(code, values) for code, values in _all(record)]


_Pair = tuple[str, Mapping[str, str]]


def _all(record: CallRecord) -> Iterator[_Pair]:
    yield from _end(record)
    yield from _way(record)
    yield from _time(record)
    yield from _money(record)
    summary = record.summary
    if record.batch_size > 1:
        yield "batch", {"others": str(record.batch_size - 1)}
    if record.overflow:
        yield "overflow", {"reason": record.overflow}
    if record.truncated or record.finish == "length":
        yield "output_cut", {"reason": record.truncated or "max_tokens, or the context window, is reached"}
    if record.tokens is not None and record.tokens.estimated and summary.outcome != "client_gone":
        yield "usage_estimated", {}


def _end(record: CallRecord) -> Iterator[_Pair]:
    summary, error = record.summary, record.error
    if summary.live:
        yield "open", {}
    if summary.outcome == "client_gone":
        yield "client_gone", {}
    if summary.outcome == "truncated":
        yield "truncated", {}
    if error is not None:
        by_upstream = summary.outcome in ("upstream_error", "upstream_timeout", "truncated", "internal_error")
        values = {"status": str(error.status), "code": error.code or error.type, "message": error.message}
        yield "failed" if by_upstream else "refused", values


def _way(record: CallRecord) -> Iterator[_Pair]:
    """Why it went where it went."""
    summary = record.summary
    for step in record.steps:
        if step.name == "attempt" and step.reason:
            words = {"upstream": step.upstream, "model": step.model, "result": step.verdict, "reason": step.reason}
            yield "attempt_failed", words
    for skipped in record.skipped:
        who, _, why = skipped.rpartition(" ")
        upstream, _, model = who.partition("/")
        yield "skipped_breaker" if why == "breaker_open" else "skipped_paused", {"upstream": upstream, "model": model}
    for candidate in record.candidates:
        if candidate.excluded:
            where = {"upstream": candidate.upstream, "model": candidate.model}
            yield "excluded", {**where, "reason": excluded_sentence(candidate.excluded)}
    if summary.cache == "hit":
        yield "cached", {}
    elif summary.cache == "collapsed":
        yield "collapsed", {}
    elif summary.outcome == "ok" and summary.upstream and record.candidates:
        first, where = record.candidates[0], {"upstream": summary.upstream, "model": summary.upstream_model}
        if record.of_fallback:
            yield "fallback", {"asked": summary.model, **where}
        elif not first.chosen:
            yield "elsewhere", {**where, "first": f"{first.upstream}/{first.model}"}


def _time(record: CallRecord) -> Iterator[_Pair]:
    """The parts of a call that take longest, where they take long."""
    total, summary = record.summary.total_ms, record.summary
    output = "?" if summary.output is None else str(summary.output)
    parts: list[tuple[float, str, Mapping[str, str]]] = [
        (_sum(record, "door"), "slow_body", {}),
        (_sum(record, "wait"), "slow_wait", {"upstream": _where(record, "wait") or summary.upstream}),
        (_sum(record, "decide", "finish"), "slow_gateway", {}),
        (
            sum(_length(step) for step in record.steps if step.reason or step.name == "pause"),
            "slow_retries",
            {},
        ),
        (_sum(record, "stream"), "slow_stream", {"output": output}),
    ]
    answered = [step for step in record.steps if step.name == "attempt" and not step.reason]
    for step in answered:
        first = "slow_first_token" if summary.stream else "slow_upstream"
        parts.append((_length(step), first, {"upstream": step.upstream}))
    for took, code, values in sorted(parts, key=lambda part: -part[0]):
        if took >= _SLOW_MS and took >= total / 4:
            yield code, {"ms": f"{took:.0f}", **values}


def _money(record: CallRecord) -> Iterator[_Pair]:
    failed = sum((one.input or 0) + (one.output or 0) for one in record.failed_tokens)
    if failed:
        yield "dear_retries", {"tokens": str(failed)}
    chosen = next((one for one in record.candidates if one.chosen), None)
    if chosen is None or record.summary.cache or record.summary.live:
        return
    where = {"upstream": chosen.upstream, "model": chosen.model}
    if not chosen.input_usd:
        yield "unpriced", where
        return
    priced = [one for one in record.candidates if one.input_usd and not one.chosen]
    cheapest = min(priced, key=lambda one: float(one.input_usd), default=None)
    if cheapest is not None and float(cheapest.input_usd) < float(chosen.input_usd):
        cheaper = {"cheaper": f"{cheapest.upstream}/{cheapest.model}", "less": cheapest.input_usd}
        yield "dear_price", {**where, "price": chosen.input_usd, **cheaper}


def _length(step: Step) -> float:
    return step.end_ms - step.start_ms


def _sum(record: CallRecord, *names: str) -> float:
    return sum(_length(step) for step in record.steps if step.name in names)


def _where(record: CallRecord, name: str) -> str:
    return next((step.upstream for step in record.steps if step.name == name and step.upstream), "")
