"""Repeated events: one line a minute for each subject, with their number."""

from gateway.telemetry.sampled import PERIOD_S, Sampled


def test_the_first_is_logged_and_then_one_a_minute_with_the_number() -> None:
    sampled = Sampled()
    assert [sampled.count("a", now) for now in (0.0, 1.0, 2.0)] == [1, 0, 0]
    assert sampled.count("b", 2.0) == 1
    assert sampled.count("a", PERIOD_S) == 3
    assert sampled.count("a", PERIOD_S + 1.0) == 0


def test_many_subjects_take_bounded_memory() -> None:
    sampled = Sampled()
    for number in range(5000):
        assert sampled.count(str(number), 0.0) == 1
    assert len(sampled._seen) == 1024
