"""The words of kept answers: what one is, and who keeps them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from gateway.core.call import TokenUsage


class CacheEntry(NamedTuple):
    """An answer, or one item of one, and what it took to make it.

    `cost` is in nano-dollars, None where the price is not known.
    """

    body: bytes
    tokens: TokenUsage
    cost: int | None


class CacheHit(NamedTuple):
    """An entry that is there; its age, and how long it will be kept from now on, in seconds."""

    entry: CacheEntry
    age: float
    left: float


class CacheUnavailable(Exception):
    """The store cannot be asked now."""


class CacheStore(Protocol):
    """Where answers are kept. `largest` is the most bytes of one that is taken."""

    largest: int

    async def get(self, keys: Sequence[bytes]) -> list[CacheHit | None]:
        """One for each key, in order. Raises Unreachable."""

    async def put(self, entries: Sequence[tuple[bytes, CacheEntry]], ttl: float) -> None:
        """Keep these for `ttl` seconds, if there is room. Raises Unreachable."""
