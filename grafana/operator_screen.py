"""The operator's first screen: is it us, the engine or the provider?"""

from typing import Final

from grafana.panels import BAD, GOOD, WARN, Column, Placed, Query, lines, stat, table
from grafana.promql import BOTH, MODEL, UPSTREAM, quantile, rate, share

# Each outcome in docs/monitoring.md except `ok` has one of these owners.
OURS: Final = "internal_error|shed"
UPSTREAMS: Final = "upstream_error|upstream_timeout|truncated"
CLIENTS: Final = "client_error|limited|client_gone"

_REQUESTS: Final = "sluice_requests_total"
_DURATION: Final = "sluice_request_duration_seconds"
_FIRST: Final = "sluice_time_to_first_token_seconds"
_OVERHEAD: Final = "sluice_gateway_overhead_seconds"
_WAIT: Final = "sluice_upstream_queue_wait_seconds"
_ATTEMPTS: Final = "sluice_upstream_attempts_total"
_NOW: Final = "5m"
_COUNTED: Final = f'outcome!~"{CLIENTS}"'
_FAILED: Final = f'outcome=~"{OURS}|{UPSTREAMS}"'

_GATEWAY_COLOUR, _QUEUE_COLOUR, _UPSTREAM_COLOUR, _CLIENT_COLOUR = "blue", "yellow", "purple", "text"


def panels() -> list[Placed]:
    """The panels above all rows."""
    return [*_stats(), _time_spent(), _failures_by_owner(), _upstreams()]


def _stats() -> list[Placed]:
    return [
        stat("Requests", [Query(rate(_REQUESTS, MODEL))], unit="reqps", description="Finished requests."),
        stat(
            "Success rate",
            [Query(f"1 - ({share(_REQUESTS, _FAILED, f'{_COUNTED},{MODEL}', window=_NOW)})")],
            unit="percentunit",
            decimals=2,
            steps=((None, BAD), (0.98, WARN), (0.995, GOOD)),
            description="Last 5 minutes. Requests that fail because of the client (bad request, key limit, "
            "disconnect) are excluded.",
        ),
        stat(
            "Request duration",
            [Query(quantile(q, _DURATION, MODEL, window=_NOW), f"p{round(q * 100)}") for q in (0.5, 0.99)],
            unit="s",
            description="From the request's head to the response's last byte, last 5 minutes.",
        ),
        stat(
            "Time to first token",
            [Query(quantile(q, _FIRST, BOTH, window=_NOW), f"p{round(q * 100)}") for q in (0.5, 0.99)],
            unit="s",
            description="Streams only: from sending the request upstream to the first event, last 5 minutes.",
        ),
        stat(
            "Oldest queued request",
            [Query(f"max(sluice_upstream_queue_oldest_wait_seconds{{{UPSTREAM}}})")],
            unit="s",
            steps=((None, GOOD), (5, WARN), (30, BAD)),
            description="How long the oldest request in the gateway's queue has waited.",
        ),
        stat(
            "Firing alerts",
            [Query('count(ALERTS{alertstate="firing",alertname=~"Sluice.+"}) or vector(0)')],
            steps=((None, GOOD), (1, BAD)),
            spark=False,
            description="docs/runbooks.md has a section for each.",
        ),
    ]


def _time_spent() -> Placed:
    requests = rate(f"{_DURATION}_count", window=_NOW)
    total, overhead, queued = (rate(f"{one}_sum", window=_NOW) for one in (_DURATION, _OVERHEAD, _WAIT))
    return lines(
        "Where a request's time goes",
        [
            Query(f"{overhead} / {requests}", "gateway"),
            Query(f"{queued} / {requests}", "queue"),
            Query(f"clamp_min(({total} - {overhead} - {queued}) / {requests}, 0)", "upstream and client"),
        ],
        unit="s",
        stacked=True,
        colours=(
            ("gateway", _GATEWAY_COLOUR),
            ("queue", _QUEUE_COLOUR),
            ("upstream and client", _UPSTREAM_COLOUR),
        ),
        width=6,
        description="Mean per request; the filters do not apply. Much blue: the gateway is slow. Much "
        "yellow: an upstream has too few concurrency slots or too low a rate. Purple: the upstream, or "
        "clients that read slowly.",
    )


def _failures_by_owner() -> Placed:
    return lines(
        "Failed requests by owner",
        [
            Query(share(_REQUESTS, f'outcome=~"{OURS}"', MODEL), "gateway"),
            Query(share(_REQUESTS, f'outcome=~"{UPSTREAMS}"', MODEL), "upstream"),
            Query(share(_REQUESTS, f'outcome=~"{CLIENTS}"', MODEL), "client"),
        ],
        unit="percentunit",
        stacked=True,
        colours=(("gateway", _GATEWAY_COLOUR), ("upstream", _UPSTREAM_COLOUR), ("client", _CLIENT_COLOUR)),
        width=6,
        description="gateway: overload (shed) or a bug. upstream: an error, a timeout or a broken stream "
        "after all attempts. client: a bad request, a limit of its key, or a disconnect.",
    )


def _upstreams() -> Placed:
    return table(
        "Upstreams",
        ["upstream"],
        [
            Column(
                "up",
                f"min by (upstream) (sluice_upstream_up{{{UPSTREAM}}})",
                names=("down", "up"),
                steps=((None, BAD), (1, GOOD)),
            ),
            Column(
                "breaker",
                f"max by (upstream) (sluice_upstream_breaker_state{{{UPSTREAM}}})",
                names=("closed", "half-open", "open"),
                steps=((None, GOOD), (1, WARN), (2, BAD)),
            ),
            Column("attempts/s", rate(_ATTEMPTS, UPSTREAM, "upstream", _NOW)),
            Column(
                "failed",
                share(_ATTEMPTS, 'result=~"retryable|fatal"', UPSTREAM, "upstream", _NOW),
                "percentunit",
                ((None, GOOD), (0.01, WARN), (0.05, BAD)),
            ),
            Column("first token p99", quantile(0.99, _FIRST, BOTH, "upstream", _NOW), "s"),
            Column("in flight", f"sum by (upstream) (sluice_upstream_inflight{{{UPSTREAM}}})"),
            Column("queued", f"sum by (upstream) (sluice_upstream_queue_depth{{{UPSTREAM}}})"),
        ],
        sort="failed",
        description="One red row: that engine or provider. All rows red: the network, or the gateway.",
    )
