"""What a request has cost, beside what it would have cost otherwise: noted at its end, and only added up.

Nano-dollars, by the prices of that moment. What another candidate would have cost is told of the same tokens
and without any provider's cache: nobody knows what it would have answered, nor what it would have kept.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.core.call import Call, Candidate, FailedUsage, Price, TokenUsage
from gateway.usage.call_usage import price_of
from gateway.usage.cost import cost

ALONE: Final = "alone"
DECLARED: Final = "declared"
SPARED: Final = 1_000_000
"""Parts of an upstream call in which `Saving.spared` counts."""

_SERVED: Final = ("ok", "client_gone")
_Place = tuple[str, str, str, str]


class Saving(msgspec.Struct):
    """Sums of one day, key, public model and upstream; of the upstream `cache` for what needed no upstream.

    `compared` requests were served and all their prices are known; `uncompared` ones were served, `failed`
    ones were not. `elsewhere` were not answered by the baseline's candidate. For what upstreams answered
    stand `baseline`, `plain` (there, without its cache) and `paid`; `waste` went to attempts in vain.
    `cheapest` is for all compared requests. `hit_` and `shared_` figures are of answers that were kept, or
    came with another request's upstream call. `merged` requests went in batches and `spared` upstream calls.
    """

    day: str
    key: str
    model: str
    upstream: str
    compared: int = 0
    uncompared: int = 0
    failed: int = 0
    elsewhere: int = 0
    baseline: int = 0
    cheapest: int = 0
    plain: int = 0
    paid: int = 0
    waste: int = 0
    hits: int = 0
    hit_input: int = 0
    hit_output: int = 0
    hit_baseline: int = 0
    shared: int = 0
    shared_input: int = 0
    shared_output: int = 0
    shared_baseline: int = 0
    merged: int = 0
    spared: int = 0
    unpriced_input: int = 0
    unpriced_output: int = 0


class Alternative(msgspec.Struct):
    """What requests for a model would have cost on one day with one candidate for all of them.

    `role` is ALONE for each candidate that could have served them, DECLARED for the baseline.
    """

    day: str
    model: str
    role: str
    name: str
    requests: int = 0
    cost: int = 0


class SavingsTotals:
    """Both, by what they are sums of."""

    def __init__(self) -> None:
        self.savings: dict[_Place, Saving] = {}
        self.alternatives: dict[_Place, Alternative] = {}
        self._of: dict[tuple[str, str, str, Candidate], Alternative] = {}

    def saving(self, day: str, key: str, model: str, upstream: str) -> Saving:
        """The one of this place."""
        place = (day, key, model, upstream)
        found = self.savings.get(place)
        if found is None:
            found = self.savings[place] = Saving(*place)
        return found

    def alternative(self, day: str, model: str, role: str, name: str) -> Alternative:
        """The one of this place."""
        place = (day, model, role, name)
        found = self.alternatives.get(place)
        if found is None:
            found = self.alternatives[place] = Alternative(*place)
        return found

    def with_all_at(self, candidate: Candidate, day: str, model: str, role: str) -> Alternative:
        """The one of this candidate."""
        found = self._of.get((day, model, role, candidate))
        if found is None:
            found = self.alternative(day, model, role, shown(candidate))
            self._of[day, model, role, candidate] = found
        return found


def shown(candidate: Candidate) -> str:
    """The name of an alternative."""
    return f"{candidate.upstream}/{candidate.model}" if candidate.upstream else candidate.model


def record_final(sums: SavingsTotals, call: Call, key: str, one: FailedUsage, paid: int | None) -> None:
    """The attempt that ended a call; it cost `paid`, None where that is not known."""
    route, tokens, size = call.route, one.tokens, call.batch_size
    if route is None:
        return
    saving = sums.saving(call.day, key, route.name, one.candidate.upstream)
    if size > 1:
        saving.merged += 1
        saving.spared += SPARED * (size - 1) // size
    if paid is None:
        saving.unpriced_input += tokens.input
        saving.unpriced_output += tokens.output
    if call.outcome not in _SERVED:
        saving.failed += 1
        saving.waste += paid or 0
        return
    price, otherwise = one.candidate.price, None
    if paid is not None and price is not None and _all_priced(call.failed_usage):
        otherwise = _note_otherwise(sums, call, saving, (tokens, call.saved))
    if otherwise is None or paid is None or price is None:
        saving.uncompared += 1
        return
    saving.elsewhere += one.candidate is not route.baseline
    saving.plain += _plain(tokens, price) or 0
    saving.paid += paid
    saving.baseline += otherwise
    if call.saved is not None and route.baseline is not None and route.baseline.price is not None:
        kept = _plain(call.saved, route.baseline.price) or 0
        saving.baseline -= kept
        saving.hit_baseline += kept
        saving.hit_input += call.saved.input
        saving.hit_output += call.saved.output


def record_wasted(sums: SavingsTotals, call: Call, key: str, one: FailedUsage, paid: int | None) -> None:
    """An attempt that another one followed."""
    if call.route is None:
        return
    saving = sums.saving(call.day, key, call.route.name, one.candidate.upstream)
    if paid is None:
        saving.unpriced_input += one.tokens.input
        saving.unpriced_output += one.tokens.output
    else:
        saving.waste += paid


def record_avoided(sums: SavingsTotals, call: Call, key: str, upstream: str) -> None:
    """A call whose answer was kept, or came with another one's upstream call."""
    saved = call.saved
    if call.route is None:
        return
    saving = sums.saving(call.day, key, call.route.name, upstream)
    if call.outcome != "ok" or saved is None:
        saving.failed += 1
        return
    baseline = _note_otherwise(sums, call, saving, (saved, None))
    if baseline is None:
        saving.uncompared += 1
    if call.cached_by == "hit":
        saving.hits += 1
        saving.hit_input += saved.input
        saving.hit_output += saved.output
        saving.hit_baseline += baseline or 0
    else:
        saving.shared += 1
        saving.shared_input += saved.input
        saving.shared_output += saved.output
        saving.shared_baseline += baseline or 0


def _all_priced(attempts: Sequence[FailedUsage]) -> bool:
    return not attempts or all(price_of(one) is not None for one in attempts)


def _plain(tokens: TokenUsage, price: Price) -> int | None:
    """Nano-dollars without the provider's cache; None where they are not known."""
    if tokens.cached_input or tokens.cache_write:
        tokens = TokenUsage(tokens.input, tokens.output)
    return cost(tokens, price)


def _together(used: TokenUsage, saved: TokenUsage | None, price: Price | None) -> int | None:
    """The same for both of these."""
    if price is None:
        return None
    nanos, kept = _plain(used, price), 0 if saved is None else _plain(saved, price)
    return None if nanos is None or kept is None else nanos + kept


def _note_otherwise(
    sums: SavingsTotals, call: Call, saving: Saving, parts: tuple[TokenUsage, TokenUsage | None]
) -> int | None:
    """Enter what these tokens cost elsewhere; gives what they cost with the baseline.

    None, and nothing is entered, where the baseline's price is not known, or no candidate's.
    """
    route = call.route
    if route is None or route.baseline is None:
        return None
    used, saved = parts
    baseline = _together(used, saved, route.baseline.price)
    if baseline is None:
        return None
    cheapest, day, model = -1, call.day, route.name
    for one in call.candidates or route.candidates:
        nanos = baseline if one is route.baseline else _together(used, saved, one.price)
        if nanos is not None:
            alone = sums.with_all_at(one, day, model, ALONE)
            alone.requests += 1
            alone.cost += nanos
            if nanos < cheapest or cheapest < 0:
                cheapest = nanos
    if cheapest < 0:
        return None
    declared = sums.with_all_at(route.baseline, day, model, DECLARED)
    declared.requests += 1
    declared.cost += baseline
    saving.compared += 1
    saving.cheapest += cheapest
    return baseline
