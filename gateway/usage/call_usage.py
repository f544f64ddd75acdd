"""What a call has used, attempt by attempt, also where its upstream did not say so."""

from collections.abc import Callable, Sequence
from typing import Final

from gateway.core.call import EMBEDDINGS, Call, Candidate, FailedUsage, TokenUsage
from gateway.usage.cost import FREE, cost
from gateway.wire.openai.usage_split import shares


def split_failed_usage(merged: Call, members: Sequence[Call], weights: Sequence[int]) -> None:
    """The members of a shared call pay for its failed attempts by these weights; sums stay what they were."""
    for one in merged.failed_usage if members else ():
        counts = zip(*(shares(count, weights) for count in one.tokens), strict=True)
        for member, count in zip(members, counts, strict=True):
            member.failed_usage += (FailedUsage(one.candidate, TokenUsage(*count), one.estimated),)
    merged.failed_usage = ()


def absorb_part_usage(call: Call, part: Call) -> None:
    """A call pays for what the attempts of one of its parts have used in vain."""
    call.failed_usage += part.failed_usage
    part.failed_usage = ()


def record_discarded(call: Call, answered: Sequence[Call]) -> None:
    """These answers, to parts of a call or to the call itself, are of no use to it."""
    for one in answered:
        if one.candidate is not None:
            wasted(call, one.candidate, one.tokens, one.generated)


def copy_estimated_note(call: Call, other: Call) -> None:
    """What is told of the answer's usage holds for this call too."""
    if ESTIMATED[0] in other.response_notes:
        call.response_notes[ESTIMATED[0]] = ESTIMATED[1]


NOTHING: Final = TokenUsage()
ESTIMATED: Final = ("x-sluice-usage", "estimated")
"""Header of an answer whose upstream told no usage."""


def charge(
    call: Call, tokens: TokenUsage | None, body: bytes, estimate: Callable[[Call], object] | None = None
) -> None:
    """A whole answer is there: note what its upstream counted and what the call costs, all attempts together.

    Without a count the output is judged by its size, and said to be; the input by `estimate`, which fills in
    `call.estimate`.
    """
    if tokens is not None and tokens.output and call.endpoint == EMBEDDINGS:
        tokens = tokens._replace(output=0)  # there is none: whatever it says would be billed
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
            _add_earlier(call, call.cost)


def _add_earlier(call: Call, last: int) -> None:
    """What earlier attempts cost belongs to the call. None of it is told where a part of it is not known."""
    earlier = [price_of(one) for one in attempts_before(call)]
    known = [one for one in earlier if one is not None]
    call.cost = last + sum(known) if len(known) == len(earlier) else None


def spent(call: Call) -> TokenUsage:
    """By its last attempt: the upstream's own count, or the input and what has passed of the output.

    Nothing is spent by a call that no upstream has answered, unless its client left while one was at work.
    """
    if call.tokens is not None:
        return call.tokens
    began = call.first_token_at or call.outcome == "ok"
    left = call.outcome == "client_gone" and call.sent_at
    if call.estimate is None or not (began or left):
        return NOTHING
    return TokenUsage(call.estimate.input, call.generated)


def attempts_before(call: Call) -> list[FailedUsage]:
    """What came to nothing and used something all the same, with the input where it was not known."""
    if call.estimate is None:
        return list(call.failed_usage)
    given = call.estimate.input
    return [
        one._replace(tokens=TokenUsage(one.tokens.input or given, one.tokens.output))
        if one.estimated
        else one
        for one in call.failed_usage
    ]


def price_of(one: FailedUsage) -> int | None:
    """Nano-dollars; None where the price is not known."""
    price = one.candidate.price
    return None if price is None else cost(one.tokens, price)


def all_tokens(call: Call) -> int:
    """What a call has used by all its attempts together, in and out."""
    used = spent(call)
    last = used.input + used.output
    if not call.failed_usage:
        return last
    return last + sum(one.tokens.input + one.tokens.output for one in attempts_before(call))


def wasted(call: Call, candidate: Candidate, tokens: TokenUsage | None, generated: int = 0) -> None:
    """This attempt came to nothing after the upstream had counted, or generated, something."""
    if tokens is not None and tokens != NOTHING:
        call.failed_usage += (FailedUsage(candidate, tokens),)
    elif generated:
        call.failed_usage += (FailedUsage(candidate, TokenUsage(0, generated), estimated=True),)
