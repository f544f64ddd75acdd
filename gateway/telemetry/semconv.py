"""Histograms exported under two names: Sluice's own, and OpenTelemetry's for generative AI.

Each is measured once, with the labels and the bucket bounds of both; the two exports are derived at scrape
time, so a call pays for one histogram. Names, buckets and labels follow
https://github.com/open-telemetry/semantic-conventions-genai, with underscores for dots and a unit suffix.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from gateway.telemetry.exposition import HistogramExport
from gateway.telemetry.series import Histogram, Labels, SeriesStore

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
    "/v1/responses": "chat",
    "/v1/messages": "chat",
}
"""`gen_ai.operation.name` of each endpoint that generates text or vectors."""


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

    def histogram(self, store: SeriesStore) -> Histogram:
        """A histogram to observe with, with all bounds."""
        bounds = sorted({*self.bounds, *self.extra_bounds})
        return Histogram(self.name, self.help_text, bounds, self.labels, store)


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


def exports(histogram: Histogram, provider: Callable[[str], str]) -> Iterator[HistogramExport]:
    """How a histogram is exposed: a shared one under each of its names, any other as it is.

    `provider(upstream)` is the `gen_ai.provider.name` of an upstream.
    """
    every = [(bound, at) for at, bound in enumerate(histogram.bounds)]
    shared = _BY_NAME.get(histogram.name)
    if shared is None:
        yield HistogramExport(histogram.name, histogram.help_text, histogram.labels, every)
        return
    for own in shared.own:
        yield HistogramExport(own.name, own.help_text, own.labels, every, _own_labels(own, shared.labels))
    theirs = [(bound, at) for bound, at in every if bound in shared.bounds]
    names, relabel = _semconv_labels(shared.labels, provider)
    yield HistogramExport(shared.name, shared.help_text, names, theirs, relabel)


def _own_labels(own: OwnSeries, labels: tuple[str, ...]) -> Callable[[Labels], Labels | None]:
    places = [labels.index(name) for name in own.labels]
    chosen = None if own.only is None else (labels.index(own.only[0]), own.only[1])

    def relabel(values: Labels) -> Labels | None:
        if chosen is not None and values[chosen[0]] != chosen[1]:
            return None
        return tuple([values[at] for at in places])

    return relabel


def _semconv_labels(
    labels: tuple[str, ...], provider: Callable[[str], str]
) -> tuple[tuple[str, ...], Callable[[Labels], Labels | None]]:
    """The names of OpenTelemetry's labels, and the function to their values."""
    names = ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model"]
    names += [_THEIR_NAMES[label] for label in labels if label in _THEIR_NAMES]

    def relabel(values: Labels) -> Labels | None:
        given = dict(zip(labels, values, strict=True))
        upstream, operation = given["upstream"], OPERATIONS.get(given["endpoint"])
        if upstream == NO_UPSTREAM or operation is None:
            return None
        derived = [operation, provider(upstream), given["model"]]
        if "type" in given:
            derived.append(given["type"])
        if "outcome" in given:  # to Prometheus an empty label is an absent one
            derived.append(given["outcome"] if given["outcome"] != "ok" else "")
        return tuple(derived)

    return tuple(names), relabel


_THEIR_NAMES: Final = {"type": "gen_ai_token_type", "outcome": "error_type"}
