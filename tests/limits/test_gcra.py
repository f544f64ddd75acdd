"""The meter, with plain numbers."""

import math

import pytest

from gateway.limits.gcra import Meter


def test_a_whole_minutes_worth_fits_at_once_and_no_more() -> None:
    meter = Meter(10)
    for _ in range(10):
        assert meter.wait(1, 100.0) == 0.0
        meter.take(1, 100.0)
    assert meter.wait(1, 100.0) == pytest.approx(6.0)


def test_a_call_fits_after_exactly_the_reported_wait() -> None:
    meter = Meter(7)
    now = 1234.5
    for _ in range(200):
        wait = meter.wait(3, now)
        now += math.ceil(wait * 1000 - 1e-6) / 1000
        assert meter.wait(3, now) == 0.0
        meter.take(3, now)


def test_more_than_the_whole_limit_never_fits() -> None:
    assert Meter(100).wait(101, 5.0) == math.inf
    assert Meter(100).wait(100, 5.0) == 0.0


def test_it_drains_with_time() -> None:
    meter = Meter(60)
    meter.take(60, 0.0)
    assert (meter.left(0.0), meter.left(30.0), meter.left(3600.0)) == (0.0, 30.0, 60.0)
    assert (meter.reset(0.0), meter.reset(45.0), meter.reset(99.0)) == (60.0, 15.0, 0.0)


def test_unused_units_are_returned() -> None:
    meter = Meter(100)
    mark = meter.take(80, 0.0)
    meter.give_back(50, mark, 0.0)
    assert meter.used(0.0) == pytest.approx(30)


def test_units_that_have_drained_are_not_returned_again() -> None:
    meter = Meter(100)
    mark = meter.take(100, 0.0)
    meter.take(100, 60.0)
    meter.give_back(90, mark, 61.0)
    assert meter.used(61.0) == pytest.approx(100 - 100 / 60)


def test_a_debt_is_waited_off() -> None:
    meter = Meter(60)
    meter.take(90, 0.0)
    assert meter.left(0.0) == 0.0
    assert meter.wait(1, 0.0) == pytest.approx(31.0)


def test_a_smaller_burst() -> None:
    meter = Meter(600, burst=10)
    meter.take(10, 0.0)
    assert meter.wait(1, 0.0) == pytest.approx(0.1)
