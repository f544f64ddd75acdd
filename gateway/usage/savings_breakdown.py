"""From the notes on requests to one comparison: what was saved against the baseline, and by what."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from gateway.usage.savings import ALONE, Alternative, Saving

EXACT_CACHE: Final = "exact_cache"
COALESCING: Final = "coalescing"
PREFIX_CACHE: Final = "provider_prefix_cache"
ROUTING: Final = "routing"
BATCH: Final = "batch"
WASTE: Final = "attempts_in_vain"


class Part(NamedTuple):
    """One reason why less was paid, in nano-dollars; more was paid where it is below 0."""

    name: str
    saved: int


class Single(NamedTuple):
    """The candidate that would have been cheapest for all requests of a model, and its nano-dollars."""

    model: str
    name: str
    cost: int


def total(savings: Iterable[Saving]) -> Saving:
    """All of them in one, without names."""
    sums = [0] * len(Saving.__struct_fields__[4:])
    for one in savings:
        sums = [a + b for a, b in zip(sums, msgspec.structs.astuple(one)[4:], strict=True)]
    return Saving("", "", "", "", *sums)


def baseline(one: Saving) -> int:
    """Nano-dollars for all compared requests with their declared baseline."""
    return one.baseline + one.hit_baseline + one.shared_baseline


def actual(one: Saving) -> int:
    """Nano-dollars that these requests have cost, attempts in vain included."""
    return one.paid + one.waste


def parts(one: Saving) -> list[Part]:
    """What lies between the two, in a fixed order. Its sum is `baseline` less `actual`, exactly.

    Merging calls changes no token and no price of a token, so that its part is always 0.
    """
    return [
        Part(EXACT_CACHE, one.hit_baseline),
        Part(COALESCING, one.shared_baseline),
        Part(PREFIX_CACHE, one.plain - one.paid),
        Part(ROUTING, one.baseline - one.plain),
        Part(BATCH, 0),
        Part(WASTE, -one.waste),
    ]


def best_singles(compared: Iterable[Saving], alternatives: Iterable[Alternative]) -> dict[str, Single | None]:
    """By model; None where no candidate could have served each of its compared requests."""
    requests: dict[str, int] = defaultdict(int)
    for one in compared:
        requests[one.model] += one.compared
    alone: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for other in alternatives:
        if other.role == ALONE:
            sums = alone[other.model, other.name]
            sums[0] += other.requests
            sums[1] += other.cost
    found: dict[str, Single | None] = {model: None for model, count in requests.items() if count}
    for (model, name), (served, cost) in sorted(alone.items()):
        best = found.get(model)
        if model in found and served == requests[model] and (best is None or cost < best.cost):
            found[model] = Single(model, name, cost)
    return found
