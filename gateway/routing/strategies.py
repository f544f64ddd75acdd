"""The orders in which a route prefers its candidates. The first one is picked, the others are for retries."""

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random

from gateway.core.call import Candidate


def weighted(candidates: Sequence[Candidate], rng: Random) -> list[Candidate]:
    """By chance, each first as often as its weight's part; those of weight 0 last.

    Source: P. Efraimidis and P. Spirakis, "Weighted random sampling with a reservoir", 2006; their keys as
    logarithms.
    """
    keyed = [
        (math.log(1.0 - rng.random()) / one.weight if one.weight else -math.inf, rng.random(), number)
        for number, one in enumerate(candidates)
    ]
    return [candidates[number] for _, _, number in sorted(keyed, reverse=True)]


def cheapest(
    candidates: Sequence[Candidate],
    costs: Sequence[int | None],
    first: Candidate | None,
    share: Callable[[Candidate], float],
    rng: Random,
) -> list[Candidate]:
    """By the dollars that this call is expected to cost; where they are not known (None) comes last.

    Of equally cheap ones `first` leads, then who is emptier by `share`, then chance.
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
    lately: Mapping[Candidate, int],
    rng: Random,
) -> list[Candidate]:
    """The emptier one of two that are drawn, then the others by how full they are.

    Among equals who was picked `lately` longest ago. Source: M. Mitzenmacher, "The power of two choices in
    randomized load balancing", 2001. To pick always the emptiest of all would send a whole wave there before
    it shows.
    """
    keyed = [(fullness[number], lately.get(one, 0), number) for number, one in enumerate(candidates)]
    ranked = [candidates[number] for *_, number in sorted(keyed)]
    if len(keyed) > 2:
        one = int(rng.random() * len(keyed))
        other = int(rng.random() * (len(keyed) - 1))
        drawn = candidates[min(keyed[one], keyed[other + (other >= one)])[2]]
        ranked.remove(drawn)
        ranked.insert(0, drawn)
    return ranked
