"""Breaks the savings against the baseline down by cause."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from gateway.usage.savings import CANDIDATE, Alternative, Saving

EXACT_CACHE: Final = "exact_cache"
COALESCING: Final = "coalescing"
PREFIX_CACHE: Final = "provider_prefix_cache"
ROUTING: Final = "routing"
BATCH: Final = "batch"
FAILED_ATTEMPTS: Final = "failed_attempts"


class Part(NamedTuple):
    """One cause of savings, in nano-dollars; negative where it cost more."""

    name: str
    saved: int


class Single(NamedTuple):
    """The cheapest single candidate for all requests of a model, and its nano-dollars."""

    model: str
    name: str
    cost: int


def total(savings: Iterable[Saving]) -> Saving:
    """Return the sum, without names."""
    sums = [0] * len(Saving.__struct_fields__[4:])
    for saving in savings:
        sums = [a + b for a, b in zip(sums, msgspec.structs.astuple(saving)[4:], strict=True)]
    return Saving("", "", "", "", *sums)


def baseline(saving: Saving) -> int:
    """Return the nano-dollars of all compared requests at their baseline."""
    return saving.baseline + saving.hit_baseline + saving.shared_baseline


def actual(saving: Saving) -> int:
    """Return the nano-dollars that these requests have cost, failed attempts included."""
    return saving.paid + saving.waste


def parts(saving: Saving) -> list[Part]:
    """Return the difference between `baseline` and `actual` by cause, in a fixed order; the sum is exact.

    Merging calls changes neither tokens nor their price, so its part is always 0.
    """
    return [
        Part(EXACT_CACHE, saving.hit_baseline),
        Part(COALESCING, saving.shared_baseline),
        Part(PREFIX_CACHE, saving.plain - saving.paid),
        Part(ROUTING, saving.baseline - saving.plain),
        Part(BATCH, 0),
        Part(FAILED_ATTEMPTS, -saving.waste),
    ]


def best_singles(compared: Iterable[Saving], alternatives: Iterable[Alternative]) -> dict[str, Single | None]:
    """Return the best candidate by model; None if no candidate could have served all compared requests."""
    requests: dict[str, int] = defaultdict(int)
    for saving in compared:
        requests[saving.model] += saving.compared
    totals: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for alternative in alternatives:
        if alternative.role == CANDIDATE:
            sums = totals[alternative.model, alternative.name]
            sums[0] += alternative.requests
            sums[1] += alternative.cost
    best_by_model: dict[str, Single | None] = {model: None for model, count in requests.items() if count}
    for (model, name), (served, cost) in sorted(totals.items()):
        best = best_by_model.get(model)
        if model in best_by_model and served == requests[model] and (best is None or cost < best.cost):
            best_by_model[model] = Single(model, name, cost)
    return best_by_model
