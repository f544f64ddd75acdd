"""Members of a batch that leave, or have less time than the others, cost the others nothing."""

import asyncio
import json
from random import Random

import pytest
from batching.test_batch_layer import ROUTE, Scene, Task, answer, given, listed
from doubles.virtual_time import virtual

from gateway.batching.batcher import BatchLimits
from gateway.batching.experiment import GREEDY
from gateway.batching.layer import BatchingLayer, BatchMetrics, BatchPolicy
from gateway.core.call import Call, Candidate, Handler, Reply, Route
from gateway.core.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    DEADLINE_IN_QUEUE,
    REQUEST_SUSPENDED,
    RESET,
    STATUS,
    UPSTREAM_ERROR,
    UPSTREAM_UNAVAILABLE,
    Rejection,
    UpstreamFailure,
    upstream_status,
)
from gateway.resilience.attempt import AttemptRunner, RetryPolicy, UpstreamHealth
from gateway.resilience.attempt import RetryMetrics as AttemptCounts
from gateway.resilience.circuit_breaker import CircuitBreaker
from gateway.resilience.layer import attempts
from gateway.resilience.retry_budget import RetryBudget
from gateway.resilience.upstream_breakers import UpstreamBreakers


def hasty(scene: Scene, seconds: float, name: str = "hasty") -> Task:
    """A call whose deadline is `seconds` away."""
    call = scene.call(name)
    call.timing.deadline = scene.loop.time() + seconds
    return asyncio.create_task(scene.served(call))


def behind_attempts(scene: Scene, engine: Handler) -> None:
    """Put the retry layer below batching, with a single attempt per call and no retry budget."""
    rng, ignore = Random(1), lambda *_: None
    health = {
        name: UpstreamHealth(
            UpstreamBreakers(lambda: CircuitBreaker(100, 5.0, 60.0, rng)), RetryBudget(0.0, 0.0), 600.0
        )
        for name in ("local", "large")
    }
    counts = AttemptCounts(lambda *_: ignore, ignore, ignore)
    attempt = AttemptRunner(health, RetryPolicy(1, 0.0, 1.0), counts, scene.loop.time, asyncio.sleep, rng)
    policy = BatchPolicy(BatchLimits("window", 32, 1000, 0.05, 2), (GREEDY,), 0, 0, lambda: True, ())
    metrics = BatchMetrics(lambda *_: ignore, lambda *_: ignore, ignore)
    batching = BatchingLayer(lambda call: policy, metrics, scene.loop.time, attempt.poison.suspected)
    scene.handle = batching(attempts(attempt)(engine))


@virtual
async def test_a_batch_that_all_members_leave_before_it_starts_ends():
    scene = Scene()
    first = scene.start("first")
    await scene.at(0.5)
    task = scene.start("gone")
    # In the same turn of the loop the first is answered, which starts the batch, and the other caller leaves.
    scene.loop.call_at(scene.started + 1.0 + 1e-10, task.cancel)
    await asyncio.wait([first, task])
    assert await scene.rest()
    assert scene.sent == [(0.0, ["first"])]
    assert given(await scene.start("next")) == "next"


@virtual
async def test_a_deadline_in_the_queue_ends_only_its_own_call():
    scene = Scene(permits=1, cost=lambda items: 2.0)
    others = [scene.start("one"), scene.start("other", user="u")]  # the second group waits for the permit
    await scene.at(0.5)
    late = asyncio.create_task(scene.served(scene.call("late", user="u")))
    late.cancel()
    first, patient = hasty(scene, 2.5), scene.start("patient")
    outcome = await first
    assert isinstance(outcome, Rejection)
    assert outcome.kind is DEADLINE_IN_QUEUE
    assert given(await patient) == "patient"
    await asyncio.wait([*others, late])
    assert await scene.rest()


@virtual
async def test_a_batch_has_the_deadline_of_its_most_patient_member():
    scene = Scene("window", max_wait=0.05)
    seen: list[float] = []

    async def forward(call: Call) -> Reply | Rejection:
        reply = await scene.upstream(call)
        seen.append(call.timing.deadline)
        return reply

    scene.handle = scene.batching(forward)
    first = hasty(scene, 5.0)
    calm = hasty(scene, 9.0, "calm")
    assert (given(await first), given(await calm)) == ("hasty", "calm")
    assert seen == [scene.started + 9.0]


@virtual
async def test_a_member_that_leaves_a_batch_in_flight_has_used_the_upstream():
    scene = Scene("window", max_wait=0.05)
    gone, waiting = scene.call("gone"), scene.call("waiting")
    task, stays = asyncio.create_task(scene.served(gone)), scene.start("stays")
    await scene.at(0.5)
    task.cancel()
    await asyncio.wait([task])
    assert (gone.attempts, gone.timing.sent_at) == (1, pytest.approx(scene.started + 0.05))
    task = asyncio.create_task(scene.served(waiting))
    await scene.settled()
    task.cancel()
    await asyncio.wait([task])
    assert (waiting.attempts, waiting.timing.sent_at) == (0, 0.0)
    assert given(await stays) == "stays"
    assert await scene.rest()


@virtual
async def test_an_urgent_call_whose_caller_left_is_not_sent():
    scene = Scene(permits=1, max_inflight=1, max_wait=10.0, cost=lambda items: 2.0)
    assert given(await scene.start("learn")) == "learn"  # a call takes 2 s
    other = scene.start("other", user="u")
    await scene.settled()
    slot = scene.start("slot")
    await scene.settled()
    leaving = hasty(scene, 5.0, "leaving")  # leaves as urgent after 3 s
    await scene.at(2.0 + 3.1)
    leaving.cancel()
    await asyncio.wait([other, slot, leaving])
    assert await scene.rest()
    assert ["leaving"] not in [items for _, items in scene.sent]


@virtual
async def test_parts_answered_by_different_models_are_not_joined():
    scene = Scene()
    fallback = Candidate("fallback", "other", b'"other"')
    route = Route("m", b'"m"', ROUTE.candidates)
    route.fallbacks = (Route("n", b'"n"', (fallback,)),)

    async def upstream(call: Call) -> Reply:
        assert call.batch is not None
        call.batch.materialise(call)
        items = listed(json.loads(call.request.body))
        if items == ["b"]:
            call.routing.candidate = fallback  # the first candidate had no slot
        return Reply(200, answer(call.request.endpoint, items))

    policy = BatchPolicy(BatchLimits("eager", 32, 1000, 0.0, 2, max_items=1), (GREEDY,), 0, 0, lambda: True, ())
    counts = BatchMetrics(lambda *_: lambda _: None, lambda *_: lambda _: None, lambda *_: None)
    call = scene.call(["a", "b"])
    call.routing.route = route
    with pytest.raises(UpstreamFailure) as caught:
        await BatchingLayer(lambda call: policy, counts, scene.loop.time)(upstream)(call)
    assert caught.value.kind is UPSTREAM_UNAVAILABLE
    call = scene.call(["a", "c"])
    reply = await BatchingLayer(lambda call: policy, counts, scene.loop.time)(upstream)(call)
    assert isinstance(reply, Reply)


@virtual
async def test_a_poison_request_is_found_whichever_calls_are_merged_with_it():
    scene = Scene("window", max_wait=0.05)
    died: list[list[str]] = []

    async def engine(call: Call) -> Reply | Rejection:
        reply = await scene.upstream(call)
        items = listed(json.loads(call.request.body))
        if "boom" in items:
            died.append(items)
            raise UpstreamFailure(UPSTREAM_ERROR, "died", cause=RESET)
        return reply

    behind_attempts(scene, engine)
    ends = []
    for number in range(4):
        both = scene.start("boom"), scene.start(f"with {number}")
        ends.append((await asyncio.gather(*both, return_exceptions=True))[0])
        await asyncio.sleep(2.0)
    assert died == [["boom", "with 0"], ["boom"]]
    assert [end.kind for end in ends if isinstance(end, Rejection)] == [REQUEST_SUSPENDED] * 3


@virtual
async def test_a_very_long_list_does_not_fill_the_queue():
    scene = Scene(permits=4)
    policy = BatchPolicy(BatchLimits("eager", 32, 10_000, 0.0, 2, max_items=1), (GREEDY,), 0, 0, lambda: True, ())
    counts = BatchMetrics(lambda *_: lambda _: None, lambda *_: lambda _: None, lambda *_: None)
    scene.handle = BatchingLayer(lambda call: policy, counts, scene.loop.time)(scene.queue_layer(scene.upstream))
    task = scene.start([f"{number}" for number in range(100)])
    await scene.at(0.5)
    assert (scene.queue_layer.in_flight(), scene.queue_layer.depth()) == ({"local": 4}, {"local": 12})
    reply = await task
    assert isinstance(reply, Reply)
    assert [item["of"] for item in json.loads(reply.body)["data"]] == [f"{number}" for number in range(100)]
    assert await scene.rest()


@virtual
async def test_an_upstreams_message_about_one_input_does_not_reach_the_others():
    for failure in (
        UpstreamFailure(UPSTREAM_ERROR, "cannot read 'secret'", cause=STATUS, status=500),
        UpstreamFailure(upstream_status(400), "cannot read 'secret'", cause=STATUS, status=400, should_retry=True),
    ):
        scene = Scene("window", max_wait=0.05)
        scene.fails = [failure]
        secret, other = scene.start("secret"), scene.start("other")
        for ended in await asyncio.gather(secret, other, return_exceptions=True):
            assert isinstance(ended, Reply) or "secret" not in getattr(ended, "message", "secret")
        assert await scene.rest()


@virtual
async def test_an_oversized_prompt_moves_no_other_call_to_another_model():
    scene = Scene("window", max_wait=0.05)
    large = Candidate("large", "large", b'"large"')
    route = Route("m", b'"m"', ROUTE.candidates)
    route.fallbacks = (Route("n", b'"n"', (large,)),)
    went: list[tuple[str, list[str]]] = []

    async def engine(call: Call) -> Reply | Rejection:
        if call.batch is not None:
            call.batch.materialise(call)
        call.attempts += 1
        items = listed(json.loads(call.request.body))
        assert call.routing.candidate is not None
        went.append((call.routing.candidate.upstream, items))
        if "long" in items and call.routing.candidate is not large:
            raise UpstreamFailure(CONTEXT_LENGTH_EXCEEDED, "too long", cause=STATUS, status=400)
        return Reply(200, answer(call.request.endpoint, items))

    behind_attempts(scene, engine)
    calls = [scene.call("long"), scene.call("short")]
    for call in calls:
        call.routing.route = route
    assert [given(reply) for reply in await asyncio.gather(*map(scene.served, calls))] == ["long", "short"]
    assert sorted(went) == [
        ("large", ["long"]),
        ("local", ["long"]),
        ("local", ["long", "short"]),
        ("local", ["short"]),
    ]
