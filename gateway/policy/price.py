"""What a call costs, in integer nano-dollars."""

from collections.abc import Iterable
from typing import Final

from gateway.call import Candidate, Estimate, Price, Tokens

MILLION: Final = 1_000_000


FREE: Final = Price(0, 0, 0)


def cost(tokens: Tokens, price: Price) -> int:
    """Nano-dollars for these tokens, rounded up: a fraction is never given away."""
    cached = min(tokens.cached_input, tokens.input)
    whole = (tokens.input - cached) * price.input + cached * price.cached_input + tokens.output * price.output
    return -(-whole // MILLION)


def most(estimate: Estimate, candidates: Iterable[Candidate]) -> int:
    """Nano-dollars for this call with the dearest of these candidates; an unknown price counts as 0."""
    tokens = Tokens(estimate.input, estimate.output)
    return max((cost(tokens, one.price) for one in candidates if one.price is not None), default=0)
