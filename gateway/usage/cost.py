"""What a call costs, in integer nano-dollars."""

from collections.abc import Iterable
from typing import Final

from gateway.core.call import Candidate, Price, TokenEstimate, TokenUsage

MILLION: Final = 1_000_000


FREE: Final = Price(0, 0, 0)


def cost(tokens: TokenUsage, price: Price) -> int | None:
    """Nano-dollars for these tokens, rounded up: a fraction is never given away.

    Reasoning is output like any other. None where there is output, and its price is not known.
    """
    if price is FREE:
        return 0
    given, cached, written = tokens.input, tokens.cached_input, tokens.cache_write
    if price.tiers:
        price = _of_tier(price, given)
    whole = given * price.input
    if tokens.output:
        if price.output is None:
            return None
        whole += tokens.output * price.output
    if cached:
        cached = min(cached, given)
        whole += cached * (price.cached_input - price.input)
    if written:
        written = min(written, given - cached)
        long = min(tokens.cache_write_long, written)
        short_price = price.input if price.cache_write is None else price.cache_write
        long_price = short_price if price.cache_write_long is None else price.cache_write_long
        whole += (written - long) * short_price + long * long_price - written * price.input
    return -(-whole // MILLION)


def most(estimate: TokenEstimate, candidates: Iterable[Candidate]) -> tuple[int, int]:
    """Nano-dollars for this call with the dearest of these candidates: for its input, and for all of it.

    An unknown price counts as 0. What the provider's cache may change of it is not foreseen.
    """
    given, output, firm, whole = estimate.input, estimate.output, 0, 0
    for one in candidates:
        price = one.price
        if price is None:
            continue
        if price.tiers:
            price = _of_tier(price, given)
        nanos = given * price.input
        if nanos > firm:
            firm = nanos
        if output and price.output is None:
            continue
        nanos += output * (price.output or 0)
        if nanos > whole:
            whole = nanos
    return -(-firm // MILLION), -(-whole // MILLION)


def _of_tier(price: Price, given: int) -> Price:
    """The price of a call with so many input tokens."""
    for tier in price.tiers:
        if given > tier.above:
            price = tier.price
    return price
