"""Who was sent what lately: which candidate is likely to hold the beginning of a request in its cache."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from gateway.core.call import Candidate

REMEMBERED: Final = 32_768
"""Requests that are remembered, the latest ones; about 8 MB."""

Replica = tuple[str, str]
"""A candidate's upstream and the model name sent to it: the same place after a reload, too."""


class HashedPrefix(Protocol):
    """Leading parts of a request, shortest first; the last one is the whole."""

    @property
    def hashes(self) -> Sequence[int]:
        """Equal for equal beginnings of one caller."""

    @property
    def ends(self) -> Sequence[int]:
        """How long each is."""

    @property
    def whole(self) -> int:
        """How long all of the request is."""


class PrefixMatch(NamedTuple):
    """A place, and the share of the request (0 to 1) that it has seen before."""

    place: Replica
    share: float


class PrefixMap:
    """Bounded memory from whole requests to the place that has answered them."""

    __slots__ = ("_bound", "_places")

    def __init__(self, bound: int = REMEMBERED) -> None:
        self._bound = bound
        self._places: OrderedDict[int, Replica] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def find(self, beginnings: HashedPrefix) -> PrefixMatch | None:
        """Who has answered the longest of these."""
        places, hashes = self._places, beginnings.hashes
        for number in range(len(hashes) - 1, -1, -1):
            place = places.get(hashes[number])
            if place is not None:
                places.move_to_end(hashes[number])
                return PrefixMatch(place, beginnings.ends[number] / beginnings.whole)
        return None

    def note(self, hash: int, place: Replica) -> None:
        """This place is sent the request whose whole has this hash."""
        places = self._places
        places[hash] = place
        places.move_to_end(hash)
        if len(places) > self._bound:
            places.popitem(last=False)


def place_of(candidate: Candidate) -> Replica:
    """The candidate's place."""
    return candidate.upstream, candidate.model


def at(place: Replica, candidates: Sequence[Candidate]) -> Candidate | None:
    """The candidate at this place."""
    upstream, model = place
    for one in candidates:
        if one.upstream == upstream and one.model == model:
            return one
    return None
