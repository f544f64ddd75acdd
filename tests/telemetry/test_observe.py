"""What is left of a call in metrics and log when it is over."""

import pytest
from kit import samples
from kit.calls import make_call

from gateway.core.call import Call, Candidate, Route, TokenUsage
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.observe import RequestMetrics
from gateway.wire.openai.chat import CHAT
from gateway.wire.openai.embeddings import EMBEDDINGS

CANDIDATE = Candidate("local", "up-small", b'"up-small"')
ROUTE = Route("small", b'"small"', (CANDIDATE,))
MODEL, UPSTREAM = {"model": "small"}, {"model": "small", "upstream": "local"}
Lines = list[tuple[Call, float]]


class Scene:
    """An Observe, its metrics and its log."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.lines: Lines = []
        self.gate = RequestMetrics(self.metrics, lambda call, now: self.lines.append((call, now)))

    def value(self, name: str, **labels: str) -> float | None:
        """A sample; None when there is none."""
        return samples.value(self.metrics, name, **labels)

    def series(self, name: str) -> list[dict[str, str]]:
        """The labels of every sample with this name."""
        return [sample.labels for sample in samples.samples(self.metrics, name)]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def answered(scene: Scene, stream: bool = False) -> Call:
    """Accepted at 100.0, body there at 100.5, waited 0.25, sent at 101.0, answered at 103.0."""
    call = make_call(now=100.0)
    assert scene.gate.admit(call, 100.0) is None
    call.timing.ready_at, call.timing.queue_s, call.timing.sent_at, call.timing.answered_at = 100.5, 0.25, 101.0, 103.0
    call.request.model, call.routing.route, call.routing.candidate, call.attempts = "small", ROUTE, CANDIDATE, 1
    call.response.status, call.response.outcome, call.request.stream = 200, "ok", stream
    return call


def test_everybody_may_pass_and_is_held(scene: Scene):
    call = make_call(now=1.0)
    assert scene.gate.admit(call, 1.0) is None
    assert scene.lines == []
    call.lease.settle(call, 2.0)
    assert scene.lines == [(call, 2.0)]


def test_a_call_is_recorded_once(scene: Scene):
    call = answered(scene)
    call.lease.settle(call, 103.5)
    call.lease.settle(call, 104.5)
    assert len(scene.lines) == 1
    assert scene.value("sluice_request_duration_seconds_count", **MODEL, endpoint=CHAT) == 1


def test_calls_are_counted_by_model_endpoint_status_and_outcome(scene: Scene):
    for status, outcome in [(200, "ok"), (200, "ok"), (200, "truncated"), (504, "upstream_timeout")]:
        call = answered(scene)
        call.response.status, call.response.outcome = status, outcome
        call.lease.settle(call, 103.0)
    labels = {**MODEL, "endpoint": CHAT}
    assert scene.value("sluice_requests_total", **labels, status="200", outcome="ok") == 2
    assert scene.value("sluice_requests_total", **labels, status="200", outcome="truncated") == 1
    assert scene.value("sluice_requests_total", **labels, status="504", outcome="upstream_timeout") == 1


def test_a_model_that_a_client_made_up_is_other(scene: Scene):
    for number in range(50):
        call = make_call(EMBEDDINGS, 1.0)
        scene.gate.admit(call, 1.0)
        call.request.model, call.response.status, call.response.outcome = f"made-up-{number}", 404, "client_error"
        call.lease.settle(call, 2.0)
    expected = {"model": "other", "endpoint": EMBEDDINGS, "status": "404", "outcome": "client_error"}
    assert scene.series("sluice_requests_total") == [expected]
    assert scene.value("sluice_requests_total", **expected) == 50


def test_a_call_that_broke_before_anything_was_known_is_our_fault(scene: Scene):
    call = make_call(now=1.0)
    scene.gate.admit(call, 1.0)
    call.lease.settle(call, 1.0)
    assert [labels["outcome"] for labels in scene.series("sluice_requests_total")] == ["internal_error"]


def test_the_duration_is_from_the_head_to_the_end(scene: Scene):
    call = answered(scene)
    call.lease.settle(call, 107.5)
    assert scene.value("sluice_request_duration_seconds_sum", **MODEL, endpoint=CHAT) == 7.5


def test_the_overhead_is_what_the_gateway_took(scene: Scene):
    call = answered(scene)
    call.lease.settle(call, 103.125)
    # 0.5 s from the body to the sending, less 0.25 s of waiting; 0.125 s after the answer
    assert scene.value("sluice_gateway_overhead_seconds_sum", endpoint=CHAT) == 0.375


def test_relaying_a_stream_is_no_overhead(scene: Scene):
    call = answered(scene, stream=True)
    call.lease.settle(call, 160.0)
    assert scene.value("sluice_gateway_overhead_seconds_sum", endpoint=CHAT) == 0.25


def test_overhead_is_never_negative():
    call = make_call(now=100.0)
    call.timing.sent_at, call.timing.answered_at, call.timing.queue_s = 101.0, 102.0, 5.0
    assert call.overhead_s(102.0) == 0.0


def test_a_call_without_an_answer_has_no_overhead(scene: Scene):
    call = answered(scene)
    call.timing.answered_at = 0.0
    call.lease.settle(call, 104.0)
    assert scene.series("sluice_gateway_overhead_seconds_sum") == []


def test_the_first_token_is_timed_from_the_sending(scene: Scene):
    call = answered(scene, stream=True)
    call.timing.first_token_at = 103.0
    call.lease.settle(call, 105.0)
    assert scene.value("sluice_time_to_first_token_seconds_sum", **UPSTREAM) == 2.0


def test_the_time_per_token_is_the_mean_after_the_first(scene: Scene):
    call = answered(scene, stream=True)
    call.timing.first_token_at, call.usage.tokens = 103.0, TokenUsage(output=5)
    call.lease.settle(call, 105.0)
    assert scene.value("sluice_time_per_output_token_seconds_sum", **UPSTREAM) == 0.5


@pytest.mark.parametrize("tokens", [None, TokenUsage(output=0), TokenUsage(output=1)])
def test_one_token_has_no_time_between_tokens(scene: Scene, tokens: TokenUsage | None):
    call = answered(scene, stream=True)
    call.timing.first_token_at, call.usage.tokens = 103.0, tokens
    call.lease.settle(call, 105.0)
    assert scene.series("sluice_time_per_output_token_seconds_sum") == []


def test_a_whole_answer_has_no_first_token(scene: Scene):
    call = answered(scene)
    call.usage.tokens = TokenUsage(output=5)
    call.lease.settle(call, 105.0)
    assert scene.series("sluice_time_to_first_token_seconds_sum") == []
    assert scene.series("sluice_time_per_output_token_seconds_sum") == []


def test_a_refused_call_says_nothing_about_any_upstream(scene: Scene):
    call = make_call(now=1.0)
    scene.gate.admit(call, 1.0)
    call.routing.route, call.response.status, call.response.outcome, call.usage.tokens = (
        ROUTE,
        503,
        "shed",
        TokenUsage(input=5),
    )
    call.lease.settle(call, 2.0)
    assert scene.series("sluice_request_input_tokens_count") == []
    assert scene.value("sluice_requests_total", **MODEL, endpoint=CHAT, status="503", outcome="shed") == 1
