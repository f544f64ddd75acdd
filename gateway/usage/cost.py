"""The cost of a call in integer nano-dollars."""

from collections.abc import Iterable
from typing import Final

from gateway.core.call import Candidate, Price, TokenEstimate, TokenUsage

MILLION: Final = 1_000_000


FREE: Final = Price(0, 0, 0)


def cost(tokens: TokenUsage, price: Price) -> int | None:
    """Return the nano-dollars of these tokens, rounded up; None if there is output of unknown price.

    Reasoning tokens are part of the output.
    """
    if price is FREE:
        return 0
    total_input, cached, written = tokens.input, tokens.cached_input, tokens.cache_write
    if price.tiers:
        price = _tier_price(price, total_input)
    nanos = total_input * price.input
    if tokens.output:
        if price.output is None:
            return None
        nanos += tokens.output * price.output
    if cached:
        cached = min(cached, total_input)
        nanos += cached * (price.cached_input - price.input)
    if written:
        written = min(written, total_input - cached)
        long = min(tokens.cache_write_long, written)
        short_price = price.input if price.cache_write is None else price.cache_write
        long_price = short_price if price.cache_write_long is None else price.cache_write_long
        nanos += (written - long) * short_price + long * long_price - written * price.input
    return -(-nanos // MILLION)


def highest_cost(estimate: TokenEstimate, candidates: Iterable[Candidate]) -> tuple[int, int]:
    """Return the nano-dollars of this call at its most expensive candidate: of the input, and in total.

    An unknown price counts as 0. Discounts of the provider's cache are not predicted.
    """
    total_input, output, highest_input, highest_total = estimate.input, estimate.output, 0, 0
    for candidate in candidates:
        price = candidate.price
        if price is None:
            continue
        if price.tiers:
            price = _tier_price(price, total_input)
        nanos = total_input * price.input
        if nanos > highest_input:
            highest_input = nanos
        if output and price.output is None:
            continue
        nanos += output * (price.output or 0)
        if nanos > highest_total:
            highest_total = nanos
    return -(-highest_input // MILLION), -(-highest_total // MILLION)


def _tier_price(price: Price, total_input: int) -> Price:
    """Return the price that applies to this number of input tokens."""
    for tier in price.tiers:
        if total_input > tier.above:
            price = tier.price
    return price
