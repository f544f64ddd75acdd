"""Histograms exported under two names: Sluice's own, and OpenTelemetry's for generative AI.

Each is measured once, with the labels and the bucket bounds of both; the two exports are derived at scrape
time, so a call pays for one histogram. Names, buckets and labels follow
https://github.com/open-telemetry/semantic-conventions-genai, with underscores for dots and a unit suffix.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from prometheus_client import Histogram, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_BY_HOST: Final = (
    ("openai.azure.com", "azure.ai.openai"),
    ("services.ai.azure.com", "azure.ai.inference"),
    ("amazonaws.com", "aws.bedrock"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("anthropic.com", "anthropic"),
    ("cohere.com", "cohere"),
    ("cohere.ai", "cohere"),
    ("deepseek.com", "deepseek"),
    ("groq.com", "groq"),
    ("mistral.ai", "mistral_ai"),
    ("moonshot.ai", "moonshot_ai"),
    ("moonshot.cn", "moonshot_ai"),
    ("perplexity.ai", "perplexity"),
    ("x.ai", "x_ai"),
)


def provider(kind: str, base_url: str) -> str:
    """`gen_ai.provider.name` of an upstream: the engine's kind, the provider of a known host, or `openai`."""
    if kind != "openai":
        return kind
    host = urlsplit(base_url).hostname or ""
    return next((name for end, name in _BY_HOST if f".{host}".endswith(f".{end}")), kind)


NO_UPSTREAM: Final = ""
"""The upstream label of a call that reached no upstream."""

OPERATIONS: Final = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
"""`gen_ai.operation.name` of each endpoint."""

LabelValues = Mapping[str, str]


class OwnSeries(NamedTuple):
    """One of Sluice's series: its name, HELP text and labels, and a label value that selects part of the
    shared histogram.
    """

    name: str
    help_text: str
    labels: tuple[str, ...]
    only: tuple[str, str] | None = None


class SharedHistogram(NamedTuple):
    """One measured histogram: OpenTelemetry's name and bounds, Sluice's extra bounds, all labels, and the
    series that Sluice exports from it.
    """

    name: str
    help_text: str
    bounds: tuple[float, ...]
    extra_bounds: tuple[float, ...]
    labels: tuple[str, ...]
    own: tuple[OwnSeries, ...]

    def histogram(self) -> Histogram:
        """A histogram to observe with, outside of any registry."""
        bounds = sorted({*self.bounds, *self.extra_bounds})
        return Histogram(self.name, self.help_text, self.labels, buckets=bounds, registry=None)


_LABELS: Final = ("model", "endpoint", "upstream")

MEASURED: Final = (
    SharedHistogram(
        "gen_ai_client_operation_duration_seconds",
        "The same as sluice_request_duration_seconds, for calls that reached an upstream.",
        tuple(round(0.01 * 2**power, 2) for power in range(14)),
        (0.005, 1, 30, 60, 163.84, 300, 600, 1200),
        (*_LABELS, "outcome"),
        (
            OwnSeries(
                "sluice_request_duration_seconds",
                "Time from a request's head to the last byte of its answer.",
                ("model", "endpoint"),
            ),
        ),
    ),
    SharedHistogram(
        "gen_ai_server_time_to_first_token_seconds",
        "The same as sluice_time_to_first_token_seconds.",
        (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10),
        (20, 40, 80, 160, 300, 600),
        _LABELS,
        (
            OwnSeries(
                "sluice_time_to_first_token_seconds",
                "Time from sending a streaming request upstream to its first event.",
                ("model", "upstream"),
            ),
        ),
    ),
    SharedHistogram(
        "gen_ai_server_time_per_output_token_seconds",
        "The same as sluice_time_per_output_token_seconds.",
        (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5),
        (0.001, 0.0025, 0.005, 0.015, 0.02, 0.03),
        _LABELS,
        (
            OwnSeries(
                "sluice_time_per_output_token_seconds",
                "Mean time between the output tokens of a stream.",
                ("model", "upstream"),
            ),
        ),
    ),
    SharedHistogram(
        "gen_ai_client_token_usage",
        "The same as sluice_request_input_tokens and sluice_response_output_tokens.",
        tuple(4**power for power in range(14)),
        tuple(2 * 4**power for power in range(10)),
        (*_LABELS, "type"),
        (
            OwnSeries(
                "sluice_request_input_tokens",
                "Input tokens of a call, as reported by its upstream.",
                ("model",),
                ("type", "input"),
            ),
            OwnSeries(
                "sluice_response_output_tokens",
                "Output tokens of a call, as reported by its upstream.",
                ("model",),
                ("type", "output"),
            ),
        ),
    ),
)
_BY_NAME: Final = {shared.name: shared for shared in MEASURED}


class SemconvCollector(Collector):
    """The families of `collect`, with each shared histogram replaced by its two exports.

    `provider(upstream)` is the `gen_ai.provider.name` of an upstream.
    """

    def __init__(self, collect: Callable[[], Iterable[Metric]], provider: Callable[[str], str]) -> None:
        self._collect = collect
        self._provider = provider

    def collect(self) -> Iterable[Metric]:
        """prometheus-client: the samples."""
        for family in self._collect():
            shared = _BY_NAME.get(family.name)
            if shared is None:
                yield family
                continue
            for own in shared.own:
                yield _derive(family, own.name, own.help_text, partial(_own_labels, own), None)
            bounds = frozenset(map(floatToGoString, (*shared.bounds, float("inf"))))
            yield _derive(family, shared.name, shared.help_text, self._semconv_labels, bounds)

    def _semconv_labels(self, labels: LabelValues) -> dict[str, str] | None:
        upstream, operation = labels["upstream"], OPERATIONS.get(labels["endpoint"])
        if upstream == NO_UPSTREAM or operation is None:
            return None
        derived = {
            "gen_ai_operation_name": operation,
            "gen_ai_provider_name": self._provider(upstream),
            "gen_ai_request_model": labels["model"],
        }
        if "type" in labels:
            derived["gen_ai_token_type"] = labels["type"]
        if "outcome" in labels:  # to Prometheus an empty label is an absent one
            derived["error_type"] = labels["outcome"] if labels["outcome"] != "ok" else ""
        return derived


def _own_labels(own: OwnSeries, labels: LabelValues) -> dict[str, str] | None:
    if own.only is not None and labels[own.only[0]] != own.only[1]:
        return None
    return {name: labels[name] for name in own.labels}


def _derive(
    family: Metric,
    name: str,
    help_text: str,
    relabel: Callable[[LabelValues], dict[str, str] | None],
    bounds: frozenset[str] | None,
) -> Metric:
    """The family under another name, with series of equal new labels added up.

    A series for which `relabel` returns None is left out, and so are buckets not in `bounds`.
    """
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for sample in family.samples:
        bound = sample.labels.get("le")
        if bound is not None and bounds is not None and bound not in bounds:
            continue
        labels = relabel(sample.labels)
        if labels is None:
            continue
        if bound is not None:
            labels["le"] = bound
        key = (sample.name.removeprefix(family.name), tuple(labels.items()))
        sums[key] = sums.get(key, 0.0) + sample.value
    derived = Metric(name, help_text, "histogram")
    for (suffix, labels_), value in sums.items():
        derived.add_sample(name + suffix, dict(labels_), value)
    return derived
