"""The savings recorded for one request, in numbers that can be checked by hand."""

from typing import Any

import pytest
from kit.calls import make_call

from gateway.core.call import Call, Candidate, FailedUsage, Price, Route, TokenUsage
from gateway.usage.cost import cost
from gateway.usage.savings import (
    BASELINE,
    CALL_PARTS,
    CANDIDATE,
    Saving,
    SavingsTotals,
    record_avoided,
    record_final,
    record_wasted,
)

DAY = "2026-11-29"
DEAR = Candidate("dear", "large", b"", Price(3_000_000, 15_000_000, 300_000, 3_750_000))
CHEAP = Candidate("cheap", "small", b"", Price(1_000_000, 2_000_000, 1_000_000))
UNKNOWN = Candidate("cheap", "new", b"")
FIELDS = Saving.__struct_fields__[4:]


def over(route: tuple[Candidate, ...] = (DEAR, CHEAP), outcome: str = "ok", **more: Any) -> Call:
    """A finished call."""
    return make_call(**{"route": Route("m", b'"m"', route), "outcome": outcome, "day": DAY, **more})


def last(call: Call, candidate: Candidate, tokens: TokenUsage, sums: SavingsTotals | None = None) -> dict[str, int]:
    """What the last attempt recorded, without zeros."""
    sums = sums or SavingsTotals()
    paid = None if candidate.price is None else cost(tokens, candidate.price)
    record_final(sums, call, "team-a", FailedUsage(candidate, tokens), paid)
    return recorded(sums.saving(DAY, "team-a", "m", candidate.upstream))


def recorded(saving: Saving) -> dict[str, int]:
    return {name: number for name in FIELDS if (number := getattr(saving, name))}


def alternatives(sums: SavingsTotals) -> dict[tuple[str, str], tuple[int, int]]:
    return {(one.role, one.name): (one.requests, one.cost) for one in sums.alternatives.values()}


def test_a_call_is_compared_with_the_baseline_the_cheapest_and_each_single_candidate():
    sums = SavingsTotals()
    assert last(over(), CHEAP, TokenUsage(100, 10), sums) == {
        "compared": 1, "elsewhere": 1, "baseline": 450, "cheapest": 120, "plain": 120, "paid": 120,
    }  # fmt: skip
    assert alternatives(sums) == {
        (CANDIDATE, "dear/large"): (1, 450),
        (CANDIDATE, "cheap/small"): (1, 120),
        (BASELINE, "dear/large"): (1, 450),
    }


def test_provider_cache_discounts_and_surcharges_are_separate():
    read = last(over(), DEAR, TokenUsage(100, 10, cached_input=80))
    assert (read["baseline"], read["plain"], read["paid"]) == (450, 450, 450 - 80 * 3 + 24)
    assert "elsewhere" not in read
    written = last(over(), DEAR, TokenUsage(100, 10, cache_write=80))
    assert written["paid"] - written["plain"] == 60


def test_a_declared_price_belongs_to_no_candidate():
    call, sums = over((CHEAP,)), SavingsTotals()
    assert call.routing.route
    call.routing.route.baseline = Candidate("", "10 in, 10 out", b"", Price(10_000_000, 10_000_000, 10_000_000))
    found = last(call, CHEAP, TokenUsage(100, 10), sums)
    assert (found["baseline"], found["cheapest"], found["elsewhere"]) == (1100, 120, 1)
    assert alternatives(sums)[BASELINE, "10 in, 10 out"] == (1, 1100)


def test_only_candidates_that_could_serve_the_call_are_alternatives():
    sums = SavingsTotals()
    found = last(over(candidates=(DEAR,)), DEAR, TokenUsage(100, 10), sums)
    assert found["cheapest"] == 450
    assert (CANDIDATE, "cheap/small") not in alternatives(sums)


def test_cached_answers_and_shared_calls_save_what_they_would_have_cost():
    saved = TokenUsage(100, 10, cached_input=80)
    for how, fields in (("hit", ("hits", "hit")), ("collapsed", ("shared", "shared"))):
        sums = SavingsTotals()
        record_avoided(sums, over(cached_by=how, saved=saved), "team-a", "cache")
        count, prefix = fields
        assert recorded(sums.saving(DAY, "team-a", "m", "cache")) == {
            "compared": 1, "cheapest": 120, count: 1, f"{prefix}_input": 100, f"{prefix}_output": 10,
            f"{prefix}_baseline": 450,
        }  # fmt: skip


def test_a_partly_cached_list_is_one_request_with_both_parts():
    sums = SavingsTotals()
    assert last(over(saved=TokenUsage(50)), CHEAP, TokenUsage(100), sums) == {
        "compared": 1, "elsewhere": 1, "baseline": 300, "cheapest": 150, "plain": 100, "paid": 100,
        "hit_input": 50, "hit_baseline": 150,
    }  # fmt: skip
    assert alternatives(sums)[BASELINE, "dear/large"] == (1, 450)


def test_a_cached_answer_that_reached_nobody_saved_nothing():
    sums = SavingsTotals()
    call = over(outcome="client_gone", cached_by="hit", saved=TokenUsage(100, 10))
    record_avoided(sums, call, "team-a", "cache")
    assert recorded(sums.saving(DAY, "team-a", "m", "cache")) == {"failed": 1}


@pytest.mark.parametrize("outcome", ["truncated", "upstream_error", "limited"])
def test_an_unserved_call_is_waste_without_a_baseline(outcome: str):
    assert last(over(outcome=outcome), DEAR, TokenUsage(100, 10)) == {"failed": 1, "waste": 450}


def test_a_client_that_left_is_compared_by_the_relayed_part_of_the_answer():
    assert last(over(outcome="client_gone"), CHEAP, TokenUsage(100, 5))["baseline"] == 375


@pytest.mark.parametrize(
    ("route", "candidate"),
    [((DEAR, UNKNOWN), UNKNOWN), ((UNKNOWN, CHEAP), CHEAP)],
    ids=["its own price", "the baseline's"],
)
def test_without_a_price_nothing_is_compared(route: tuple[Candidate, ...], candidate: Candidate):
    sums = SavingsTotals()
    found = last(over(route), candidate, TokenUsage(100, 10), sums)
    unpriced = {"unpriced_input": 100, "unpriced_output": 10} if candidate is UNKNOWN else {}
    assert found == {"uncompared": 1, **unpriced}
    assert sums.alternatives == {}


def test_failed_attempts_are_waste_at_their_upstream():
    sums = SavingsTotals()
    earlier = (FailedUsage(DEAR, TokenUsage(100, 1)),)
    last(over(failed=earlier), CHEAP, TokenUsage(100, 10), sums)
    record_wasted(sums, over(), "team-a", earlier[0], 315)
    assert recorded(sums.saving(DAY, "team-a", "m", "dear")) == {"waste": 315}
    assert recorded(sums.saving(DAY, "team-a", "m", "cheap"))["compared"] == 1


def test_a_failed_attempt_of_unknown_price_excludes_its_call():
    sums = SavingsTotals()
    earlier = FailedUsage(UNKNOWN, TokenUsage(100, 1))
    found = last(over(failed=(earlier,)), DEAR, TokenUsage(100, 10), sums)
    record_wasted(sums, over(), "team-a", earlier, None)
    assert found == {"uncompared": 1}
    assert recorded(sums.saving(DAY, "team-a", "m", "cheap")) == {"unpriced_input": 100, "unpriced_output": 1}


def test_merged_calls_count_the_avoided_upstream_calls():
    sums = SavingsTotals()
    for _ in range(3):
        last(over(batch_size=3), CHEAP, TokenUsage(10, 1), sums)
    found = sums.saving(DAY, "team-a", "m", "cheap")
    assert (found.merged, round(found.spared / CALL_PARTS)) == (3, 2)
