"""When an upstream is failing: all calls so far, or several in a row, of one process or of several."""

import msgspec
import pytest

from gateway.resilience.last_failures import FailureRun, LastFailures, combined_run


def test_the_first_failure_counts_until_something_is_answered() -> None:
    failures = LastFailures()
    assert not failures.run.failing
    failures.failed(1.0, "no")
    assert failures.run.failing
    failures.answered(2.0)
    assert not failures.run.failing
    assert (failures.run.last_at, failures.run.answered_at, failures.sentence) == (1.0, 2.0, "no")


def test_after_an_answer_it_takes_three_in_a_row() -> None:
    failures = LastFailures()
    failures.answered(0.5)
    seen = []
    for now in (1.0, 2.0, 3.0):
        failures.failed(now, "no")
        seen.append(failures.run.failing)
    assert seen == [False, False, True]
    assert failures.run == FailureRun(3, 1.0, 3.0, 0.5)
    assert failures.unanswered


NEVER_CALLED = FailureRun()


@pytest.mark.parametrize(
    ("runs", "count", "failing"),
    [
        ([], 0, False),
        ([NEVER_CALLED, NEVER_CALLED], 0, False),
        ([FailureRun(1, 5.0, 5.0), NEVER_CALLED], 1, True),  # no call of any worker has been answered
        ([FailureRun(9, 1.0, 9.0), FailureRun(answered_at=9.5)], 0, False),  # another worker's was, later
        ([FailureRun(9, 1.0, 9.0), FailureRun(answered_at=0.5)], 9, True),  # long before
        ([FailureRun(9, 1.0, 9.0), FailureRun(answered_at=5.0)], 1, False),  # in between: at least the last is later
        ([FailureRun(2, 6.0, 9.0, 4.0), FailureRun(1, 7.0, 7.0, 5.0)], 3, True),  # three in a row, over both
        ([FailureRun(1, 6.0, 6.0, 4.0), FailureRun(1, 7.0, 7.0, 5.0)], 2, False),
        ([FailureRun(0, 1.0, 2.0, 3.0), FailureRun(0, 1.0, 4.0, 5.0)], 0, False),
    ],
)
def test_workers_see_an_upstream_as_one_process_would(runs: list[FailureRun], count: int, *, failing: bool) -> None:
    seen = combined_run(runs)
    assert (seen.count, seen.failing) == (count, failing)
    assert combined_run(reversed(runs)) == seen


def test_a_run_survives_json_and_another_clock() -> None:
    run = FailureRun(2, 6.0, 9.0, None)
    assert msgspec.json.decode(msgspec.json.encode(run), type=FailureRun).moved(100.0) == FailureRun(2, 106, 109, None)
