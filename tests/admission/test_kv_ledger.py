"""The ledger of an engine's KV cache: what fits, what is learned, and that nothing is ever left in it."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.admission.kv_ledger import FIRST_MARGIN, HIGHEST_MARGIN, LOWEST_MARGIN, KvDemand, KvLedger

BLOCK = 16


def ledger(capacity: int = 10_000) -> KvLedger:
    one = KvLedger()
    one.learn_capacity(capacity, BLOCK)
    return one


def call(one: KvLedger, prompt: int = 100, cap: int = 100, key: str = "a") -> KvDemand:
    return one.demand(key, "m", prompt, cap, capped=True)


def filled(one: KvLedger, now: float = 0.0, **fields: int) -> list[KvDemand]:
    """Calls that are admitted until one does not fit."""
    admitted = []
    while one.fits(demand := call(one, **fields), now):
        one.hold(demand, now)
        admitted.append(demand)
        assert len(admitted) < 100_000
    return admitted


def ended(one: KvLedger, demand: KvDemand, output: int | None, now: float) -> None:
    demand.output = output
    one.release(demand, now)


def test_everything_fits_while_the_capacity_is_unknown():
    one = KvLedger()
    for _ in range(1000):
        demand = call(one, 10**6)
        assert one.fits(demand, 0.0)
        one.hold(demand, 0.0)


def test_calls_fit_up_to_the_margin_of_the_cache():
    one = ledger()
    assert len(filled(one)) == int(FIRST_MARGIN * 10_000 / (100 + 100 + BLOCK))


def test_a_call_larger_than_the_cache_goes_alone_and_nothing_beside_it():
    one = ledger()
    large = call(one, 50_000)
    assert one.fits(large, 0.0)
    one.hold(large, 0.0)
    assert not one.fits(call(one, 1, 1), 0.0)


def test_short_calls_do_not_make_small_ones_wait_for_the_room_of_a_large_one():
    one = ledger()
    one.hold(call(one, 9000), 0.0)
    assert not one.fits(call(one, 1000), 0.0)
    assert one.fits(call(one, 100), 0.0)


def test_calls_that_end_at_different_times_share_the_room_of_their_outputs():
    one = ledger()
    for _ in range(20):  # it learns a rate of 100 tokens a second
        demand = call(one, 10, 400)
        one.hold(demand, 0.0)
        ended(one, demand, 400, 4.0)
    for _ in range(11):
        one.hold(call(one, 400, 400), 0.0)
    assert not one.fits(call(one, 400, 400), 0.0)
    # Three quarters of their outputs are there: they will have ended before the newcomer's grows long.
    assert one.fits(call(one, 400, 400), 3.0)


def test_the_output_of_a_key_is_learned():
    one = ledger()
    for _ in range(50):
        demand = call(one, 10, 1000)
        one.hold(demand, 0.0)
        ended(one, demand, 20, 0.2)
    assert call(one, 10, 1000).expected <= 25
    assert call(one, 10, 1000, key="b").expected == 1000
    assert one.demand("a", "other", 10, 1000, capped=True).expected == 1000


def test_a_call_that_outlives_its_expectation_holds_more_up_to_its_cap():
    one = ledger()
    for _ in range(50):
        demand = call(one, 10, 1000)
        one.hold(demand, 0.0)
        ended(one, demand, 20, 0.2)
    long = call(one, 10, 1000)
    one.hold(long, 0.0)
    before = long.expected
    assert one.tokens(3.0) == 10 + 300 + BLOCK
    assert long.expected > 300 > before
    one.tokens(1000.0)
    assert long.expected == 1000
    ended(one, long, 1000, 1000.0)
    assert (one.tokens(1000.0), len(one)) == (0, 0)


def test_preemptions_lower_the_margin_and_calm_raises_it_again():
    one = ledger()
    for second in range(100):
        one.learn_usage(9900, preempted=True, shared=False, waiting=True, now=float(second))
    assert one.margin == LOWEST_MARGIN
    for second in range(100, 200):
        one.learn_usage(5000, preempted=False, shared=False, waiting=True, now=float(second))
    assert one.margin == HIGHEST_MARGIN


def test_the_margin_stays_where_no_call_waits():
    one = ledger()
    for second in range(100):
        one.learn_usage(1000, preempted=False, shared=False, waiting=False, now=float(second))
    assert one.margin == FIRST_MARGIN


def test_other_clients_of_the_engine_take_room():
    one = ledger()
    one.learn_usage(5000, preempted=False, shared=True, waiting=False, now=0.0)
    assert len(filled(one)) == int((FIRST_MARGIN * 10_000 - 5000) / (100 + 100 + BLOCK))
    one.learn_usage(int(one.tokens(0.0)), preempted=False, shared=False, waiting=True, now=1.0)
    assert one.fits(call(one), 1.0)


def test_shared_prefixes_make_room_and_an_engine_that_needs_more_takes_it():
    shares, needs_more = ledger(), ledger()
    for one, part in ((shares, 0.5), (needs_more, 1.3)):
        count = len(filled(one))
        for second in range(60):
            one.learn_usage(int(part * one.tokens(0.0)), preempted=False, shared=False, waiting=False, now=second)
        more = len(filled(one))
        assert (more > 0.7 * count) == (part < 1)
        assert one.fits(call(one), 0.0) is False


def test_an_engine_that_restarts_with_a_smaller_cache_starts_anew():
    one = ledger()
    admitted = filled(one)
    for second in range(5):
        one.learn_usage(9900, preempted=True, shared=True, waiting=True, now=float(second))
    one.learn_capacity(5_000, 32)
    assert (one.margin, one.others) == (FIRST_MARGIN, 0)
    assert not one.fits(call(one), 5.0)
    for demand in admitted:
        ended(one, demand, None, 6.0)
    assert len(filled(one)) == int(FIRST_MARGIN * 5_000 / (100 + 100 + 32))


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_left_after_many_calls_that_end_in_any_way(seed: int):
    one, rng, now = ledger(50_000), Random(seed), 0.0
    open_calls: list[KvDemand] = []
    for _ in range(30_000):
        now += rng.expovariate(50.0)
        if open_calls and rng.random() < 0.5:
            demand = open_calls.pop(rng.randrange(len(open_calls)))
            ended(one, demand, rng.choice([None, 0, rng.randint(1, 4000)]), now)
            if rng.random() < 0.1:
                one.release(demand, now)  # a second time
        else:
            demand = one.demand(
                "ab"[rng.random() < 0.5], "m", rng.randint(1, 900), rng.choice([8, 300, 4000]), capped=True
            )
            if one.fits(demand, now):
                one.hold(demand, now)
                open_calls.append(demand)
        if rng.random() < 0.01:
            one.learn_usage(rng.randrange(50_000), preempted=rng.random() < 0.1, shared=False, waiting=True, now=now)
        if rng.random() < 0.001:
            one.learn_capacity(rng.choice([30_000, 50_000]), rng.choice([16, 32]))
    assert len(one) == len(open_calls)
    for demand in open_calls:
        ended(one, demand, None, now)
    assert (len(one), one.tokens(now), one._most) == (0, 0, 0)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 400)), min_size=1, max_size=60))
def test_admitted_calls_never_need_more_than_the_cache_when_they_answer_as_expected(sizes: list[tuple[int, int]]):
    one = ledger(4_000)
    one._rate = 10.0
    now, waiting, open_calls = 0.0, list(sizes), dict[KvDemand, float]()
    while waiting or open_calls:
        while waiting and one.fits(demand := call(one, *waiting[0]), now):
            one.hold(demand, now)
            open_calls[demand] = now
            waiting.pop(0)
        now += 0.1
        held = sum(
            each.prompt + min(each.expected, int((now - began) * 10.0 + 1e-6)) for each, began in open_calls.items()
        )
        assert held <= 4_000
        for each, began in list(open_calls.items()):
            if (now - began) * 10.0 + 1e-6 >= (each.cap or 0):
                del open_calls[each]
                one.release(each, now)  # nothing is learned, so that the expectation stays the cap


def test_a_call_that_does_not_fit_is_weighed_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch):
    one, weighed = ledger(), []
    peak = KvLedger._peak
    monkeypatch.setattr(KvLedger, "_peak", lambda self, *asked: weighed.append(1) or peak(self, *asked))
    admitted, last = filled(one), call(one)
    weighed.clear()
    assert not any(one.fits(last, 0.001 * step) for step in range(10))
    assert len(weighed) == 1
    ended(one, admitted[0], None, 0.01)
    assert one.fits(last, 0.01)
