"""A request that engines die of is refused for a while; case by case."""

import pytest

from gateway.resilience.poison_requests import MAX_SUSPECTS, SUSPENDED_S, PoisonRequests

BODY = b'{"model": "m", "prompt": "boom"}'


def twice_dead(now: float = 100.0) -> PoisonRequests:
    poison = PoisonRequests()
    poison.record_death(BODY, "a", now - 5.0)
    poison.record_death(BODY, "b", now)
    return poison


def test_one_death_is_an_accident():
    poison = PoisonRequests()
    poison.record_death(BODY, "a", 100.0)
    assert poison.suspended_for(BODY, 100.0) is None


def test_after_two_it_is_refused_for_a_minute():
    poison = twice_dead(100.0)
    assert poison.suspended_for(BODY, 100.0) == SUSPENDED_S
    assert poison.suspended_for(BODY, 159.0) == pytest.approx(1.0)
    assert poison.suspended_for(BODY, 160.0) is None


def test_the_same_upstream_may_die_twice():
    poison = PoisonRequests()
    poison.record_death(BODY, "a", 100.0)
    poison.record_death(BODY, "a", 101.0)
    assert poison.suspended_for(BODY, 101.0) is not None


def test_calls_with_the_same_body_die_one_death():
    poison = PoisonRequests()
    for now in (100.0, 100.1, 100.9):
        poison.record_death(BODY, "a", now)
    assert poison.suspended_for(BODY, 101.0) is None


def test_others_go_on():
    poison = twice_dead()
    poison.record_death(b"an innocent neighbour", "b", 100.0)
    assert poison.suspended_for(b"an innocent neighbour", 100.0) is None
    assert poison.suspended_for(BODY + b" ", 100.0) is None


def test_one_more_death_refuses_it_once_more():
    poison = twice_dead(100.0)
    poison.record_death(BODY, "a", 200.0)
    assert poison.suspended_for(BODY, 200.0) == SUSPENDED_S


@pytest.mark.parametrize(("later", "refused"), [(599.0, True), (600.0, False)])
def test_a_death_is_forgotten_after_ten_minutes(later: float, refused: bool):
    poison = PoisonRequests()
    poison.record_death(BODY, "a", 100.0)
    poison.record_death(BODY, "b", 100.0 + later)
    assert (poison.suspended_for(BODY, 100.0 + later) is not None) is refused


def test_a_request_refused_later_does_not_hold_back_the_end_of_an_earlier_one():
    poison = twice_dead(100.0)
    for upstream, now in (("a", 130.0), ("b", 140.0)):
        poison.record_death(b"another", upstream, now)
    assert poison.suspended_for(BODY, 170.0) is None
    assert poison.suspended_for(b"another", 170.0) == pytest.approx(30.0)


def test_only_the_newest_are_remembered():
    poison = twice_dead(100.0)
    for number in range(MAX_SUSPECTS - 1):
        poison.record_death(b"%d" % number, "c", 101.0)
    assert poison.suspended_for(BODY, 101.0) is not None
    poison.record_death(b"one more", "c", 101.0)
    assert poison.suspended_for(BODY, 101.0) is None


def test_a_request_that_kills_again_is_among_the_newest():
    poison = PoisonRequests()
    poison.record_death(BODY, "a", 100.0)
    for number in range(MAX_SUSPECTS - 1):
        poison.record_death(b"%d" % number, "c", 101.0)
    poison.record_death(BODY, "b", 102.0)
    poison.record_death(b"one more", "c", 102.0)
    assert poison.suspended_for(BODY, 102.0) == SUSPENDED_S
