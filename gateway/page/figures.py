"""The overview's numbers, from metric samples: totals since the start, and rates between two moments."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

REQUESTS: Final = "sluice_requests_total"
FIRST_TOKEN: Final = "sluice_time_to_first_token_seconds_bucket"
TOKENS: Final = "sluice_tokens_total"
COST: Final = "sluice_cost_usd_total"
CACHE_SAVED: Final = "sluice_cache_saved_usd_total"
ATTEMPTS: Final = "sluice_upstream_attempts_total"
DECISIONS: Final = "sluice_routing_decisions_total"
LIMITED: Final = "sluice_limit_rejections_total"

METRICS: Final = frozenset(
    name.removesuffix("_bucket")
    for name in (REQUESTS, FIRST_TOKEN, TOKENS, COST, CACHE_SAVED, ATTEMPTS, DECISIONS, LIMITED)
)
"""The metrics that are read."""

Sample = tuple[str, Mapping[str, str], float]
"""Name, labels and value."""
Fault = Literal["nobody", "client", "gateway", "upstream"]
_FAULTS: Final[Mapping[str, Fault]] = {
    "ok": "nobody",
    "client_error": "client",
    "limited": "client",
    "client_gone": "client",
    "shed": "gateway",
    "internal_error": "gateway",
    "truncated": "upstream",
    "upstream_error": "upstream",
    "upstream_timeout": "upstream",
}
"""Whose fault an outcome is."""
OUTCOMES: Final = tuple(_FAULTS)


class Totals(Struct, frozen=True):
    """Counts since the gateway's start. `first_token` has cumulative counts by upper bound in seconds."""

    requests: Mapping[tuple[str, str], float] = {}
    """By model and outcome."""
    first_token: Mapping[float, float] = {}
    input: float = 0.0
    output: float = 0.0
    cost_usd: float = 0.0
    saved_usd: float = 0.0
    attempts: Mapping[tuple[str, str], float] = {}
    """By upstream and result."""
    decisions: Mapping[tuple[str, str, str], float] = {}
    """By model, upstream and reason."""
    limited: Mapping[tuple[str, str], float] = {}
    """By key and limit."""


class OutcomeRow(Struct, frozen=True):
    """One outcome: whose fault it is, its count, and its rate per second (None: not known yet)."""

    outcome: str
    fault: Fault
    count: int
    rate: float | None


class Overview(Struct, frozen=True):
    """The first screen. Rates are per second, None until two moments are known; latencies in seconds."""

    calls: int
    call_rate: float | None
    outcomes: list[OutcomeRow]
    first_token_p50: float | None
    first_token_p95: float | None
    input: int
    output: int
    output_rate: float | None
    cost_usd: float
    saved_usd: float


def totals(samples: Iterable[Sample]) -> Totals:
    """Add up the samples of all workers and label sets."""
    requests: dict[tuple[str, str], float] = defaultdict(float)
    first_token: dict[float, float] = defaultdict(float)
    tokens: dict[str, float] = defaultdict(float)
    attempts: dict[tuple[str, str], float] = defaultdict(float)
    decisions: dict[tuple[str, str, str], float] = defaultdict(float)
    limited: dict[tuple[str, str], float] = defaultdict(float)
    money: dict[str, float] = defaultdict(float)
    for name, labels, value in samples:
        if name == REQUESTS:
            requests[labels["model"], labels["outcome"]] += value
        elif name == FIRST_TOKEN:
            first_token[float(labels["le"])] += value
        elif name == TOKENS:
            tokens[labels["type"]] += value
        elif name == ATTEMPTS:
            attempts[labels["upstream"], labels["result"]] += value
        elif name == DECISIONS:
            decisions[labels["model"], labels["upstream"], labels["reason"]] += value
        elif name == LIMITED:
            limited[labels["key"], labels["limit"]] += value
        elif name in (COST, CACHE_SAVED):
            money[name] += value
    return Totals(
        dict(requests),
        dict(first_token),
        tokens["input"],
        tokens["output"],
        money[COST],
        money[CACHE_SAVED],
        dict(attempts),
        dict(decisions),
        dict(limited),
    )


def overview(now: Totals, before: Totals | None = None, seconds: float = 0.0) -> Overview:
    """The overview; with totals of `seconds` ago, rates and latencies are of the time between."""
    if before is None or seconds <= 0 or _calls(now) < _calls(before):  # fewer: it was restarted
        before, seconds = None, 0.0
    counts, earlier = _by_outcome(now), _by_outcome(before) if before is not None else {}

    def rate(later: float, sooner: float) -> float | None:
        return max(0.0, later - sooner) / seconds if seconds else None

    first_token = now.first_token
    if before is not None:
        grown = {bound: count - before.first_token.get(bound, 0.0) for bound, count in first_token.items()}
        first_token = grown if max(grown.values(), default=0.0) > 0 else first_token
    rows = [
        OutcomeRow(outcome, fault, int(counts.get(outcome, 0)), rate(counts.get(outcome, 0), earlier.get(outcome, 0)))
        for outcome, fault in _FAULTS.items()
        if counts.get(outcome) or outcome == "ok"
    ]
    bounds = sorted(first_token.items())
    return Overview(
        int(_calls(now)),
        rate(_calls(now), _calls(before) if before is not None else 0.0),
        rows,
        quantile(0.5, bounds),
        quantile(0.95, bounds),
        int(now.input),
        int(now.output),
        rate(now.output, before.output if before is not None else 0.0),
        now.cost_usd,
        now.saved_usd,
    )


def _calls(of: Totals) -> float:
    return sum(of.requests.values())


def _by_outcome(of: Totals) -> Mapping[str, float]:
    counts: dict[str, float] = defaultdict(float)
    for (_, outcome), count in of.requests.items():
        counts[outcome] += count
    return counts


def quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float | None:
    """The value below which this share of the observations lies, as in Prometheus's `histogram_quantile`.

    `buckets` are upper bounds, the last infinite, with cumulative counts; values are taken as evenly spread
    within a bucket. None without observations; the highest finite bound for the last bucket.
    """
    if not buckets or not buckets[-1][1]:
        return None
    rank = share * buckets[-1][1]
    low, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank and count > below:
            return low if math.isinf(bound) else low + (bound - low) * (rank - below) / (count - below)
        low, below = (low if math.isinf(bound) else bound), count
    return low
