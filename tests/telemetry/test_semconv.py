"""Histograms measured once and exported under two names."""

import pytest
from kit import samples
from kit.calls import make_call
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gateway.core.call import Candidate, Route, TokenUsage
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.observe import RequestMetrics
from gateway.telemetry.semconv import provider
from gateway.wire.openai.chat import CHAT
from gateway.wire.openai.embeddings import EMBEDDINGS

OWN = {"model": "small"}
THEIRS = {"gen_ai_provider_name": "kind of a", "gen_ai_request_model": "small"}


class Scene:
    """Calls of one model at two upstreams, recorded."""

    def __init__(self) -> None:
        self.metrics = Metrics(lambda upstream: f"kind of {upstream}")
        self._observe = RequestMetrics(self.metrics, lambda call, now: None)

    def call(
        self,
        endpoint: str = CHAT,
        upstream: str = "a",
        *,
        tokens: TokenUsage | None = None,
        outcome: str = "ok",
        attempts: int = 1,
        seconds: float = 1.0,
        first: float = 0.0,
    ) -> None:
        """One that began at 100.0; its first token came after `first` seconds, its end after `seconds`."""
        call = make_call(endpoint, 100.0)
        call.routing.candidate = Candidate(upstream, "up", b'"up"')
        call.routing.route = Route("small", b'"small"', (call.routing.candidate,))
        call.attempts, call.usage.tokens, call.response.outcome, call.timing.sent_at = attempts, tokens, outcome, 100.0
        call.timing.first_token_at = 100.0 + first if first else 0.0
        self._observe.settle(call, 100.0 + seconds)

    def value(self, name: str, **labels: str) -> float | None:
        """A sample; None when there is none."""
        return samples.value(self.metrics, name, **labels)

    def bounds(self, name: str) -> list[float]:
        """Those of the first series of this name."""
        found = [float(one.labels["le"]) for one in samples.samples(self.metrics, f"{name}_bucket")]
        return found[: found.index(float("inf")) + 1]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_tokens_are_told_by_model_and_by_provider(scene: Scene) -> None:
    scene.call(tokens=TokenUsage(input=100, output=7))
    scene.call(tokens=TokenUsage(input=50, output=3), upstream="b")
    assert scene.value("sluice_request_input_tokens_sum", **OWN) == 150
    assert scene.value("sluice_response_output_tokens_sum", **OWN) == 10
    assert scene.value("sluice_request_input_tokens_bucket", **OWN, le="64.0") == 1
    assert scene.value("sluice_request_input_tokens_bucket", **OWN, le="128.0") == 2
    assert scene.value("sluice_request_input_tokens_count", **OWN) == 2
    usage = {**THEIRS, "gen_ai_operation_name": "chat", "gen_ai_token_type": "input"}
    assert scene.value("gen_ai_client_token_usage_sum", **usage) == 100
    assert scene.value("gen_ai_client_token_usage_bucket", **usage, le="64.0") == 0
    assert scene.value("gen_ai_client_token_usage_bucket", **usage, le="256.0") == 1
    assert scene.value("gen_ai_client_token_usage_bucket", **usage, le="128.0") is None


def test_what_took_no_tokens_is_no_call_of_nought(scene: Scene) -> None:
    scene.call(EMBEDDINGS, tokens=TokenUsage(input=5))
    scene.call(tokens=None)
    assert scene.value("sluice_request_input_tokens_count", **OWN) == 1
    assert scene.value("sluice_response_output_tokens_count", **OWN) is None


def test_durations_tell_errors_apart_and_leave_out_whom_no_upstream_was_asked_for(scene: Scene) -> None:
    scene.call(seconds=2.0)
    scene.call(seconds=4.0, outcome="truncated")
    scene.call(seconds=8.0, outcome="limited", attempts=0)
    name = "gen_ai_client_operation_duration_seconds_sum"
    assert scene.value("sluice_request_duration_seconds_sum", **OWN, endpoint=CHAT) == 14.0
    chat = {**THEIRS, "gen_ai_operation_name": "chat"}
    assert scene.value(name, **chat, error_type="") == 2.0
    assert scene.value(name, **chat, error_type="truncated") == 4.0
    assert sum(sample.value for sample in samples.samples(scene.metrics, name)) == 6.0


def test_first_tokens_and_those_after_them(scene: Scene) -> None:
    scene.call(first=0.5, seconds=1.5, tokens=TokenUsage(output=11))
    chat = {**THEIRS, "gen_ai_operation_name": "chat"}
    own = {**OWN, "upstream": "a"}
    for name, value in (("time_to_first_token", 0.5), ("time_per_output_token", 0.1)):
        assert scene.value(f"sluice_{name}_seconds_sum", **own) == pytest.approx(value)
        assert scene.value(f"gen_ai_server_{name}_seconds_sum", **chat) == pytest.approx(value)


FIRST = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
BETWEEN = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5]
OPERATION = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
USAGE = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864]


@pytest.mark.parametrize(
    ("theirs", "own", "bounds"),
    [
        ("gen_ai_server_time_to_first_token_seconds", "sluice_time_to_first_token_seconds", FIRST),
        ("gen_ai_server_time_per_output_token_seconds", "sluice_time_per_output_token_seconds", BETWEEN),
        ("gen_ai_client_operation_duration_seconds", "sluice_request_duration_seconds", OPERATION),
        ("gen_ai_client_token_usage", "sluice_request_input_tokens", USAGE),
    ],
)
def test_the_bounds_are_those_of_the_conventions(scene: Scene, theirs: str, own: str, bounds: list[float]) -> None:
    scene.call(first=0.5, tokens=TokenUsage(input=5, output=11))
    assert scene.bounds(theirs) == [*bounds, float("inf")]
    assert {*bounds} < {*scene.bounds(own)}
    assert "per_output" in own or "tokens" in own or 600.0 in scene.bounds(own)


def test_what_is_told_is_well_formed(scene: Scene) -> None:
    for upstream in ("a", "b", "a"):
        for endpoint in (CHAT, EMBEDDINGS):
            scene.call(endpoint, upstream, first=0.5, tokens=TokenUsage(input=5, output=11))
    text = "".join(scene.metrics.exposition(openmetrics=True))
    families = {one.name: one for one in text_string_to_metric_families(text)}
    assert families["sluice_request_input_tokens"].type == "histogram"
    assert families["gen_ai_client_token_usage"].type == "histogram"


@pytest.mark.parametrize(
    ("kind", "url", "name"),
    [
        ("vllm", "https://api.openai.com/v1", "vllm"),
        ("openai", "https://api.openai.com/v1", "openai"),
        ("openai", "https://team.openai.azure.com/openai/v1", "azure.ai.openai"),
        ("openai", "https://api.deepseek.com", "deepseek"),
        ("openai", "https://api.x.ai/v1", "x_ai"),
        ("openai", "https://api.box.ai/v1", "openai"),
        ("openai", "http://127.0.0.1:8000/v1", "openai"),
    ],
)
def test_a_provider_is_known_by_its_host(kind: str, url: str, name: str) -> None:
    assert provider(kind, url) == name
