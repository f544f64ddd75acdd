"""The quotas that an upstream advertises: read from headers, and kept by model."""

import math

import pytest

from gateway.core.caller import BATCH, INTERACTIVE, Priority
from gateway.core.errors import DEADLINE_IN_QUEUE, QUEUE_FULL, Rejection
from gateway.queueing.advertised_quota import LONGEST_S, Quota, Quotas, duration
from gateway.queueing.pacing import Pace
from gateway.queueing.upstream_queue import UpstreamQueue, Waiter
from gateway.queueing.waiting_room import GRANTED_AT_ONCE, Queued, WaitingRoom

NOTHING_LEFT = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "12s"}


def test_without_remaining_calls_all_wait_for_the_reset():
    quota = Quota()
    quota.learn(NOTHING_LEFT, 100.0)
    assert quota.wait(1, 100.0) == 12.0
    assert quota.wait(1, 112.0) == 0.0


def test_a_call_with_more_tokens_than_remain_waits_and_a_smaller_call_goes():
    quota = Quota()
    quota.learn({"x-ratelimit-remaining-tokens": "500", "x-ratelimit-reset-tokens": "1m30.5s"}, 100.0)
    assert quota.wait(501, 100.0) == LONGEST_S
    assert quota.wait(500, 100.0) == 0.0


def test_calls_are_deducted_until_a_newer_answer():
    quota = Quota()
    quota.learn({**NOTHING_LEFT, "x-ratelimit-remaining-requests": "1"}, 100.0)
    quota.note(1)
    assert quota.wait(1, 101.0) == 11.0
    quota.learn({**NOTHING_LEFT, "x-ratelimit-remaining-requests": "7"}, 101.0)
    assert quota.wait(1, 101.0) == 0.0


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
    quota = Quota()
    quota.learn(headers, 100.0)
    assert quota.wait(1, 100.0) == 0.0


def test_a_limit_of_zero_or_minus_one_says_nothing():
    limits = [{"x-ratelimit-limit-requests": odd} for odd in ("0", "00", "-1")]
    for odd in (*limits, {"x-ratelimit-remaining-requests": "-1"}):
        quota = Quota()
        quota.learn({**NOTHING_LEFT, **odd}, 0.0)
        assert quota.wait(1, 0.0) == 0.0


# By model.

NOW = 100.0


class Scene:
    """A paced upstream with two models, `big` and `mini`."""

    def __init__(self, permits: int = 4, max_queue: int = 100) -> None:
        self.room = WaitingRoom(max_queue)
        self.queue = UpstreamQueue("u", permits, Pace(6000, 6_000_000))

    def waiter(
        self, model: str, key: str = "a", priority: Priority = INTERACTIVE, tokens: int = 1, patience: float = math.inf
    ) -> Waiter:
        return Waiter(key, priority, tokens, NOW + patience, NOW, model)

    def arrive(self, waiter: Waiter, now: float = NOW) -> list[Waiter] | Rejection:
        """Returns the waiters that hold a permit after this arrival, as the layer grants them."""
        outcome = self.room.arrive(self.queue, waiter, now)
        if outcome is GRANTED_AT_ONCE:
            return [waiter]
        if isinstance(outcome, Rejection):
            return outcome
        assert isinstance(outcome, Queued)
        return self.room.grant_next(self.queue, now)

    def exhaust(self, model: str, seconds: int, left: int = 0, unit: str = "requests") -> None:
        headers = {f"x-ratelimit-remaining-{unit}": f"{left}", f"x-ratelimit-reset-{unit}": f"{seconds}s"}
        assert self.queue.learn(model, headers, NOW)


def test_a_used_up_quota_holds_the_model_that_answered_and_no_other():
    scene = Scene()
    scene.exhaust("big", 8)
    big, mini, embed = scene.waiter("big"), scene.waiter("mini"), scene.waiter("embed")
    assert scene.arrive(big) == []
    assert scene.arrive(mini) == [mini]
    assert scene.arrive(embed) == [embed]
    assert scene.queue.held_until == NOW + 8
    assert scene.room.grant_next(scene.queue, NOW + 8) == [big]


def test_with_no_room_to_wait_another_model_still_passes_at_once():
    scene = Scene(max_queue=1)
    scene.exhaust("big", 8)
    assert scene.arrive(scene.waiter("big")) == []
    mini = scene.waiter("mini")
    assert scene.room.arrive(scene.queue, mini, NOW) is GRANTED_AT_ONCE
    full = scene.arrive(scene.waiter("big"))
    assert isinstance(full, Rejection)
    assert full.kind is QUEUE_FULL


def test_waiters_of_a_held_model_are_passed_over_in_fair_order():
    """Also an interactive one by a batch call, and each model keeps its own order."""
    scene = Scene(permits=1)
    going = scene.waiter("mini")
    assert scene.arrive(going) == [going]
    first, second = scene.waiter("big"), scene.waiter("big", key="b")
    batch = scene.waiter("mini", key="c", priority=BATCH)
    for waiter in (first, second, batch):
        assert scene.arrive(waiter) == []
    scene.exhaust("big", 8)
    assert scene.room.release(scene.queue, going, 1, NOW + 1) == [batch]
    assert scene.room.release(scene.queue, batch, 1, NOW + 2) == []
    assert scene.queue.held_until == NOW + 8
    assert scene.room.grant_next(scene.queue, NOW + 8) == [second]  # its key has used less
    assert scene.room.release(scene.queue, second, 1, NOW + 9) == [first]


def test_several_models_are_released_each_in_its_time():
    scene = Scene()
    scene.exhaust("big", 8)
    scene.exhaust("mini", 3)
    big, mini = scene.waiter("big"), scene.waiter("mini")
    assert scene.arrive(big) == scene.arrive(mini) == []
    assert scene.queue.held_until == NOW + 3
    assert scene.room.grant_next(scene.queue, NOW + 3) == [mini]
    assert scene.queue.held_until == NOW + 8
    assert scene.room.grant_next(scene.queue, NOW + 8) == [big]
    assert scene.queue.held_until == 0.0


def test_a_large_call_is_not_overtaken_by_smaller_ones_of_its_model():
    scene = Scene()
    scene.exhaust("big", 8, left=100, unit="tokens")
    large, small = scene.waiter("big", tokens=200), scene.waiter("big", tokens=50)
    assert scene.arrive(large) == []
    assert scene.arrive(small) == []
    assert scene.room.leave(scene.queue, large, NOW + 1) == [small]


def test_a_call_of_a_higher_class_that_fits_goes_before_a_large_batch_call_of_its_model():
    scene = Scene()
    scene.exhaust("big", 8, left=100, unit="tokens")
    assert scene.arrive(scene.waiter("big", tokens=200, priority=BATCH)) == []
    small = scene.waiter("big", tokens=50)
    assert scene.arrive(small) == [small]


def test_a_call_that_cannot_wait_until_the_reset_is_rejected_at_once():
    scene = Scene()
    scene.exhaust("big", 8)
    late = scene.arrive(scene.waiter("big", patience=5.0))
    assert isinstance(late, Rejection)
    assert late.kind is DEADLINE_IN_QUEUE
    assert late.retry_after == pytest.approx(3.0)
    mini = scene.waiter("mini", patience=5.0)
    assert scene.arrive(mini) == [mini]


def test_held_waiters_do_not_lengthen_the_expected_wait_of_other_models():
    scene = Scene(permits=1)
    going = scene.waiter("mini")
    scene.arrive(going)
    scene.queue.learn_service_time(1.0, NOW)
    for _ in range(10):
        scene.arrive(scene.waiter("big", key="b"))
    mini = scene.waiter("mini", key="c")
    before = scene.queue.expected_wait(mini, NOW)
    scene.exhaust("big", 8)
    scene.room.release(scene.queue, going, 1, NOW + 1)
    scene.arrive(scene.waiter("mini"), NOW + 1)
    assert before is not None
    assert scene.queue.expected_wait(mini, NOW + 1) == pytest.approx(1.0)
    assert before > 1.0


def test_a_quota_counts_with_a_pace_only_and_survives_a_change_of_the_rate():
    scene = Scene()
    scene.exhaust("big", 8)
    big = scene.waiter("big")
    assert scene.arrive(big) == []
    scene.queue.pace = Pace(12_000, None)
    scene.queue.release_holds()
    assert scene.room.grant_next(scene.queue, NOW) == []
    scene.queue.pace = None
    scene.queue.release_holds()
    assert scene.room.grant_next(scene.queue, NOW) == [big]
    assert not scene.queue.learn("big", NOTHING_LEFT, NOW)


def test_one_table_serves_all_queues():
    """Two upstreams may have a model of the same name."""
    quotas: Quotas = {}
    here, there = (UpstreamQueue(name, 1, Pace(6000, None), quotas=quotas) for name in ("here", "there"))
    here.learn("m", NOTHING_LEFT, NOW)
    assert (here.rate_wait("m", 1, NOW), there.rate_wait("m", 1, NOW)) == (12.0, 0.0)
    assert set(quotas) == {("here", "m")}


def test_answers_without_such_headers_leave_nothing_behind():
    scene = Scene()
    assert not scene.queue.learn("big", {"content-type": "application/json"}, NOW)
    assert scene.queue.quotas == {}
