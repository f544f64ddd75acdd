"""A call's usage, attempt by attempt, estimated where the upstream reported none."""

from collections.abc import Callable, Sequence
from typing import Final

from gateway.core.call import EMBEDDINGS, Call, Candidate, FailedUsage, TokenUsage
from gateway.usage.cost import FREE, cost
from gateway.wire.openai.usage_split import shares


def split_failed_usage(merged: Call, members: Sequence[Call], weights: Sequence[int]) -> None:
    """Split the failed attempts of a merged call among its members by weight; the sums stay exact."""
    for attempt in merged.failed_usage if members else ():
        counts = zip(*(shares(count, weights) for count in attempt.tokens), strict=True)
        for member, count in zip(members, counts, strict=True):
            member.failed_usage += (FailedUsage(attempt.candidate, TokenUsage(*count), attempt.estimated),)
    merged.failed_usage = ()


def absorb_part_usage(call: Call, part: Call) -> None:
    """Move the failed usage of one part of a call to the call itself."""
    call.failed_usage += part.failed_usage
    part.failed_usage = ()


def record_discarded(call: Call, answered: Sequence[Call]) -> None:
    """Charge answers to parts of a call, or to the call itself, that it cannot use."""
    for part in answered:
        if part.candidate is not None:
            add_failed_usage(call, part.candidate, part.tokens, part.generated)


def copy_estimated_note(call: Call, source: Call) -> None:
    """Copy the header that marks estimated usage."""
    if ESTIMATED[0] in source.response_notes:
        call.response_notes[ESTIMATED[0]] = ESTIMATED[1]


NOTHING: Final = TokenUsage()
ESTIMATED: Final = ("x-sluice-usage", "estimated")
"""Header of an answer whose upstream reported no usage."""


def charge(
    call: Call, tokens: TokenUsage | None, body: bytes, estimate: Callable[[Call], object] | None = None
) -> None:
    """Set the usage and cost of a call with a complete answer; the cost includes failed attempts.

    Without reported `tokens`, the output is estimated from the body's size and marked so, and the input by
    `estimate`, which fills in `call.estimate`.
    """
    if tokens is not None and tokens.output and call.endpoint == EMBEDDINGS:
        tokens = tokens._replace(output=0)  # embeddings have no output, whatever the upstream reports
    call.tokens = tokens
    price = call.candidate.price if call.candidate is not None else None
    if tokens is None:
        call.generated = 0 if call.endpoint == EMBEDDINGS else len(body) // 4
        call.response_notes[ESTIMATED[0]] = ESTIMATED[1]
        if estimate is not None and call.estimate is None and price not in (None, FREE):
            estimate(call)
        tokens = TokenUsage(call.estimate.input if call.estimate is not None else 0, call.generated)
    if price is not None:
        call.cost = cost(tokens, price)
        if call.failed_usage and call.cost is not None:
            _add_failed_attempts(call, call.cost)


def _add_failed_attempts(call: Call, last: int) -> None:
    """Set the cost to that of all attempts; None if one of them has no known price."""
    earlier = [price_of(attempt) for attempt in attempts_before(call)]
    priced = [nanos for nanos in earlier if nanos is not None]
    call.cost = last + sum(priced) if len(priced) == len(earlier) else None


def spent(call: Call) -> TokenUsage:
    """Return the usage of the last attempt: the upstream's count, or the estimated input and relayed output.

    A call that no upstream answered has used nothing, unless its client left while the upstream was working.
    """
    if call.tokens is not None:
        return call.tokens
    began = call.first_token_at or call.outcome == "ok"
    left = call.outcome == "client_gone" and call.sent_at
    if call.estimate is None or not (began or left):
        return NOTHING
    return TokenUsage(call.estimate.input, call.generated)


def attempts_before(call: Call) -> list[FailedUsage]:
    """Return the usage of the failed attempts, with the estimated input where none was counted."""
    if call.estimate is None:
        return list(call.failed_usage)
    estimated_input = call.estimate.input
    return [
        attempt._replace(tokens=TokenUsage(attempt.tokens.input or estimated_input, attempt.tokens.output))
        if attempt.estimated
        else attempt
        for attempt in call.failed_usage
    ]


def price_of(attempt: FailedUsage) -> int | None:
    """Return the attempt's nano-dollars; None if its price is unknown."""
    price = attempt.candidate.price
    return None if price is None else cost(attempt.tokens, price)


def all_tokens(call: Call) -> int:
    """Return the input and output tokens of all attempts."""
    used = spent(call)
    last = used.input + used.output
    if not call.failed_usage:
        return last
    return last + sum(attempt.tokens.input + attempt.tokens.output for attempt in attempts_before(call))


def add_failed_usage(call: Call, candidate: Candidate, tokens: TokenUsage | None, generated: int = 0) -> None:
    """Record the usage of a failed attempt: the upstream's count, or the output tokens that it generated."""
    if tokens is not None and tokens != NOTHING:
        call.failed_usage += (FailedUsage(candidate, tokens),)
    elif generated:
        call.failed_usage += (FailedUsage(candidate, TokenUsage(0, generated), estimated=True),)
