"""Days of budgets: they begin at local midnight, have 23 to 25 hours, and never come back."""

import datetime
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.budget_calendar import Calendar

HOUR = 3600.0


def unix(text: str) -> float:
    """Unix seconds of an ISO time that names its offset."""
    return datetime.datetime.fromisoformat(text).timestamp()


def starting(tz: str, text: str, monotonic: float = 0.0) -> Calendar:
    return Calendar(tz, unix(text), monotonic)


def test_a_day_ends_at_local_midnight():
    seoul = starting("Asia/Seoul", "2026-11-29T23:59:59+09:00", 1000.0)
    assert (seoul.day(1000.0), seoul.left(1000.0)) == ("2026-11-29", 1.0)
    assert (seoul.day(1000.5), seoul.left(1000.5)) == ("2026-11-29", 0.5)
    assert (seoul.day(1001.0), seoul.left(1001.0)) == ("2026-11-30", 24 * HOUR)


def test_the_same_moment_is_another_day_elsewhere():
    moment = "2026-11-29T16:00:00+00:00"
    days = {tz: starting(tz, moment).day(0.0) for tz in ("UTC", "Asia/Seoul", "America/Los_Angeles")}
    assert days == {"UTC": "2026-11-29", "Asia/Seoul": "2026-11-30", "America/Los_Angeles": "2026-11-29"}


@pytest.mark.parametrize(
    ("tz", "begins", "hours"),
    [
        ("Europe/Berlin", "2026-03-29T00:00:00+01:00", 23),
        ("Europe/Berlin", "2026-10-25T00:00:00+02:00", 25),
        ("Australia/Lord_Howe", "2026-04-05T00:00:00+11:00", 24.5),
        ("Africa/Cairo", "2026-04-24T01:00:00+03:00", 23),  # its midnight does not exist
        ("America/Havana", "2024-11-03T00:00:00-04:00", 25),  # its midnight comes twice
        ("America/St_Johns", "2010-11-07T00:00:00-02:30", 25),  # set back over a midnight that was passed
        ("Pacific/Apia", "2011-12-29T00:00:00-10:00", 24),  # the 30th was left out
        ("Asia/Seoul", "2026-11-29T00:00:00+09:00", 24),
    ],
)
def test_a_day_in_which_clocks_are_changed_has_its_own_length(tz: str, begins: str, hours: float):
    calendar = starting(tz, begins)
    today = begins[:10]
    assert (calendar.day(0.0), calendar.left(0.0)) == (today, hours * HOUR)
    assert {calendar.day(second * 60.0) for second in range(int(hours * 60))} == {today}
    assert calendar.day(hours * HOUR) > today
    assert starting(tz, begins, HOUR).day(HOUR - 1.0) == today, "an hour of grace"
    assert Calendar(tz, unix(begins) - 1.0, 0.0).day(0.0) < today


@given(
    st.sampled_from(sorted(available_timezones())),
    st.datetimes(datetime.datetime(1975, 1, 1), datetime.datetime(2037, 1, 1), timezones=st.just(datetime.UTC)),
)
def test_days_follow_each_other_without_gap_in_every_zone(tz: str, moment: datetime.datetime):
    calendar = Calendar(tz, moment.timestamp(), 0.0)
    today, left = calendar.day(0.0), calendar.left(0.0)
    assert 0 < left <= 48 * HOUR
    assert calendar.day(left - 1.0) == today
    tomorrow = calendar.day(left + 1.0)
    assert tomorrow > today
    # Whoever starts anywhere in the day knows it by the same name.
    assert Calendar(tz, moment.timestamp() + left - 1.0, 0.0).day(0.0) == today
    assert Calendar(tz, moment.timestamp() + left + 1.0, 0.0).day(0.0) == tomorrow
    local = moment.astimezone(ZoneInfo(tz)).date().isoformat()
    assert local <= today


def test_a_corrected_clock_moves_the_end_of_the_day():
    calendar = starting("UTC", "2026-11-29T12:00:00+00:00", 50.0)
    calendar.anchor(unix("2026-11-29T12:00:30+00:00"), 50.0)
    assert calendar.left(50.0) == 12 * HOUR - 30
    calendar.anchor(unix("2026-12-01T06:00:00+00:00"), 60.0)  # the machine had slept
    assert (calendar.day(60.0), calendar.left(60.0)) == ("2026-12-01", 18 * HOUR)


def test_a_clock_set_back_a_little_does_not_bring_yesterday_back():
    calendar = starting("UTC", "2026-11-30T00:00:01+00:00")
    calendar.anchor(unix("2026-11-29T23:59:58+00:00"), 0.0)
    assert (calendar.day(0.0), calendar.left(0.0)) == ("2026-11-30", 24 * HOUR + 2)
    assert calendar.day(24 * HOUR + 2) == "2026-12-01"


def test_a_clock_that_was_wrong_by_days_is_believed_when_set_right():
    calendar = starting("UTC", "2030-01-01T00:00:00+00:00")
    calendar.anchor(unix("2026-11-29T12:00:00+00:00"), 0.0)
    assert (calendar.day(0.0), calendar.left(0.0)) == ("2026-11-29", 12 * HOUR)


def test_days_before():
    calendar = starting("Asia/Seoul", "2026-03-01T00:00:00+09:00")
    assert [calendar.before(0.0, days) for days in (0, 1, 365)] == ["2026-03-01", "2026-02-28", "2025-03-01"]


def test_an_unknown_zone_is_an_error():
    with pytest.raises(KeyError):
        Calendar("Mars/Olympus", 0.0, 0.0)
