"""One upstream, several models: who is shut out by whose failures. Plain numbers, no clock."""

from random import Random

import pytest

from gateway.resilience.circuit_breaker import CLOSED, HALF_OPEN, OPEN, CircuitBreaker
from gateway.resilience.upstream_breakers import UpstreamBreakers

CHAT, EMBEDDINGS = "chat/completions", "embeddings"


@pytest.fixture
def breakers() -> UpstreamBreakers:
    """Of an upstream with three models that have all answered."""
    made = UpstreamBreakers(lambda: CircuitBreaker(5, 5.0, 60.0, Random(1)))
    for model in ("big", "mini", "embed"):
        answer(made, model, 0.0)
    return made


def answer(breakers: UpstreamBreakers, model: str, now: float, endpoint: str = CHAT) -> bool:
    permit = breakers.of(model, endpoint).acquire(now)
    if permit:
        breakers.record_success(model, endpoint, now, permit)
    return permit > 0


def fail(breakers: UpstreamBreakers, model: str, now: float, endpoint: str = CHAT, *, of_host: bool = False) -> None:
    permit = breakers.of(model, endpoint).acquire(now)
    if permit:
        breakers.record_failure(model, endpoint, now, permit, of_host=of_host)


def state(breakers: UpstreamBreakers, model: str, now: float, endpoint: str = CHAT) -> int:
    return breakers.of(model, endpoint).state(now)


def test_a_broken_model_shuts_no_other(breakers: UpstreamBreakers):
    for number in range(50):
        fail(breakers, "big", 1.0 + number / 10)
        assert answer(breakers, "mini", 1.0 + number / 10)
    assert state(breakers, "big", 6.0) == OPEN
    assert state(breakers, "mini", 6.0) == CLOSED


def test_a_broken_model_shuts_no_other_that_nobody_has_asked_meanwhile(breakers: UpstreamBreakers):
    for number in range(5):
        fail(breakers, "big", 1.0 + number)
    assert (state(breakers, "big", 5.5), state(breakers, "mini", 5.5)) == (OPEN, CLOSED)


def test_a_broken_endpoint_shuts_no_other_endpoint_of_its_model(breakers: UpstreamBreakers):
    for number in range(5):
        fail(breakers, "big", 1.0 + number, EMBEDDINGS)
    assert state(breakers, "big", 5.5, EMBEDDINGS) == OPEN
    assert state(breakers, "big", 5.5) == CLOSED


def test_a_host_that_cannot_be_reached_shuts_all_its_models(breakers: UpstreamBreakers):
    for number in range(5):
        fail(breakers, ("big", "mini", "embed")[number % 3], 1.0 + number, of_host=True)
    assert {state(breakers, model, 5.5) for model in ("big", "mini", "embed")} == {OPEN}


def test_several_broken_models_without_an_answer_between_tell_of_the_upstream(breakers: UpstreamBreakers):
    for number in range(5):
        fail(breakers, "big", 1.0 + number / 10)
        fail(breakers, "mini", 1.0 + number / 10)
    assert state(breakers, "embed", 2.0) == OPEN


def test_several_broken_models_shut_no_third_that_answers(breakers: UpstreamBreakers):
    for number in range(5):
        fail(breakers, "big", 1.0 + number)
    assert answer(breakers, "embed", 5.5)
    for number in range(5):
        fail(breakers, "mini", 6.0 + number / 10)
    assert (state(breakers, "mini", 7.0), state(breakers, "embed", 7.0)) == (OPEN, CLOSED)


def test_the_first_answer_of_a_host_lets_all_its_models_be_probed_at_once(breakers: UpstreamBreakers):
    for number in range(5):
        fail(breakers, "big", 1.0 + number / 10, of_host=True)
    probed_at = 20.0
    assert answer(breakers, "big", probed_at)
    assert state(breakers, "big", probed_at) == CLOSED
    assert {state(breakers, model, probed_at) for model in ("mini", "embed")} == {HALF_OPEN}
    assert answer(breakers, "mini", probed_at)
    assert answer(breakers, "embed", probed_at)
    assert breakers.state(probed_at) == CLOSED


def test_an_answer_does_not_heal_a_model_that_failed_by_itself(breakers: UpstreamBreakers):
    for number in range(5):
        fail(breakers, "big", 1.0 + number / 10)
    assert answer(breakers, "mini", 1.6)
    assert state(breakers, "big", 1.6) == OPEN


def test_scattered_failures_of_the_host_are_forgotten_with_the_next_answer(breakers: UpstreamBreakers):
    for number in range(20):
        fail(breakers, "big", 1.0 + number, of_host=True)
        assert answer(breakers, "mini", 1.5 + number)
        if not answer(breakers, "big", 1.5 + number):
            break
    assert state(breakers, "mini", 30.0) == CLOSED


def test_the_worst_state_is_shown(breakers: UpstreamBreakers):
    assert breakers.state(0.0) == CLOSED
    for number in range(5):
        fail(breakers, "big", 1.0 + number / 10)
    assert breakers.state(2.0) == OPEN
