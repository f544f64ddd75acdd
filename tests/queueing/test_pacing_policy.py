"""Pacing towards an upstream that states a rate, case by case."""

import math

import pytest

from gateway.limits.sliding_window import SPAN_S, Window
from gateway.queueing.advertised_quota import LONGEST_S, duration
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


# The quota that the upstream advertises.

NOTHING_LEFT = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "12s"}


def test_without_remaining_calls_all_wait_for_the_reset():
    pace = Pace(6000, None)
    pace.learn(NOTHING_LEFT, 100.0)
    assert pace.wait(1, 100.0) == 12.0
    assert pace.wait(1, 112.0) == 0.0


def test_a_call_with_more_tokens_than_remain_waits_and_a_smaller_call_goes():
    pace = Pace(None, 60_000)
    pace.learn({"x-ratelimit-remaining-tokens": "500", "x-ratelimit-reset-tokens": "1m30.5s"}, 100.0)
    assert pace.wait(501, 100.0) == LONGEST_S
    assert pace.wait(500, 100.0) == 0.0


def test_calls_are_deducted_until_a_newer_answer():
    pace = Pace(6000, None)
    pace.learn({**NOTHING_LEFT, "x-ratelimit-remaining-requests": "1"}, 100.0)
    assert sent(pace, 1, 100.0) == 100.0
    assert pace.wait(1, 101.0) == 11.0
    pace.learn({**NOTHING_LEFT, "x-ratelimit-remaining-requests": "7"}, 101.0)
    assert pace.wait(1, 101.0) == 0.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("12ms", 0.012),
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("1m30.5s", 90.5),
        ("1h2m3s", 3723.0),
        ("1s500ms", 1.5),
        ("6m", 360.0),
        ("59.5", 59.5),
        ("0", 0.0),
        ("0s", 0.0),
    ],
)
def test_durations(text: str, seconds: float):
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "s", "-1s", "1 s", "soon", "1e9", "inf", "nan", "2026-11-29T00:00:00Z", "9" * 40, "1s\n", "١s"],
)
def test_no_durations(text: str):
    assert duration(text) is None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-ratelimit-remaining-requests": "0"},
        {"x-ratelimit-reset-requests": "12s"},
        {**NOTHING_LEFT, "x-ratelimit-remaining-requests": "-1"},
        {**NOTHING_LEFT, "x-ratelimit-remaining-requests": "none"},
        {**NOTHING_LEFT, "x-ratelimit-remaining-requests": "0.0"},
        {**NOTHING_LEFT, "x-ratelimit-reset-requests": "soon"},
        {**NOTHING_LEFT, "x-ratelimit-reset-requests": "0s"},
    ],
)
def test_malformed_and_incomplete_headers_are_ignored(headers: dict[str, str]):
    pace = Pace(6000, None)
    pace.learn(headers, 100.0)
    assert pace.wait(1, 100.0) == 0.0


def test_a_limit_of_zero_or_minus_one_says_nothing():
    for odd in ({"x-ratelimit-limit-requests": "0"}, {"x-ratelimit-remaining-requests": "-1"}):
        pace = Pace(6000, None)
        pace.learn({**NOTHING_LEFT, **odd}, 0.0)
        assert pace.wait(1, 0.0) == 0.0
