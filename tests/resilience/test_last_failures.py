"""When an upstream is failing: all calls so far, or several in a row."""

from gateway.resilience.last_failures import LastFailures


def test_the_first_failure_counts_until_something_is_answered() -> None:
    failures = LastFailures()
    assert not failures.failing
    failures.failed(1.0, "no")
    assert failures.failing
    failures.answered()
    assert not failures.failing
    assert (failures.at, failures.sentence) == (1.0, "no")


def test_after_an_answer_it_takes_three_in_a_row() -> None:
    failures = LastFailures()
    failures.answered()
    seen = []
    for now in (1.0, 2.0, 3.0):
        failures.failed(now, "no")
        seen.append(failures.failing)
    assert seen == [False, False, True]
    assert failures.unanswered
