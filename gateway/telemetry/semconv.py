"""Histograms that are told twice: as our own series, and under OpenTelemetry's names for generative AI.

Each is measured once, with all labels that either needs and with the bounds of both; what is exposed is put
together when it is asked for, so a call pays for one histogram. Names, buckets and labels are those of
https://github.com/open-telemetry/semantic-conventions-genai, with underscores for dots and the unit behind.
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
    """An engine's kind, a provider known by its host, or `openai`, whose dialect all others speak."""
    if kind != "openai":
        return kind
    host = urlsplit(base_url).hostname or ""
    return next((name for end, name in _BY_HOST if f".{host}".endswith(f".{end}")), kind)


NO_UPSTREAM: Final = ""
"""The upstream of a call that no upstream was asked for."""

OPERATIONS: Final = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
"""What each endpoint is called there."""

LabelValues = Mapping[str, str]


class OwnSeries(NamedTuple):
    """A series of ours: name, what it tells, the labels that it keeps, and those which select a part."""

    name: str
    tells: str
    keeps: tuple[str, ...]
    only: tuple[str, str] | None = None


class SharedHistogram(NamedTuple):
    """One histogram: OpenTelemetry's name and bounds, our further bounds, all labels, and our own series."""

    name: str
    tells: str
    bounds: tuple[float, ...]
    further: tuple[float, ...]
    labels: tuple[str, ...]
    own: tuple[OwnSeries, ...]

    def histogram(self) -> Histogram:
        """The one to observe with; it is in no registry."""
        bounds = sorted({*self.bounds, *self.further})
        return Histogram(self.name, self.tells, self.labels, buckets=bounds, registry=None)


_WHOM: Final = ("model", "endpoint", "upstream")

MEASURED: Final = (
    SharedHistogram(
        "gen_ai_client_operation_duration_seconds",
        "The same as sluice_request_duration_seconds, of calls that an upstream was asked for.",
        tuple(round(0.01 * 2**power, 2) for power in range(14)),
        (0.005, 1, 30, 60, 163.84, 300, 600, 1200),
        (*_WHOM, "outcome"),
        (
            OwnSeries(
                "sluice_request_duration_seconds",
                "From the request's head to the answer's last byte.",
                ("model", "endpoint"),
            ),
        ),
    ),
    SharedHistogram(
        "gen_ai_server_time_to_first_token_seconds",
        "The same as sluice_time_to_first_token_seconds.",
        (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10),
        (20, 40, 80, 160, 300, 600),
        _WHOM,
        (
            OwnSeries(
                "sluice_time_to_first_token_seconds",
                "From sending a stream's request upstream to its first event.",
                ("model", "upstream"),
            ),
        ),
    ),
    SharedHistogram(
        "gen_ai_server_time_per_output_token_seconds",
        "The same as sluice_time_per_output_token_seconds.",
        (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5),
        (0.001, 0.0025, 0.005, 0.015, 0.02, 0.03),
        _WHOM,
        (
            OwnSeries(
                "sluice_time_per_output_token_seconds",
                "Mean time between the output tokens of one stream.",
                ("model", "upstream"),
            ),
        ),
    ),
    SharedHistogram(
        "gen_ai_client_token_usage",
        "The same as sluice_request_input_tokens and sluice_response_output_tokens.",
        tuple(4**power for power in range(14)),
        tuple(2 * 4**power for power in range(10)),
        (*_WHOM, "type"),
        (
            OwnSeries(
                "sluice_request_input_tokens",
                "Input tokens of one call, as its upstream counted them.",
                ("model",),
                ("type", "input"),
            ),
            OwnSeries(
                "sluice_response_output_tokens",
                "Output tokens of one call, as its upstream counted them.",
                ("model",),
                ("type", "output"),
            ),
        ),
    ),
)
_BY_NAME: Final = {one.name: one for one in MEASURED}


class SemconvCollector(Collector):
    """Whatever `collect` gives, its measured histograms told twice.

    `provider(upstream)` is OpenTelemetry's name of what an upstream is.
    """

    def __init__(self, collect: Callable[[], Iterable[Metric]], provider: Callable[[str], str]) -> None:
        self._collect = collect
        self._provider = provider

    def collect(self) -> Iterable[Metric]:
        """prometheus-client: the samples."""
        for family in self._collect():
            measured = _BY_NAME.get(family.name)
            if measured is None:
                yield family
                continue
            for own in measured.own:
                yield _told(family, own.name, own.tells, partial(_kept, own), None)
            bounds = frozenset(map(floatToGoString, (*measured.bounds, float("inf"))))
            yield _told(family, measured.name, measured.tells, self._relabelled, bounds)

    def _relabelled(self, labels: LabelValues) -> dict[str, str] | None:
        upstream, operation = labels["upstream"], OPERATIONS.get(labels["endpoint"])
        if upstream == NO_UPSTREAM or operation is None:
            return None
        told = {
            "gen_ai_operation_name": operation,
            "gen_ai_provider_name": self._provider(upstream),
            "gen_ai_request_model": labels["model"],
        }
        if "type" in labels:
            told["gen_ai_token_type"] = labels["type"]
        if "outcome" in labels:  # Prometheus takes an empty label for none at all
            told["error_type"] = labels["outcome"] if labels["outcome"] != "ok" else ""
        return told


def _kept(own: OwnSeries, labels: LabelValues) -> dict[str, str] | None:
    if own.only is not None and labels[own.only[0]] != own.only[1]:
        return None
    return {name: labels[name] for name in own.keeps}


def _told(
    family: Metric,
    name: str,
    tells: str,
    relabelled: Callable[[LabelValues], dict[str, str] | None],
    bounds: frozenset[str] | None,
) -> Metric:
    """The family under this name; series that have the same labels there are added up. None: left out."""
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for sample in family.samples:
        bound = sample.labels.get("le")
        if bound is not None and bounds is not None and bound not in bounds:
            continue
        labels = relabelled(sample.labels)
        if labels is None:
            continue
        if bound is not None:
            labels["le"] = bound
        key = (sample.name.removeprefix(family.name), tuple(labels.items()))
        sums[key] = sums.get(key, 0.0) + sample.value
    told = Metric(name, tells, "histogram")
    for (suffix, labels_), value in sums.items():
        told.add_sample(name + suffix, dict(labels_), value)
    return told
