"""What requests have cost, and what they would have cost otherwise: sums recorded as each request ends.

In nano-dollars, at the prices of that moment. The cost at another candidate assumes the same tokens and no
provider cache, because its answer and its cache hits are unknown.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.core.call import Call, Candidate, FailedUsage, Price, TokenUsage
from gateway.usage.call_usage import price_of
from gateway.usage.cost import cost

CANDIDATE: Final = "alone"
BASELINE: Final = "declared"
CALL_PARTS: Final = 1_000_000
"""`Saving.spared` counts upstream calls in millionths."""

_SERVED: Final = ("ok", "client_gone")
_RowKey = tuple[str, str, str, str]


class Saving(msgspec.Struct):
    """Sums of one day, key, public model and upstream; `cache` stands in if no upstream was needed.

    `compared`: served requests whose prices are all known. `uncompared`: other served requests. `failed`:
    requests that were not served. `elsewhere`: answered by another candidate than the baseline's.
    `baseline`, `plain` (without the provider's cache) and `paid`: costs of what upstreams answered.
    `waste`: cost of failed attempts. `cheapest`: cost of all compared requests at their cheapest candidate.
    `hit_*`, `shared_*`: answers from the cache, and from another request's upstream call. `merged`: requests
    in batches. `spared`: upstream calls avoided by them. Field names are column names of the stores.
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
    """What a model's requests of one day would have cost with one candidate for all of them.

    `role` is CANDIDATE for each candidate that could have served them, BASELINE for the baseline.
    """

    day: str
    model: str
    role: str
    name: str
    requests: int = 0
    cost: int = 0


class SavingsTotals:
    """The savings and alternatives since the last write."""

    def __init__(self) -> None:
        self.savings: dict[_RowKey, Saving] = {}
        self.alternatives: dict[_RowKey, Alternative] = {}
        self._by_candidate: dict[tuple[str, str, str, Candidate], Alternative] = {}

    def saving(self, day: str, key: str, model: str, upstream: str) -> Saving:
        """Return the entry of these names."""
        row_key = (day, key, model, upstream)
        saving = self.savings.get(row_key)
        if saving is None:
            saving = self.savings[row_key] = Saving(*row_key)
        return saving

    def alternative(self, day: str, model: str, role: str, name: str) -> Alternative:
        """Return the entry of these names."""
        row_key = (day, model, role, name)
        alternative = self.alternatives.get(row_key)
        if alternative is None:
            alternative = self.alternatives[row_key] = Alternative(*row_key)
        return alternative

    def add_alternative(self, candidate: Candidate, day: str, model: str, role: str, nanos: int) -> None:
        """Add one request at this candidate."""
        alternative = self._by_candidate.get((day, model, role, candidate))
        if alternative is None:
            alternative = self.alternative(day, model, role, candidate_name(candidate))
            self._by_candidate[day, model, role, candidate] = alternative
        alternative.requests += 1
        alternative.cost += nanos


def candidate_name(candidate: Candidate) -> str:
    """Return the name of a candidate among the alternatives."""
    return f"{candidate.upstream}/{candidate.model}" if candidate.upstream else candidate.model


def record_final(sums: SavingsTotals, call: Call, key: str, attempt: FailedUsage, paid: int | None) -> None:
    """Record the attempt that ended a call; it cost `paid`, None if unknown."""
    route, tokens, size = call.routing.route, attempt.tokens, call.batch_size
    saving = sums.saving(call.usage.day, key, route.name, attempt.candidate.upstream)
    if size > 1:
        saving.merged += 1
        saving.spared += CALL_PARTS * (size - 1) // size
    if paid is None:
        saving.unpriced_input += tokens.input
        saving.unpriced_output += tokens.output
    if call.response.outcome not in _SERVED:
        saving.failed += 1
        saving.waste += paid or 0
        return
    price, baseline = attempt.candidate.price, None
    if paid is not None and price is not None and _all_priced(call.usage.failed):
        baseline = _record_alternatives(sums, call, saving, tokens, call.usage.saved)
    if baseline is None or paid is None or price is None:
        saving.uncompared += 1
        return
    saving.elsewhere += attempt.candidate is not route.baseline
    saving.plain += _uncached_cost(tokens, price) or 0
    saving.paid += paid
    saving.baseline += baseline
    if call.usage.saved is not None and route.baseline is not None and route.baseline.price is not None:
        from_cache = _uncached_cost(call.usage.saved, route.baseline.price) or 0
        saving.baseline -= from_cache
        saving.hit_baseline += from_cache
        saving.hit_input += call.usage.saved.input
        saving.hit_output += call.usage.saved.output


def record_wasted(sums: SavingsTotals, call: Call, key: str, attempt: FailedUsage, paid: int | None) -> None:
    """Record a failed attempt that another one followed."""
    saving = sums.saving(call.usage.day, key, call.routing.route.name, attempt.candidate.upstream)
    if paid is None:
        saving.unpriced_input += attempt.tokens.input
        saving.unpriced_output += attempt.tokens.output
    else:
        saving.waste += paid


def record_avoided(sums: SavingsTotals, call: Call, key: str, upstream: str) -> None:
    """Record a call answered from the cache, or by another request's upstream call."""
    saved = call.usage.saved
    saving = sums.saving(call.usage.day, key, call.routing.route.name, upstream)
    if call.response.outcome != "ok" or saved is None:
        saving.failed += 1
        return
    baseline = _record_alternatives(sums, call, saving, saved, None)
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
    return not attempts or all(price_of(attempt) is not None for attempt in attempts)


def _uncached_cost(tokens: TokenUsage, price: Price) -> int | None:
    """Return the nano-dollars without the provider's cache; None if unknown."""
    if tokens.cached_input or tokens.cache_write:
        tokens = TokenUsage(tokens.input, tokens.output)
    return cost(tokens, price)


def _total_cost(used: TokenUsage, saved: TokenUsage | None, price: Price | None) -> int | None:
    """Return the cost of the tokens used plus those saved by the cache; None if unknown."""
    if price is None:
        return None
    nanos, from_cache = _uncached_cost(used, price), 0 if saved is None else _uncached_cost(saved, price)
    return None if nanos is None or from_cache is None else nanos + from_cache


def _record_alternatives(
    sums: SavingsTotals, call: Call, saving: Saving, used: TokenUsage, saved: TokenUsage | None
) -> int | None:
    """Record what these tokens cost at every candidate; return their cost at the baseline.

    None, with nothing recorded, if the price of the baseline or of every candidate is unknown.
    """
    route = call.routing.route
    if route.baseline is None:
        return None
    baseline = _total_cost(used, saved, route.baseline.price)
    if baseline is None:
        return None
    cheapest, day, model = -1, call.usage.day, route.name
    for candidate in call.routing.candidates or route.candidates:
        nanos = baseline if candidate is route.baseline else _total_cost(used, saved, candidate.price)
        if nanos is not None:
            sums.add_alternative(candidate, day, model, CANDIDATE, nanos)
            if nanos < cheapest or cheapest < 0:
                cheapest = nanos
    if cheapest < 0:
        return None
    sums.add_alternative(route.baseline, day, model, BASELINE, baseline)
    saving.compared += 1
    saving.cheapest += cheapest
    return baseline
