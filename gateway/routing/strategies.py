"""The routing strategies. Each orders the candidates: the first is picked, the rest are for retries."""

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random

from gateway.core.call import Candidate


def weighted(candidates: Sequence[Candidate], rng: Random) -> list[Candidate]:
    """Return a random order in which each is first in proportion to its weight; weight 0 comes last.

    Source: P. Efraimidis and P. Spirakis, "Weighted random sampling with a reservoir", 2006; keys as
    logarithms.
    """
    keyed = [
        (math.log(1.0 - rng.random()) / candidate.weight if candidate.weight else -math.inf, rng.random(), n)
        for n, candidate in enumerate(candidates)
    ]
    return [candidates[n] for _, _, n in sorted(keyed, reverse=True)]


def cheapest(
    candidates: Sequence[Candidate],
    costs: Sequence[int | None],
    first: Candidate | None,
    share: Callable[[Candidate], float],
    rng: Random,
) -> list[Candidate]:
    """Order by the call's expected cost; an unknown cost (None) comes last.

    Ties go to `first`, then to the less loaded candidate by `share`, then to a random one.
    """
    if len(candidates) == 1:
        return list(candidates)
    numbers = range(len(candidates))
    prices = [math.inf if nanos is None else nanos for nanos in costs]
    if len(set(prices)) == len(prices):
        return [candidates[n] for n in sorted(numbers, key=prices.__getitem__)]
    keyed = [(prices[n], candidates[n] is not first, share(candidates[n]), rng.random(), n) for n in numbers]
    return [candidates[n] for *_, n in sorted(keyed)]


def least_loaded(
    candidates: Sequence[Candidate],
    fullness: Sequence[float],
    last_picks: Mapping[Candidate, int],
    rng: Random,
) -> list[Candidate]:
    """Put the less loaded of two random candidates first, then the others by load.

    Ties go to the least recently picked (`last_picks`). Source: M. Mitzenmacher, "The power of two choices in
    randomized load balancing", 2001. Always picking the emptiest would send a whole burst there before the
    load shows.
    """
    keyed = [(fullness[n], last_picks.get(candidate, 0), n) for n, candidate in enumerate(candidates)]
    ranked = [candidates[n] for *_, n in sorted(keyed)]
    if len(keyed) > 2:
        first = int(rng.random() * len(keyed))
        second = int(rng.random() * (len(keyed) - 1))
        drawn = candidates[min(keyed[first], keyed[second + (second >= first)])[2]]
        ranked.remove(drawn)
        ranked.insert(0, drawn)
    return ranked
