"""The overflow layer around a fake pipeline: the state it leaves in the call."""

from collections import Counter
from collections.abc import Callable

import pytest
from kit.calls import make_call

from gateway.context_window.layer import HEADER, ContextOverflow, OverflowMetrics
from gateway.context_window.truncation import TruncationRecorder
from gateway.context_window.windows import ContextWindows
from gateway.core.call import Call, Candidate, Handler, Reply, Route, TokenEstimate
from gateway.core.caller import Caller
from gateway.core.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    QUEUE_FULL,
    RESET,
    STATUS,
    UPSTREAM_ERROR,
    Rejection,
    UpstreamFailure,
)
from gateway.wire.json import splice

BODY = b'{"messages":[{"role":"user","content":"%b"},{"role":"user","content":"b"}],"model":"m"}' % (b"a" * 999)
SHORT = b'{"messages":[{"role":"user","content":"b"}],"model":"m"}'
TOO_LONG = "prompt is too long: 900 tokens > 400 maximum"
LARGE = Route("large", b'"large"', (Candidate("b", "up-b", b'"up-b"', None, 100000),))


def overflow() -> UpstreamFailure:
    return UpstreamFailure(CONTEXT_LENGTH_EXCEEDED, TOO_LONG, cause=STATUS, status=400)


class Scene:
    """A model with this `on_overflow`, and the outcomes of its calls."""

    def __init__(self, action: str, *outcomes: object) -> None:
        self.counted: Counter[tuple[str, ...]] = Counter()
        self.call = make_call()
        self.call.request.body, self.call.request.spans = BODY, splice.model_spans(BODY)
        self.route = Route("m", b'"m"', (Candidate("a", "up-a", b'"up-a"'),))
        self.call.routing.route, self.call.routing.candidate = self.route, self.route.candidates[0]
        self.call.caller, self.call.request.model = Caller("k", None), "m"
        self.call.usage.estimate = TokenEstimate(300, 256, False)
        self.sent: list[tuple[bytes, str]] = []
        self._outcomes = iter(outcomes)
        windows = ContextWindows()
        truncations = TruncationRecorder(windows, self._estimate, self._count("finish"))
        counts = OverflowMetrics(self._count("overflow"), self._count("fallback"))
        routes = {"m": self.route, "large": LARGE}
        self.handle: Handler = ContextOverflow(routes, {"m": action}, windows, truncations, self._estimate, counts)(
            self._inner
        )

    def _count(self, what: str) -> Callable[[str, str], None]:
        def count(first: str, second: str) -> None:
            self.counted[what, first, second] += 1

        return count

    def _estimate(self, call: Call) -> TokenEstimate:
        call.usage.estimate = TokenEstimate(len(call.request.body) // 4, 256, False)
        return call.usage.estimate

    async def _inner(self, call: Call) -> Reply | Rejection:
        assert call.routing.candidate is not None
        self.sent.append((call.request.body, call.routing.candidate.upstream))
        outcome = next(self._outcomes)
        if isinstance(outcome, UpstreamFailure):
            raise outcome
        assert isinstance(outcome, Reply | Rejection)
        return outcome


OK = Reply(200, b"{}")


async def test_a_trimmed_body_resets_everything_derived_from_the_body():
    scene = Scene("drop_oldest", overflow(), OK)
    assert await scene.handle(scene.call) is OK
    call = scene.call
    assert scene.sent == [(BODY, "a"), (SHORT, "a")]
    assert [call.request.body[start:end] for start, end in call.request.spans] == [b'"m"']
    assert call.modified
    assert call.usage.estimate is None  # that of the longer body would be learned from
    assert call.response.notes[HEADER].startswith("drop_oldest; dropped_messages=1; dropped_tokens=")
    assert scene.counted == {("overflow", "m", "drop_oldest"): 1}


async def test_an_answer_of_another_model_is_marked_modified():
    scene = Scene("fallback", overflow(), OK)
    scene.call.routing.candidates, scene.call.routing.max_wait_s = scene.route.candidates, 1.0
    assert await scene.handle(scene.call) is OK
    call = scene.call
    assert scene.sent == [(BODY, "a"), (BODY, "b")]
    assert (call.modified, call.response.notes[HEADER]) == (True, "fallback; model=large")
    assert call.routing.route is not None
    assert (call.routing.route.name, call.routing.route.encoded, call.routing.route.candidates) == (
        "m",
        b'"m"',
        LARGE.candidates,
    )
    assert not call.routing.candidates
    assert scene.counted == {("overflow", "m", "fallback"): 1, ("fallback", "m", "large"): 1}


@pytest.mark.parametrize("action", ["error", "fallback", "drop_oldest", "middle_out"])
async def test_other_failures_pass_unchanged(action: str):
    failure = UpstreamFailure(UPSTREAM_ERROR, TOO_LONG, cause=RESET)
    scene = Scene(action, failure)
    with pytest.raises(UpstreamFailure) as raised:
        await scene.handle(scene.call)
    assert raised.value is failure
    assert (scene.call.modified, scene.call.response.notes, scene.counted) == (False, {}, {})


@pytest.mark.parametrize("action", ["fallback", "drop_oldest"])
async def test_a_failed_action_is_not_announced(action: str):
    refused = Rejection(QUEUE_FULL, "full")
    scene = Scene(action, overflow(), refused)
    assert await scene.handle(scene.call) is refused
    assert scene.call.response.notes == {}
    scene = Scene(action, overflow(), UpstreamFailure(UPSTREAM_ERROR, "no", cause=RESET))
    with pytest.raises(UpstreamFailure, match=r"^no$"):
        await scene.handle(scene.call)
    assert scene.call.response.notes == {}


@pytest.mark.parametrize("action", ["error", "fallback", "drop_oldest"])
async def test_the_attempts_are_bounded_and_counted_once(action: str):
    scene = Scene(action, *[overflow() for _ in range(9)])
    with pytest.raises(UpstreamFailure) as raised:
        await scene.handle(scene.call)
    assert raised.value.message.startswith(TOO_LONG)
    assert len(scene.sent) == (1 if action == "error" else 2)
    assert [key for key in scene.counted if key[0] == "overflow"] == [("overflow", "m", "error")]
    assert scene.call.response.notes == {}


async def test_a_truncated_stream_is_counted_at_its_end():
    scene = Scene("error", OK, OK)
    scene.call.request.stream = True
    await scene.handle(scene.call)
    scene.call.response.finish = "length"
    assert scene.counted == {}
    scene.call.lease.settle(scene.call, 1.0)
    assert scene.counted == {("finish", "m", "window"): 1}
