"""The decisions about batches, with plain numbers: room, verdicts, windows, records and results."""

import json
import math
from typing import Any

import msgspec
import pytest

from gateway.batch_jobs.input_lines import BatchLine, LineSplitter
from gateway.batch_jobs.records import BatchJob, LineTally
from gateway.batch_jobs.results import LinesDone, LineUsage, answered, records
from gateway.batch_jobs.room import MOST_LINES, Admission, UpstreamRoom
from gateway.batch_jobs.runner import worked_on
from gateway.batch_jobs.verdict import ENDS, TRIES, LineWaits, judge
from gateway.batch_jobs.windows import OpenHours, late, parse_window
from gateway.core import errors
from gateway.core.errors import ErrorKind, Rejection

# Room.


@pytest.mark.parametrize(
    ("permits", "live", "waiting", "free"),
    [
        (8, 0, 0, 8),  # nobody is here
        (8, 3, 0, 1),  # beside live calls, a quarter of what they leave
        (64, 4, 0, 15),
        (8, 7, 0, 1),
        (8, 8, 0, 0),
        (8, 8, 20, 0),
        (1, 0, 0, 1),
        (1, 1, 0, 0),
        (100_000, 0, 0, MOST_LINES),
    ],
)
def test_lines_take_what_live_calls_leave(permits: int, live: int, waiting: int, free: int) -> None:
    assert UpstreamRoom().free(Admission(permits, live, waiting), 0.0) == free


def test_own_lines_are_no_live_calls() -> None:
    room = UpstreamRoom()
    room.lines = 5
    assert room.free(Admission(24, 0, 5), 0.0) == 19
    assert room.free(Admission(24, 4, 0), 0.0) == 0
    assert room.free(Admission(48, 4, 0), 0.0) == 6


def test_permits_of_live_calls_stay_free_for_half_a_minute() -> None:
    room = UpstreamRoom()
    assert room.free(Admission(80, 60, 0), 0.0) == 5
    assert room.free(Admission(80, 0, 0), 1.0) == 5
    assert room.free(Admission(80, 0, 0), 15.0) == 12
    assert room.free(Admission(80, 0, 0), 31.0) == 80


def test_live_calls_that_come_back_stop_the_lines() -> None:
    room = UpstreamRoom()
    room.lines = 8
    assert room.free(Admission(8, 0, 0), 0.0) == 0
    assert room.free(Admission(8, 0, 12), 0.1) == 0  # four of them wait; nothing is sent in their place
    room.lines = 6
    assert room.free(Admission(8, 2, 0), 0.2) == 0


def test_a_paced_upstream_has_no_room() -> None:
    assert UpstreamRoom().free(Admission(8, 0, 0, paced=True), 0.0) == 0


def test_merged_lines_share_permits() -> None:
    room = UpstreamRoom()
    for _ in range(200):
        room.per_permit.note(32)
    assert room.free(Admission(4, 0, 0), 0.0) == math.floor(4 * room.per_permit.mean * 1.5)
    room.lines = 64
    assert room.free(Admission(4, 0, 0), 0.0) > 0
    room.lines = 0
    assert room.free(Admission(64, 4, 0), 0.0) == 15  # beside live calls, merged lines count one by one
    room = UpstreamRoom()
    room.per_permit.note(32)
    for _ in range(200):
        room.per_permit.note(0)
    room.lines = 0
    assert room.free(Admission(4, 0, 0), 0.0) == 4


# Verdicts.


@pytest.mark.parametrize(
    ("kind", "budget", "ends", "shared"),
    [
        (errors.INVALID_VALUE, "", True, ""),
        (errors.MODEL_NOT_FOUND, "", True, ""),
        (errors.REQUEST_TOO_LARGE, "", True, ""),
        (errors.REQUEST_SUSPENDED, "", True, ""),
        (errors.CONTEXT_LENGTH_EXCEEDED, "", True, ""),
        (errors.INSUFFICIENT_QUOTA, "too small", True, ""),
        (errors.INSUFFICIENT_QUOTA, "reserved", False, "key"),
        (errors.INSUFFICIENT_QUOTA, "", False, "key"),
        (errors.REQUEST_RATE_LIMITED, "", False, "key"),
        (errors.TOKEN_RATE_LIMITED, "", False, "key"),
        (errors.CONCURRENCY_LIMITED, "", False, "key"),
        (errors.QUEUE_FULL, "", False, "model"),
        (errors.DRAINING, "", False, "model"),
        (errors.UPSTREAM_UNAVAILABLE, "", False, "model"),
        (errors.UPSTREAM_RATE_LIMITED, "", False, "model"),
        (errors.UPSTREAM_ERROR, "", False, ""),
        (errors.UPSTREAM_TIMEOUT, "", False, ""),
        (errors.INTERNAL_ERROR, "", False, ""),
    ],
)
def test_what_becomes_of_a_refused_line(kind: ErrorKind, budget: Any, ends: bool, shared: str) -> None:
    verdict = judge(Rejection(kind, "no"), 0, budget)
    assert (verdict is ENDS) is ends
    if isinstance(verdict, LineWaits):
        assert verdict.shared == shared
        assert verdict.seconds > 0
        assert bool(verdict.paused) is (kind is errors.INSUFFICIENT_QUOTA and not budget)


def test_tries_at_failing_upstreams_are_counted_and_others_are_not() -> None:
    failed, busy = Rejection(errors.UPSTREAM_ERROR, "no"), Rejection(errors.UPSTREAM_UNAVAILABLE, "no")
    waits = [judge(failed, tries) for tries in range(TRIES)]
    assert [isinstance(each, LineWaits) and each.counts for each in waits] == [True] * (TRIES - 1) + [False]
    assert waits[-1] is ENDS
    assert judge(busy, 1000) == LineWaits(1.0, "model")
    assert judge(None, 0) is ENDS


def test_advice_on_waiting_is_taken_within_bounds() -> None:
    assert judge(Rejection(errors.REQUEST_RATE_LIMITED, "", retry_after=7.0), 0) == LineWaits(7.0, "key")
    assert judge(Rejection(errors.REQUEST_RATE_LIMITED, "", retry_after=3600.0), 0) == LineWaits(60.0, "key")


# Windows.


@pytest.mark.parametrize(("text", "seconds"), [("24h", 86_400), ("1s", 1), ("7d", 604_800), ("90m", 5400)])
def test_windows(text: str, seconds: int) -> None:
    assert parse_window(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "soon", "367d", None, 5, "-1h"])
def test_anything_else_is_no_window(text: object) -> None:
    with pytest.raises(ValueError, match="such as 24h"):
        parse_window(text)


def test_hours_go_over_midnight() -> None:
    night, day, late_hours = OpenHours("20:00-07:00"), OpenHours("09:30-17:00"), OpenHours("22:00-24:00")
    assert [night.open(minute) for minute in (0, 419, 420, 720, 1199, 1200, 1439)] == [
        *(True, True, False, False, False, True, True)
    ]
    assert [day.open(minute) for minute in (569, 570, 1019, 1020)] == [False, True, True, False]
    assert [late_hours.open(minute) for minute in (1319, 1320, 1439, 0)] == [False, True, True, False]


@pytest.mark.parametrize(
    ("now", "done", "is_late"),
    [(5, 0, False), (11, 0, True), (50, 51, False), (50, 49, True), (50, 50, False), (200, 100, False)],
)
def test_a_batch_is_late_if_its_pace_does_not_suffice(now: float, done: int, is_late: bool) -> None:
    assert late(now, 0.0, done, 100, 100.0) is is_late


# Records.


def job(**changes: Any) -> BatchJob:
    return BatchJob("batch_abc", "k", "/v1/x", "file-1", "24h", 100, 200).with_(**changes)


def test_stamps_never_go_back() -> None:
    ended = job().at("in_progress", 150.9).at("finalizing", 20.0).at("completed", 160.0)
    assert ended.stamps == {"in_progress": 150, "finalizing": 150, "completed": 160}
    assert ended.ended
    assert ended.shown(LineTally())["completed_at"] == 160


def test_a_record_is_read_as_it_was_written() -> None:
    one = job(metadata={"a": "b"}, paused="why", tally=LineTally(1, 2, 3, 4, 5, 6, 7))
    assert msgspec.json.decode(msgspec.json.encode(one), type=BatchJob) == one
    assert one.shown(one.tally)["paused"] == "why"
    assert "paused" not in one.at("expired", 200).shown(one.tally)


def test_some_batches_of_each_key_are_worked_on_the_oldest_first() -> None:
    many = [job(id=f"batch_{number:03}", key="a" if number < 10 else f"k{number}") for number in reversed(range(60))]
    chosen = worked_on(many)
    assert [each.id for each in chosen[:5]] == ["batch_000", "batch_001", "batch_002", "batch_003", "batch_010"]
    assert len(chosen) == 32


# Results.


def logged(content: bytes) -> list[Any]:
    return list(records(LineSplitter().feed(content)))


def test_a_result_is_one_line_whatever_the_body_holds() -> None:
    body = b'{\n  "a": "x\\ny",\r\n "b": 1\n}'
    record = answered(BatchLine(7, "id 7", "m", b"{}"), "r1", "req-1", 200, body, LineUsage(1, 2, 3, 4, 5))
    assert record.count(b"\n") == 1
    (read,) = logged(record)
    assert (read.number, read.ok, read.tally) == (7, True, LineTally(1, 0, 1, 2, 3, 4, 5))
    result = json.loads(read.result)
    assert result["custom_id"] == "id 7"
    assert result["response"] == {"status_code": 200, "request_id": "req-1", "body": json.loads(body)}


def test_a_torn_record_does_not_count() -> None:
    whole = answered(BatchLine(1, "a", "m", b"{}"), "r1", "q", 429, b"{}", LineUsage())
    torn = answered(BatchLine(2, "b", "m", b"{}"), "r2", "q", 200, b"{}", LineUsage())
    for cut in range(len(torn)):
        assert [each.number for each in logged(whole + torn[:cut])] == [1]
        assert [each.number for each in logged(whole + torn[:cut] + b"\n" + torn)] in ([1, 2], [1, 2, 2])
    assert [each.ok for each in logged(whole + torn)] == [False, True]


def test_each_line_is_noted_once() -> None:
    done = LinesDone()
    assert [done.add(number) for number in (5, 900, 5, 0, 900)] == [True, True, False, True, False]
    assert [number in done for number in (0, 4, 5, 899, 900, 10**6)] == [True, False, True, False, True, False]
