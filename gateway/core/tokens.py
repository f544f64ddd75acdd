"""Token counts, token estimates and prices."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct


class Price(NamedTuple):
    """Nano-dollars per million tokens. A call with more than `tiers[n].above` input tokens has that price."""

    input: int
    output: int | None  # None: unknown, e.g. where a catalogue lists input prices only
    cached_input: int
    cache_write: int | None = None  # None: same as input
    cache_write_long: int | None = None  # None: same as cache_write
    tiers: "tuple[Tier, ...]" = ()  # sorted by `above`


class Tier(NamedTuple):
    """The price of every token of a call with more than `above` input tokens."""

    above: int
    price: Price


class TokenUsage(NamedTuple):
    """Tokens used by a call. `reasoning` is included in `output`; the cache counts are included in `input`.

    `cache_write` tokens were written to the provider's cache, `cache_write_long` of them with the longer
    lifetime.
    """

    input: int = 0
    output: int = 0
    cached_input: int = 0
    reasoning: int = 0
    cache_write: int = 0
    cache_write_long: int = 0


class TokenEstimate(Struct, frozen=True, gc=False):
    """Tokens that a call is expected to use, over all `choices` of its answer.

    `capped`: the client bounded the output itself. `weight` is the measure of the input.
    """

    input: int
    output: int
    capped: bool
    choices: int = 1
    weight: Sequence[int] = ()


class OutputCaps(NamedTuple):
    """Bounds of an answer.

    `output`: cap on the tokens of all choices together; None if the client set none. `choices`: number of
    generated answers, `returned`: of those in the answer. `stated`: the client has set the cap itself.
    """

    output: int | None
    choices: int
    returned: int = 1
    stated: bool = False


NO_OUTPUT: Final = OutputCaps(0, 1)
