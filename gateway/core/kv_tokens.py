"""The occupancy of an engine's KV cache."""

from typing import NamedTuple


class KvTokens(NamedTuple):
    """Tokens of an engine's KV cache: its size, what this gateway's ledger says it holds, and the engine's own figure.

    `engine` counts other clients of the engine too; it is None while the engine has told nothing.
    """

    capacity: int
    ledger: int
    engine: int | None
