"""What attempts for several callers, or for parts of one call, have used in vain: who pays for it."""

from collections.abc import Sequence

from gateway.call import Call, Spent, Tokens
from gateway.policy.spending import ESTIMATED, wasted
from gateway.wire.usage_shares import shares


def share_out(merged: Call, members: Sequence[Call], weights: Sequence[int]) -> None:
    """The members of a shared call pay for its failed attempts by these weights; sums stay what they were."""
    for one in merged.spent_before if members else ():
        counts = zip(*(shares(count, weights) for count in one.tokens), strict=True)
        for member, count in zip(members, counts, strict=True):
            member.spent_before += (Spent(one.candidate, Tokens(*count), one.estimated),)
    merged.spent_before = ()


def take_over(call: Call, part: Call) -> None:
    """A call pays for what the attempts of one of its parts have used in vain."""
    call.spent_before += part.spent_before
    part.spent_before = ()


def discarded(call: Call, answered: Sequence[Call]) -> None:
    """These answers, to parts of a call or to the call itself, are of no use to it."""
    for one in answered:
        if one.candidate is not None:
            wasted(call, one.candidate, one.tokens, one.generated)


def tell_estimated(call: Call, other: Call) -> None:
    """What is told of the answer's usage holds for this call too."""
    if ESTIMATED[0] in other.notes:
        call.notes[ESTIMATED[0]] = ESTIMATED[1]
