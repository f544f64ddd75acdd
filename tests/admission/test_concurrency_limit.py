"""The limit that finds itself: slow up, fast down, never below 1, frozen by stale metrics."""

from collections.abc import Callable

from gateway.admission.concurrency_limit import CEILING, FIRST, STALE_S, ConcurrencyLimit, EngineReading


def seconds(
    limit: ConcurrencyLimit, count: int, *, start: float = 0.0, waiting: Callable[[int], int] = lambda n: 0
) -> float:
    """So many seconds in which calls wait for the limit, and the engine says how many of them wait inside it."""
    now = start
    for _ in range(count):
        now += 1.0
        limit.waited()
        limit.read(EngineReading(limit.value, waiting(limit.value), 0, now))
        limit.adjust(limit.value, now)
    return now


def test_it_doubles_until_the_engine_queues_and_settles_there():
    limit = ConcurrencyLimit()
    seen = []
    now = 0.0
    for _ in range(60):
        now = seconds(limit, 1, start=now, waiting=lambda n: max(0, n - 200))
        seen.append(limit.value)
    assert max(seen[:3]) == 256
    assert all(190 <= value <= 225 for value in seen[10:]), seen


def test_it_stays_where_nobody_waits_for_it():
    limit = ConcurrencyLimit()
    for second in range(60):
        limit.adjust(3, float(second))
    assert limit.value == FIRST


def test_it_is_bounded_on_both_sides():
    limit = ConcurrencyLimit()
    seconds(limit, 400)
    assert limit.value == CEILING
    for second in range(100):
        limit.read(EngineReading(limit.value, 0, second, 1000.0 + second))
        limit.adjust(limit.value, 1000.0 + second)
    assert limit.value == 1


def test_preemptions_and_refusals_lower_it_at_once():
    limit = ConcurrencyLimit()
    limit.read(EngineReading(60, 0, 5, 0.0))
    assert limit.read(EngineReading(60, 0, 6, 1.0))
    assert limit.adjust(60, 1.0)
    assert limit.value == 48
    limit.refused(20, 1.5)
    assert limit.value == 19


def test_stale_metrics_freeze_it():
    limit = ConcurrencyLimit()
    now = seconds(limit, 1)
    before = limit.value
    limit.waited()
    assert not limit.adjust(before, now + STALE_S + 0.5)
    assert limit.value == before


def test_an_engine_that_restarts_is_learned_anew():
    limit = ConcurrencyLimit()
    limit.read(EngineReading(60, 0, 9, 0.0))
    for second in range(1, 20):
        limit.read(EngineReading(60, 50, 9, float(second)))
        limit.adjust(60, float(second))
    assert limit.value < FIRST
    assert not limit.read(EngineReading(0, 0, 0, 20.0))
    assert limit.value == FIRST


def silent_engine(limit: ConcurrencyLimit, slots: int, periods: int) -> list[int]:
    """A server that tells nothing and queues calls beyond its slots; 0.4 s a call, prefill 50 ms."""
    seen, now = [], 0.0
    for _ in range(periods):
        now += 1.0
        queued = max(0, limit.value - slots)
        for _ in range(20):
            limit.answered(0.05 + 0.4 * queued / slots * 4, 100, 0.02)
        limit.waited()
        limit.adjust(limit.value, now)
        seen.append(limit.value)
    return seen


def test_a_server_that_tells_nothing_is_kept_busy_without_a_long_queue():
    seen = silent_engine(ConcurrencyLimit(), 96, 120)
    settled = seen[20:]
    mean = sum(settled) / len(settled)
    assert 0.9 * 96 <= mean <= 1.3 * 96
    assert min(settled) >= 0.75 * mean


def test_slow_tokens_lower_it_and_fast_ones_of_short_answers_do_not():
    limit = ConcurrencyLimit()
    for second in range(1, 4):
        for _ in range(10):
            limit.answered(0.001 * second, 10, 0.02)
        limit.adjust(60, float(second))
    assert limit.value == FIRST
    for _ in range(10):
        limit.answered(0.002, 10, 0.2)
    limit.adjust(60, 4.0)
    assert limit.value == 48
