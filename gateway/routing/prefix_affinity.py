"""Prefix affinity: which candidate was recently sent a prefix of a request, and probably still caches it."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from gateway.core.call import Candidate

MAX_ENTRIES: Final = 32_768
"""Number of recent requests in the map; about 8 MB."""

Replica = tuple[str, str]
"""A candidate's upstream and the model name sent to it; survives a reload of the config."""


class HashedPrefix(Protocol):
    """Hashes of a request's prefixes, shortest first; the last one covers the whole request."""

    @property
    def hashes(self) -> Sequence[int]:
        """Equal for equal prefixes of one caller."""

    @property
    def ends(self) -> Sequence[int]:
        """Length of each prefix."""

    @property
    def length(self) -> int:
        """Length of the whole request."""


class PrefixMatch(NamedTuple):
    """A replica, and the share of the request (0 to 1) that it has seen before."""

    replica: Replica
    share: float


class PrefixMap:
    """Bounded LRU map from the hash of a whole request to the replica that answered it."""

    __slots__ = ("_max_entries", "_replicas")

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._replicas: OrderedDict[int, Replica] = OrderedDict()

    def __len__(self) -> int:
        return len(self._replicas)

    def find(self, prefixes: HashedPrefix) -> PrefixMatch | None:
        """Return the replica that answered the longest of these prefixes."""
        replicas, hashes = self._replicas, prefixes.hashes
        for number in range(len(hashes) - 1, -1, -1):
            replica = replicas.get(hashes[number])
            if replica is not None:
                replicas.move_to_end(hashes[number])
                return PrefixMatch(replica, prefixes.ends[number] / prefixes.length)
        return None

    def note(self, hash: int, replica: Replica) -> None:
        """Record that this replica gets the request with this hash."""
        replicas = self._replicas
        replicas[hash] = replica
        replicas.move_to_end(hash)
        if len(replicas) > self._max_entries:
            replicas.popitem(last=False)


def replica_of(candidate: Candidate) -> Replica:
    """Return the candidate's replica."""
    return candidate.upstream, candidate.model


def candidate_at(replica: Replica, candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate with this replica."""
    upstream, model = replica
    for candidate in candidates:
        if candidate.upstream == upstream and candidate.model == model:
            return candidate
    return None
