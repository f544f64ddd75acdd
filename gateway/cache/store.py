"""The cache store's interface, and the entries it holds."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from gateway.core.call import TokenUsage


class CacheEntry(NamedTuple):
    """An answer, or one item of one, with the tokens it used.

    `cost` is in nano-dollars, None if the price is unknown.
    """

    body: bytes
    tokens: TokenUsage
    cost: int | None


class CacheHit(NamedTuple):
    """A stored entry, its age, and the time until it expires, in seconds."""

    entry: CacheEntry
    age: float
    expires_in: float


class CacheUnavailable(Exception):
    """The store is unreachable."""


class CacheStore(Protocol):
    """Holds answers. `largest` is the size limit of one entry in bytes."""

    largest: int

    @property
    def up(self) -> bool:
        """Whether it stores at the moment."""

    async def get(self, keys: Sequence[bytes]) -> list[CacheHit | None]:
        """Return one result per key, in order. Raises CacheUnavailable."""

    async def put(self, entries: Sequence[tuple[bytes, CacheEntry]], ttl: float) -> None:
        """Store these for `ttl` seconds, if they fit. Raises CacheUnavailable."""
