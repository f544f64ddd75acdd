"""For any requests: parts add up, days add up, and the rounded figures add up too."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.calls import make_call

from gateway.cli.report.rounding import Rounding
from gateway.core.call import Call, Candidate, FailedUsage, Price, Route, TokenUsage
from gateway.usage.cost import cost
from gateway.usage.savings import (
    Alternative,
    Saving,
    SavingsTotals,
    record_avoided,
    record_final,
    record_wasted,
)
from gateway.usage.savings_breakdown import actual, baseline, parts, total
from gateway.usage.store import summed

prices = st.builds(Price, *[st.integers(0, 10**10)] * 3, *[st.none() | st.integers(0, 10**10)] * 2, st.just(()))
candidates = st.builds(Candidate, st.sampled_from("abc"), st.sampled_from("xy"), st.just(b""), st.none() | prices)
tokens = st.builds(
    lambda whole, made, cached, written: TokenUsage(whole, made, min(cached, whole), 0, min(written, whole)),
    *[st.integers(0, 10**6)] * 4,
)
routes = st.lists(candidates, min_size=1, max_size=4).map(tuple)


@st.composite
def calls(draw: Any, days: tuple[str, ...] = ("2026-11-28", "2026-11-29")) -> tuple[Call, Candidate, TokenUsage]:
    call = make_call()
    pool = draw(routes)
    call.routing.route = Route(draw(st.sampled_from("mn")), b"", pool)
    call.usage.day = draw(st.sampled_from(days))
    call.response.outcome = draw(st.sampled_from(["ok", "ok", "ok", "client_gone", "truncated"]))
    call.batch_size = draw(st.integers(0, 5))
    earlier = draw(st.lists(st.tuples(st.sampled_from(pool), tokens), max_size=2))
    call.usage.failed = tuple(FailedUsage(*one) for one in earlier)
    call.usage.saved = draw(st.none() | tokens)
    call.cached_by = draw(st.sampled_from(["", "", "hit", "collapsed"]))
    return call, draw(st.sampled_from(pool)), draw(tokens)


def note(sums: SavingsTotals, call: Call, candidate: Candidate, used: TokenUsage) -> int:
    """As the layers do; gives the nano-dollars that are paid."""
    if call.cached_by:
        record_avoided(sums, call, "key", "cache")
        return 0
    spent = [FailedUsage(candidate, used), *call.usage.failed]
    costs = [None if one.candidate.price is None else cost(one.tokens, one.candidate.price) for one in spent]
    record_final(sums, call, "key", spent[0], costs[0])
    for one, nanos in zip(spent[1:], costs[1:], strict=True):
        record_wasted(sums, call, "key", one, nanos)
    return sum(nanos for nanos in costs if nanos is not None)


@settings(max_examples=300)
@given(st.lists(calls(), max_size=12))
def test_the_parts_add_up_to_baseline_minus_actual(made: list[tuple[Call, Candidate, TokenUsage]]):
    sums = SavingsTotals()
    paid = [note(sums, *one) for one in made]
    whole = total(sums.savings.values())
    assert sum(part.saved for part in parts(whole)) == baseline(whole) - actual(whole)
    assert actual(whole) <= sum(paid)
    assert whole.compared + whole.uncompared + whole.failed == len(made)
    declared = [one.cost for one in sums.alternatives.values() if one.role == "declared"]
    assert sum(declared) == baseline(whole)
    if not whole.uncompared:
        assert actual(whole) == sum(paid)


@given(st.lists(calls(), max_size=8), st.integers(0, 8))
def test_sums_are_the_same_however_they_were_written(made: list[tuple[Call, Candidate, TokenUsage]], cut: int):
    at_once, first, second = SavingsTotals(), SavingsTotals(), SavingsTotals()
    for number, one in enumerate(made):
        note(at_once, *one)
        note(first if number < cut else second, *one)
    together = [*first.savings.values(), *second.savings.values()]
    others = [*first.alternatives.values(), *second.alternatives.values()]
    assert _places(summed(Saving, together)) == _places(at_once.savings.values())
    assert _places(summed(Alternative, others)) == _places(at_once.alternatives.values())


@given(st.integers(0, 10**15), st.lists(st.integers(-(10**14), 10**14), max_size=8))
def test_rounded_figures_add_up(start: int, less: list[int]):
    money = Rounding(max([start, *map(abs, less)]))
    steps = list(money.steps(start, less))
    assert money.units(start) - sum(steps) == money.units(start - sum(less))
    assert all(abs(units - money.units(one)) <= 1 for units, one in zip(steps, less, strict=True))


def _places(entries: Any) -> list[tuple[Any, ...]]:
    return sorted(msgspec.structs.astuple(one) for one in entries)
