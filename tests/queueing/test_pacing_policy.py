"""Pacing towards an upstream that states a rate, case by case."""

import math

import pytest

from gateway.limits.sliding_window import SPAN_S, Window
from gateway.queueing.pacing import Pace


def sent(pace: Pace, tokens: int, now: float) -> float:
    """Send a call as soon as the pace lets it go, and return that moment."""
    now += pace.wait(tokens, now)
    while (more := pace.wait(tokens, now)) > 0.0:  # float rounding
        assert more < 1e-6
        now += 1e-6
    pace.note(tokens, now)
    return now


def test_calls_are_spread_evenly():
    pace = Pace(120, None)
    assert [sent(pace, 1, 100.0) for _ in range(5)] == pytest.approx([100, 100, 100.5, 101, 101.5], abs=1e-4)


def test_the_burst_is_one_seconds_worth_and_at_least_one_call():
    assert sum(sent(pace, 1, 100.0) < 100.001 for pace in [Pace(600, None)] for _ in range(30)) == 10
    slow = Pace(6, None)
    assert [sent(slow, 1, 100.0) for _ in range(3)] == pytest.approx([100, 110, 120])


def test_a_call_larger_than_the_burst_goes_when_the_meter_is_empty_and_leaves_a_debt():
    pace = Pace(None, 600)
    assert sent(pace, 100, 100.0) == 100.0
    assert pace.wait(10, 100.0) == pytest.approx(10.0)
    assert pace.wait(5, 109.6) == 0.0


def test_a_call_larger_than_the_rate_never_goes():
    pace = Pace(None, 600)
    assert pace.wait(601, 100.0) == math.inf
    assert pace.wait(600, 100.0) == 0.0


def test_no_minute_sees_more_than_the_rate_though_the_meter_would_let_it():
    pace = Pace(60, None)
    times = [sent(pace, 1, 100.0) for _ in range(200)]
    assert all(later - earlier > 60 for earlier, later in zip(times, times[60:], strict=False))
    assert times[-1] - times[0] < 199 * SPAN_S / 60 + 1  # and not much slower than the rate


def test_rate_07_a_large_call_goes_within_two_windows_in_its_turn():
    """Each call waits for the call before it, as the waiting room arranges."""
    pace, now = Pace(None, 60), 100.0
    assert sent(pace, 20, now) == now
    large = sent(pace, 60, now)
    assert large <= now + 2 * SPAN_S
    assert sent(pace, 20, large) >= large + 60.0


def test_a_share_of_less_than_one_call_a_minute_is_slower_than_a_minute():
    pace = Pace(0.5, None)
    assert [sent(pace, 1, 100.0) for _ in range(3)] == pytest.approx([100, 220, 340])


def test_calls_older_than_a_minute_do_not_count():
    window = Window(2, 100)
    window.note(60, 100.0)
    window.note(40, 110.0)
    assert window.wait(1, 110.0) == SPAN_S - 10
    assert window.wait(50, 110.0) == SPAN_S - 10
    assert window.wait(70, 110.0) == SPAN_S
    assert window.wait(101, 110.0) == math.inf
    assert window.wait(60, 100.0 + SPAN_S) == 0.0


def test_the_drain_time_of_a_queue_follows_the_rate():
    assert Pace(60, 6000).drain_time(10, 100) == 10.0
    assert Pace(60, 6000).drain_time(10, 2000) == 20.0
    assert Pace(None, None).drain_time(10, 2000) == 0.0
