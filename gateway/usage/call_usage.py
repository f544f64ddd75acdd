"""A call's usage, attempt by attempt, estimated where the upstream reported none."""

from collections.abc import Callable, Sequence
from typing import Final

from gateway.core.call import Call, Candidate, FailedUsage, TokenUsage
from gateway.usage.cost import FREE, cost
from gateway.wire.openai.usage_split import shares


def split_failed_usage(merged: Call, members: Sequence[Call], weights: Sequence[int]) -> None:
    """Split the failed attempts of a merged call among its members by weight; the sums stay exact."""
    for attempt in merged.usage.failed if members else ():
        counts = zip(*(shares(count, weights) for count in attempt.tokens), strict=True)
        for member, count in zip(members, counts, strict=True):
            member.usage.failed += (FailedUsage(attempt.candidate, TokenUsage(*count), attempt.estimated),)
    merged.usage.failed = ()


def absorb_part_usage(call: Call, part: Call) -> None:
    """Move the failed usage of one part of a call to the call itself."""
    call.usage.failed += part.usage.failed
    part.usage.failed = ()


def record_discarded(call: Call, answered: Sequence[Call]) -> None:
    """Charge answers to parts of a call, or to the call itself, that it cannot use."""
    for part in answered:
        add_failed_usage(call, part.routing.candidate, part.usage.tokens, part.usage.generated)


def copy_estimated_note(call: Call, source: Call) -> None:
    """Copy the header that marks estimated usage."""
    if ESTIMATED[0] in source.response.notes:
        call.response.notes[ESTIMATED[0]] = ESTIMATED[1]


NOTHING: Final = TokenUsage()
ESTIMATED: Final = ("x-sluice-usage", "estimated")
"""Header of an answer whose upstream reported no usage."""


def charge(
    call: Call, tokens: TokenUsage | None, body: bytes, estimate: Callable[[Call], object] | None = None
) -> None:
    """Set the usage and cost of a call with a complete answer; the cost includes failed attempts.

    Without reported `tokens`, the output is estimated from the body's size and marked so, and the input by
    `estimate`, which fills in `call.usage.estimate`.
    """
    if tokens is not None and tokens.output and not call.request.endpoint.generates:
        tokens = tokens._replace(output=0)  # embeddings have no output, whatever the upstream reports
    call.usage.tokens = tokens
    price = call.routing.candidate.price
    if tokens is None:
        call.usage.generated = len(body) // 4 if call.request.endpoint.generates else 0
        call.response.notes[ESTIMATED[0]] = ESTIMATED[1]
        if estimate is not None and call.usage.estimate is None and price not in (None, FREE):
            estimate(call)
        tokens = TokenUsage(call.usage.estimate.input if call.usage.estimate is not None else 0, call.usage.generated)
    if price is not None:
        call.usage.cost = cost(tokens, price)
        if call.usage.failed and call.usage.cost is not None:
            _add_failed_attempts(call, call.usage.cost)


def _add_failed_attempts(call: Call, last: int) -> None:
    """Set the cost to that of all attempts; None if one of them has no known price."""
    earlier = [price_of(attempt) for attempt in attempts_before(call)]
    priced = [nanos for nanos in earlier if nanos is not None]
    call.usage.cost = last + sum(priced) if len(priced) == len(earlier) else None


def spent(call: Call) -> TokenUsage:
    """Return the usage of the last attempt: the upstream's count, or the estimated input and relayed output.

    A call that no upstream answered has used nothing, unless its client left while the upstream was working.
    """
    if call.usage.tokens is not None:
        return call.usage.tokens
    began = call.timing.first_token_at or call.response.outcome == "ok"
    left = call.response.outcome == "client_gone" and call.timing.sent_at
    if call.usage.estimate is None or not (began or left):
        return NOTHING
    return TokenUsage(call.usage.estimate.input, call.usage.generated)


def attempts_before(call: Call) -> list[FailedUsage]:
    """Return the usage of the failed attempts, with the estimated input where none was counted."""
    if call.usage.estimate is None:
        return list(call.usage.failed)
    estimated_input = call.usage.estimate.input
    return [
        attempt._replace(tokens=TokenUsage(attempt.tokens.input or estimated_input, attempt.tokens.output))
        if attempt.estimated
        else attempt
        for attempt in call.usage.failed
    ]


def price_of(attempt: FailedUsage) -> int | None:
    """Return the attempt's nano-dollars; None if its price is unknown."""
    price = attempt.candidate.price
    return None if price is None else cost(attempt.tokens, price)


def all_tokens(call: Call) -> int:
    """Return the input and output tokens of all attempts."""
    used = spent(call)
    last = used.input + used.output
    if not call.usage.failed:
        return last
    return last + sum(attempt.tokens.input + attempt.tokens.output for attempt in attempts_before(call))


def add_failed_usage(call: Call, candidate: Candidate, tokens: TokenUsage | None, generated: int = 0) -> None:
    """Record the usage of a failed attempt: the upstream's count, or the output tokens that it generated."""
    if tokens is not None and tokens != NOTHING:
        call.usage.failed += (FailedUsage(candidate, tokens),)
    elif generated:
        call.usage.failed += (FailedUsage(candidate, TokenUsage(0, generated), estimated=True),)
