"""When a cascade escalates, on a fake clock."""

import asyncio
import json

import pytest
from kit.calls import make_call

from gateway.core.call import Call, Candidate, Price, Reply, Route, TokenEstimate, TokenUsage
from gateway.core.caller import Caller
from gateway.core.errors import RESET, UPSTREAM_UNAVAILABLE, UpstreamFailure
from gateway.routing.cascade.answer_checks import CheckPolicy
from gateway.routing.cascade.layer import CascadeLayer
from gateway.usage.call_usage import NOTHING, spent

CHEAP = Candidate("cheap", "up", b'"up"', Price(1, 1, 1))
STRONG = Candidate("strong", "up", b'"up"', Price(9, 9, 9))


class Scene:
    """A cascade over an upstream with fixed response times; cheap answers are empty."""

    def __init__(self, seconds: float, *, total_s: float = 100.0) -> None:
        self.now, self.seconds = 1000.0, seconds
        self.asked: list[tuple[str, float]] = []
        self.no_answer: BaseException | None = None
        self.results: list[str] = []
        self.handle = CascadeLayer(
            {"m": CheckPolicy(("empty",))},
            lambda call: TokenEstimate(1_000_000, 1_000_000, False),
            lambda upstream: total_s,
            lambda model, result: self.results.append(result),
            lambda: self.now,
        )(self._answer)

    async def _answer(self, call: Call) -> Reply:
        assert call.routing.candidate is not None
        self.asked.append((call.routing.candidate.upstream, call.timing.ready_at))
        if call.routing.candidate is STRONG and self.no_answer is not None:
            raise self.no_answer
        call.timing.sent_at = self.now
        self.now += self.seconds
        call.timing.answered_at, call.usage.tokens = self.now, TokenUsage(1, 1)
        text = "" if call.routing.candidate is CHEAP else "x"
        choice = {"message": {"content": text}, "finish_reason": "stop"}
        return Reply(200, json.dumps({"choices": [choice]}).encode())

    def call(self) -> Call:
        call = make_call(now=self.now)
        call.request.model, call.caller, call.routing.route = (
            "m",
            Caller("a", None),
            Route("m", b'"m"', (CHEAP, STRONG)),
        )
        call.routing.candidate, call.routing.candidates, call.request.body = CHEAP, [CHEAP, STRONG], b"{}"
        return call

    async def asks(self, call: Call) -> list[str]:
        await self.handle(call)
        return [upstream for upstream, _ in self.asked]


async def test_it_escalates_while_there_is_time_for_an_equally_slow_answer() -> None:
    scene = Scene(6.0, total_s=12.5)
    assert await scene.asks(scene.call()) == ["cheap", "strong"]
    assert scene.results == ["escalated"]


@pytest.mark.parametrize(("total_s", "deadline"), [(11.5, 1099.0), (99.0, 1011.5)])
async def test_it_does_not_escalate_if_an_equally_slow_answer_would_be_late(total_s: float, deadline: float) -> None:
    scene = Scene(6.0, total_s=total_s)
    call = scene.call()
    call.timing.deadline = deadline
    assert await scene.asks(call) == ["cheap"]
    assert (scene.results, call.response.notes["x-sluice-routing"]) == (["failed"], "cascade; failed=empty")


async def test_it_does_not_escalate_with_only_one_tier_left() -> None:
    scene, twin = Scene(1.0), Candidate("twin", "up", b'"up"', CHEAP.price)
    call = scene.call()
    call.routing.route, call.routing.candidates = Route("m", b'"m"', (CHEAP, twin, STRONG)), [CHEAP, twin]
    assert await scene.asks(call) == ["cheap"]
    assert scene.results == ["skipped"]


async def test_it_does_not_escalate_if_the_key_can_pay_for_one_answer_only() -> None:
    scene = Scene(1.0)
    call = scene.call()
    call.routing.ceiling = 10**9
    assert await scene.asks(call) == ["cheap"]


async def test_the_first_answers_time_is_not_gateway_overhead() -> None:
    scene = Scene(6.0)
    call = scene.call()
    await scene.handle(call)
    assert call.overhead_s(scene.now) == 0.0
    assert scene.asked[1] == ("strong", 1006.0)
    assert [one.candidate for one in call.usage.failed] == [CHEAP]
    assert call.routing.route is not None
    assert call.routing.route.candidates == (CHEAP, STRONG)


async def test_a_client_that_leaves_before_the_second_attempt_pays_for_the_first_only() -> None:
    scene = Scene(6.0)
    scene.no_answer = asyncio.CancelledError()
    call = scene.call()
    call.usage.estimate = TokenEstimate(1_000_000, 1_000_000, False)
    with pytest.raises(asyncio.CancelledError):
        await scene.handle(call)
    call.response.outcome = "client_gone"
    assert spent(call) is NOTHING
    assert [(one.candidate, one.tokens) for one in call.usage.failed] == [(CHEAP, TokenUsage(1, 1))]


@pytest.mark.parametrize("fails", [False, True])
async def test_the_candidates_are_restored_afterwards(*, fails: bool) -> None:
    scene = Scene(6.0)
    scene.no_answer = UpstreamFailure(UPSTREAM_UNAVAILABLE, "away", cause=RESET) if fails else None
    call = scene.call()
    call.batch_size = 4  # of the first answer
    await scene.handle(call)
    assert (call.routing.candidates, call.batch_size) == ([CHEAP, STRONG], 4 if fails else 0)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_doubtful_answer_is_not_cached(*, fails: bool) -> None:
    scene = Scene(6.0)
    scene.no_answer = UpstreamFailure(UPSTREAM_UNAVAILABLE, "away", cause=RESET) if fails else None
    call = scene.call()
    await scene.handle(call)
    assert call.modified is fails
