"""The words of money: prices, and the tokens that they are for."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct


class Price(NamedTuple):
    """Nano-dollars per million tokens. A call of more than `tiers[n].above` input tokens has that price."""

    input: int
    output: int | None  # None: not known, as of models that are listed with what they read only
    cached_input: int
    cache_write: int | None = None  # None: as input
    cache_write_long: int | None = None  # None: as cache_write
    tiers: "tuple[Tier, ...]" = ()  # by `above`


class Tier(NamedTuple):
    """The price of all tokens of a call whose input is longer than `above`."""

    above: int
    price: Price


class TokenUsage(NamedTuple):
    """What a call used. `reasoning` is a part of `output`, the rest are parts of `input`, none beside it.

    `cache_write` was written to the provider's cache, `cache_write_long` of it to be kept for longer.
    """

    input: int = 0
    output: int = 0
    cached_input: int = 0
    reasoning: int = 0
    cache_write: int = 0
    cache_write_long: int = 0


class TokenEstimate(Struct, frozen=True, gc=False):
    """Tokens that a call is expected to use, of all `choices` of its answer together.

    `capped` tells that the client set the output's bound itself; `weight` is what the input was judged by.
    """

    input: int
    output: int
    capped: bool
    choices: int = 1
    weight: Sequence[int] = ()
