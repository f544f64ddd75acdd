"""When an upstream is left alone, and how it comes back; case by case."""

from random import Random

import pytest

from gateway.resilience.circuit_breaker import CLOSED, HALF_OPEN, HEALTHY_S, OPEN, CircuitBreaker


class Middle(Random):
    """Draws the middle of every range, so that lengths are exact."""

    def random(self) -> float:
        return 0.5


def breaker(failures: int = 5, open_s: float = 5.0, max_open_s: float = 60.0) -> CircuitBreaker:
    return CircuitBreaker(failures, open_s, max_open_s, Middle())


def fail(it: CircuitBreaker, now: float, times: int = 1) -> None:
    for _ in range(times):
        it.record("failure", now, admitted(it, now))


def admitted(it: CircuitBreaker, now: float, last_resort: bool = False) -> int:
    ticket = it.acquire(now, last_resort)
    assert ticket
    return ticket


def opened(now: float = 100.0) -> CircuitBreaker:
    it = breaker()
    fail(it, now, 5)
    assert it.state(now) == OPEN
    return it


def test_failures_in_a_row_open_it():
    it = breaker()
    fail(it, 100.0, 4)
    it.record("success", 100.0, admitted(it, 100.0))
    fail(it, 100.0, 4)
    assert it.state(100.0) == CLOSED
    fail(it, 100.0)
    assert it.state(100.0) == OPEN
    assert not it.acquire(104.9)


def test_an_outcome_of_none_neither_fails_nor_heals():
    it = breaker()
    fail(it, 100.0, 4)
    for _ in range(30):
        it.record("none", 100.0, admitted(it, 100.0))
    assert it.state(100.0) == CLOSED
    fail(it, 100.0)
    assert it.state(100.0) == OPEN


@pytest.mark.parametrize(("pairs", "state"), [(9, CLOSED), (10, OPEN)])
def test_half_of_twenty_attempts_open_it(pairs: int, state: int):
    it = breaker()
    for _ in range(pairs):
        it.record("success", 100.0, admitted(it, 100.0))
        fail(it, 100.0)
    assert it.state(100.0) == state


def test_failures_of_ten_seconds_ago_do_not_count():
    it = breaker()
    for second in range(100, 200, 2):
        it.record("success", second, admitted(it, second))
        fail(it, second)
    assert it.state(200.0) == CLOSED


def test_one_failure_in_three_does_not_open_it():
    it = breaker()
    for _ in range(100):
        it.record("success", 100.0, admitted(it, 100.0))
        it.record("success", 100.0, admitted(it, 100.0))
        fail(it, 100.0)
    assert it.state(100.0) == CLOSED


def test_one_probe_at_a_time():
    it = opened()
    assert it.state(105.0) == HALF_OPEN
    probe = admitted(it, 105.0)
    assert not it.acquire(105.0)
    assert not it.acquire(900.0)
    it.record("success", 900.0, probe)
    assert it.state(900.0) == CLOSED


def test_a_probe_with_an_outcome_of_none_is_returned():
    it = opened()
    it.record("none", 105.0, admitted(it, 105.0))
    assert it.acquire(105.0)


def test_each_failed_probe_doubles_the_time_up_to_the_longest():
    it, now, lengths = opened(), 100.0, []
    for _ in range(6):
        length = next(tenth / 10 for tenth in range(1000) if it.state(now + tenth / 10) == HALF_OPEN)
        lengths.append(length)
        now += length
        it.record("failure", now, admitted(it, now))
    assert lengths == pytest.approx([5, 10, 20, 40, 54, 54], abs=0.11)  # 54: between 80 % and all of 60


def test_times_differ_from_gateway_to_gateway():
    fleet = [CircuitBreaker(1, 100.0, 100.0, Random(seed)) for seed in range(20)]
    for one in fleet:
        fail(one, 100.0)
    back = [next(at for at in range(100, 300) if one.state(at) == HALF_OPEN) for one in fleet]
    assert 180 <= min(back) < max(back) <= 200
    assert len(set(back)) > 10


@pytest.mark.parametrize(("well_s", "length"), [(HEALTHY_S - 1, 10.0), (HEALTHY_S, 5.0)])
def test_the_past_is_forgotten_after_half_a_minute_of_health(well_s: float, length: float):
    it = opened()
    it.record("success", 105.0, admitted(it, 105.0))
    now = 105.0 + well_s
    for _ in range(5):
        it.record("failure", now, admitted(it, now, last_resort=True))
    assert it.state(now + length - 0.1) == OPEN
    assert it.state(now + length + 0.1) == HALF_OPEN


def test_after_closing_the_calls_come_back_slowly():
    it = CircuitBreaker(1, 5.0, 60.0, Random(1))
    fail(it, 100.0)
    it.record("success", 110.0, admitted(it, 110.0))
    shares = [sum(it.acquire(110.0 + s) > 0 for _ in range(2000)) / 2000 for s in (0.0, 15.0, 29.0, 30.0)]
    assert shares == pytest.approx([0.1, 0.55, 0.97, 1.0], abs=0.04)
    assert all(it.acquire(110.0, last_resort=True) for _ in range(100))


def test_a_process_starts_at_full_speed():
    it = CircuitBreaker(5, 5.0, 60.0, Random(1))
    assert all(it.acquire(0.0) for _ in range(100))


# Calls that set out before the last change.


def test_a_late_failure_does_not_open_what_a_probe_has_closed():
    it = breaker()
    late = [admitted(it, 100.0) for _ in range(20)]
    fail(it, 100.0, 5)
    it.record("success", 105.0, admitted(it, 105.0))
    for ticket in late:
        it.record("failure", 106.0, ticket)
    assert it.state(106.0) == CLOSED


@pytest.mark.parametrize("outcome", ["success", "failure", "none"])
def test_a_late_call_is_not_taken_for_the_probe(outcome: str):
    it = breaker()
    late = admitted(it, 100.0)
    fail(it, 100.0, 5)
    admitted(it, 105.0)
    it.record(outcome, 105.0, late)
    assert it.state(105.0) == HALF_OPEN
    assert not it.acquire(105.0)


def test_a_probe_overtaken_by_another_success_is_not_taken_for_the_next_probe():
    it = opened()
    first = admitted(it, 105.0)
    it.record("success", 106.0, admitted(it, 106.0, last_resort=True))
    for _ in range(5):
        it.record("failure", 107.0, admitted(it, 107.0, last_resort=True))
    admitted(it, 120.0)
    it.record("none", 120.0, first)
    assert not it.acquire(120.0)


# Nobody else can take the call.


def test_as_a_last_resort_one_call_a_second_goes():
    it = opened()
    gone = [tenth for tenth in range(45) if it.acquire(100.0 + tenth / 10, last_resort=True)]
    assert gone == [10, 20, 30, 40]
    assert not it.acquire(104.4)


def test_its_failure_does_not_make_the_time_longer():
    it = opened()
    for now in range(101, 160):
        it.record("failure", now, admitted(it, now, last_resort=True))
    assert [it.state(now) for now in (159.9, 160)] == [OPEN, HALF_OPEN]


def test_its_success_closes():
    it = opened()
    it.record("success", 101.0, admitted(it, 101.0, last_resort=True))
    assert it.state(101.0) == CLOSED


def test_it_reports_when_an_only_upstream_takes_the_next_call():
    it = opened()
    assert it.wait(100.25) == 0.75
    assert it.wait(103.0) == 0.0
    admitted(it, 103.0, last_resort=True)
    assert it.wait(103.0) == 1.0
    assert breaker().wait(100.0) == 0.0


def test_a_short_time_is_not_extended_for_an_only_upstream():
    it = breaker(open_s=0.25)
    fail(it, 100.0, 5)
    assert it.wait(100.0) == pytest.approx(0.25)
    admitted(it, 100.25)
    assert it.wait(100.25) == 1.0
