"""A faithful fake of an engine's prefix cache: blocks of tokens, known by all that comes before them, LRU."""

from collections import OrderedDict

BLOCK = 16


class PrefixEngine:
    """Holds so many blocks. Counts as vLLM does: tokens asked for, and tokens found in the cache.

    Source: vLLM's `v1/core/kv_cache_utils.py` (hash of a block and its parent) and `kv_cache_manager.py`:
    only whole blocks are found, and never all of a prompt.
    """

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._held: OrderedDict[int, None] = OrderedDict()
        self.queries = 0
        self.hits = 0
        self.calls = 0

    def prefill(self, tokens: list[int]) -> None:
        """One request comes, and what it computes is kept."""
        self.calls += 1
        self.queries += len(tokens)
        chain, found, missed = 0, 0, False
        hashes = []
        for at in range(0, len(tokens) - BLOCK + 1, BLOCK):
            chain = hash((chain, *tokens[at : at + BLOCK]))
            hashes.append(chain)
            missed = missed or chain not in self._held or at + BLOCK >= len(tokens)
            found += 0 if missed else BLOCK
        self.hits += found
        for one in reversed(hashes):  # the ends of sequences are let go first
            self._held[one] = None
            self._held.move_to_end(one)
        while len(self._held) > self._blocks:
            self._held.popitem(last=False)
