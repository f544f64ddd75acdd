"""Where a call may still go: in which order, how often, and where not."""

from gateway.core.call import Candidate, Route
from gateway.resilience.retry_plan import NextAttempt, RetryPlan

NOW = 100.0


def candidate(upstream: str, window: int | None = None) -> Candidate:
    return Candidate(upstream, "up", b'"up"', context_window=window)


def route(name: str, *candidates: Candidate, fallbacks: tuple[Route, ...] = ()) -> Route:
    one = Route(name, f'"{name}"'.encode(), candidates)
    one.fallbacks = fallbacks
    return one


A, B, C = candidate("a"), candidate("b"), candidate("c")


def everybody(_: Candidate) -> bool:
    return True


def only(*admitted: Candidate):
    return lambda one: one in admitted


def chosen(plan: RetryPlan, now: float = NOW) -> Candidate | None:
    found = plan.next(now, everybody)
    return None if found is None else found.candidate


def test_retry_01_others_go_first_and_at_once():
    one = route("m", A, B)
    plan = RetryPlan(one, 3)
    plan.record_failure(A, NOW + 2.0)
    assert plan.next(NOW, everybody) == NextAttempt(B, one, NOW)


def test_retry_01_when_all_were_tried_the_one_that_is_free_first_goes_when_it_is():
    plan = RetryPlan(route("m", A, B), 4)
    plan.record_failure(A, NOW + 3.0)
    plan.record_failure(B, NOW + 2.0)
    again = plan.next(NOW, everybody)
    assert again is not None
    assert (again.candidate, again.at) == (B, NOW + 2.0)


def test_a_time_that_has_passed_is_now():
    plan = RetryPlan(route("m", A), 2)
    plan.record_failure(A, NOW - 1.0)
    again = plan.next(NOW, everybody)
    assert again is not None
    assert again.at == NOW


def test_calls_to_the_models_own_candidates_are_bounded():
    plan = RetryPlan(route("m", A, B, C), 2)
    plan.record_failure(A, NOW)
    assert chosen(plan) is B
    plan.record_failure(B, NOW)
    assert chosen(plan) is None


def test_one_call_is_the_first_one():
    plan = RetryPlan(route("m", A, B), 1)
    plan.record_failure(A, NOW)
    assert chosen(plan) is None


def test_a_candidate_that_must_not_be_retried_is_not():
    plan = RetryPlan(route("m", A, B), 5)
    plan.record_failure(A, None)
    plan.record_failure(B, None)
    assert chosen(plan) is None


def test_a_second_failure_can_end_what_the_first_allowed():
    plan = RetryPlan(route("m", A), 5)
    plan.record_failure(A, NOW)
    plan.record_failure(A, None)
    assert chosen(plan) is None


def test_a_candidate_without_a_slot_costs_no_attempt():
    plan = RetryPlan(route("m", A, B), 1)
    plan.exclude(A)
    assert chosen(plan) is B


def test_a_candidate_without_a_slot_for_a_retry_is_excluded():
    plan = RetryPlan(route("m", A), 3)
    plan.record_failure(A, NOW)
    assert chosen(plan) is A
    plan.exclude(A)
    assert chosen(plan) is None


def test_a_later_overflow_ends_what_an_earlier_failure_allowed():
    plan = RetryPlan(route("m", A), 3)
    plan.record_failure(A, NOW)
    plan.record_overflow(A)
    assert chosen(plan) is None


def test_a_candidate_that_is_not_admitted_is_skipped():
    plan = RetryPlan(route("m", A, B, C), 3)
    plan.record_failure(A, NOW)
    found = plan.next(NOW, only(C, A))
    assert found is not None
    assert found.candidate is C
    plan.record_failure(C, None)
    found = plan.next(NOW, only(A))
    assert found is not None
    assert found.candidate is A
    assert plan.next(NOW, only()) is None


def test_only_the_candidate_that_is_returned_is_asked_for_admission():
    """Being admitted may take the only probe of a breaker."""
    asked: list[Candidate] = []

    def admits(one: Candidate) -> bool:
        asked.append(one)
        return True

    plan = RetryPlan(route("m", A, B, C), 3)
    plan.record_failure(A, NOW)
    plan.next(NOW, admits)
    assert asked == [B]


# Fallbacks.


def test_fallbacks_come_after_all_candidates_in_their_order():
    first, second = route("x", B), route("y", C)
    one = route("m", A, fallbacks=(first, second))
    plan = RetryPlan(one, 2)
    plan.record_failure(A, NOW + 1.0)
    assert chosen(plan) is A
    plan.record_failure(A, NOW + 1.0)
    assert plan.next(NOW, everybody) == NextAttempt(B, first, NOW)
    plan.record_failure(B, None)
    assert plan.next(NOW, everybody) == NextAttempt(C, second, NOW)
    plan.record_failure(C, None)
    assert chosen(plan) is None


def test_a_fallback_gets_one_call_whatever_is_left_of_the_attempts():
    """The first candidate's breaker was open, so the whole number of attempts is still there."""
    first, second = route("x", B), route("y", C)
    plan = RetryPlan(route("m", A, fallbacks=(first, second)), 3)
    found = plan.next(NOW, only(B, C))
    assert found == NextAttempt(B, first, NOW)
    plan.record_failure(B, NOW)
    assert plan.next(NOW, only(B, C)) == NextAttempt(C, second, NOW)
    plan.record_failure(C, NOW)
    assert plan.next(NOW, only(B, C)) is None


def test_a_fallback_of_a_fallback_is_not_followed():
    """A chain would be bounded only by the length of the config."""
    far = route("y", C)
    plan = RetryPlan(route("m", A, fallbacks=(route("x", B, fallbacks=(far,)),)), 1)
    plan.record_failure(A, NOW)
    assert chosen(plan) is B
    plan.record_failure(B, None)
    assert chosen(plan) is None


def test_a_call_that_began_at_a_fallback_has_had_its_one_call_there():
    first, second = route("x", B, candidate("d")), route("y", C)
    plan = RetryPlan(route("m", A, fallbacks=(first, second)), 3, [B])
    plan.record_failure(B, NOW + 1.0)
    assert plan.next(NOW, everybody) == NextAttempt(C, second, NOW)
    plan.record_failure(C, NOW + 1.0)
    assert chosen(plan) is None


def test_a_fallback_takes_its_first_candidate_that_is_admitted():
    other = route("x", B, C)
    plan = RetryPlan(route("m", A, fallbacks=(other,)), 1)
    plan.record_failure(A, NOW)
    assert plan.next(NOW, only(C)) == NextAttempt(C, other, NOW)


def test_a_fallback_that_is_not_admitted_is_skipped():
    last = route("y", C)
    plan = RetryPlan(route("m", A, fallbacks=(route("x", B), last)), 1)
    plan.record_failure(A, NOW)
    assert plan.next(NOW, only(C)) == NextAttempt(C, last, NOW)


# Overflows.


def test_route_01_an_overflow_goes_to_a_window_that_is_larger_or_unknown():
    small, same, unknown, large = (
        candidate(name, window) for name, window in (("s", 4096), ("e", 4096), ("u", None), ("l", 8192))
    )
    plan = RetryPlan(route("m", small, same, unknown, large), 9)
    plan.record_overflow(small)
    assert chosen(plan) is unknown
    plan.record_overflow(unknown)
    assert chosen(plan) is large
    plan.record_overflow(large)
    assert chosen(plan) is None


def test_route_01_an_overflow_costs_no_attempt():
    plan = RetryPlan(route("m", A, B), 1)
    plan.record_overflow(A)
    assert chosen(plan) is B


def test_route_01_fallbacks_need_the_larger_window_too():
    small, large = candidate("s", 2048), candidate("l", 8192)
    plan = RetryPlan(route("m", candidate("a", 4096), fallbacks=(route("x", small), route("y", large))), 1)
    plan.record_overflow(plan.next(NOW, everybody).candidate)  # type: ignore[union-attr]
    assert chosen(plan) is large
