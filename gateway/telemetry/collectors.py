"""Gauges that are computed at scrape time, so that no call pays for them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gateway.core.kv_tokens import KvTokens
from gateway.core.units import NANO
from gateway.telemetry.exposition import GatheredGauge


class UpstreamStatus(NamedTuple):
    """One upstream: calls in flight, calls queued, seconds the oldest has waited, circuit breaker state.

    `most` is the limit on calls in flight, `kv` its engine's KV cache where a ledger is kept.
    `up` is whether it accepts connections, None while unknown.
    """

    in_flight: int
    waiting: int
    oldest_s: float
    breaker: int
    most: int
    up: bool | None
    kv: KvTokens | None = None


_UPSTREAM_GAUGES = (
    ("sluice_upstream_inflight", "Calls in flight to an upstream, until their last byte."),
    ("sluice_upstream_queue_depth", "Calls queued in the gateway for an upstream."),
    ("sluice_upstream_queue_oldest_wait_seconds", "Time that the oldest queued call has waited."),
    ("sluice_upstream_breaker_state", "State of the circuit breaker: 0 closed, 1 half-open, 2 open."),
    ("sluice_upstream_max_concurrency", "Limit of calls in flight to an upstream, configured or found."),
    ("sluice_upstream_up", "1 while an upstream accepts connections, 0 while it does not."),
)


def upstream_gauges(statuses: Mapping[str, UpstreamStatus]) -> Iterator[GatheredGauge]:
    """The gauges of each upstream."""
    for at, (name, help_text) in enumerate(_UPSTREAM_GAUGES):
        values = [
            ((upstream,), value) for upstream, status in statuses.items() if (value := status[:6][at]) is not None
        ]
        yield GatheredGauge(name, help_text, ("upstream",), values)
    yield GatheredGauge(
        "sluice_upstream_kv_tokens",
        "Tokens of an engine's KV cache: capacity, held by the gateway's ledger, used by the engine's own figure.",
        ("upstream", "kind"),
        [
            ((upstream, kind), tokens)
            for upstream, status in statuses.items()
            if status.kv is not None
            for kind, tokens in status.kv._asdict().items()
            if tokens is not None
        ],
    )


def budget_gauge(remaining: Iterable[tuple[str, int]]) -> GatheredGauge:
    """The remaining daily budget of each key that has one; `remaining` are names and nano-dollars."""
    return GatheredGauge(
        "sluice_budget_remaining_usd",
        "Dollars that a key with usd_per_day may still spend today, after reservations of open calls.",
        ("key",),
        (((key,), nanos / NANO) for key, nanos in remaining),
    )


class ReloadStatus:
    """The `generation` of the active config, and whether the last reload `succeeded`."""

    def __init__(self) -> None:
        self.generation = 1
        self.succeeded = True

    def gauges(self) -> Iterator[GatheredGauge]:
        """Both as gauges."""
        yield GatheredGauge(
            "sluice_config_generation",
            "Number of the active config: 1 after the start, incremented by each reload.",
            (),
            [((), self.generation)],
        )
        yield GatheredGauge(
            "sluice_config_reload_success",
            "1 if the last reload succeeded, 0 if it failed and the previous config is still active.",
            (),
            [((), self.succeeded)],
        )
