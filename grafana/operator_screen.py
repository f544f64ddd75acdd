"""The operator's first screen: is it us, the engine or the provider?"""

from typing import Final

from grafana.panels import BAD, GOOD, WARN, Column, Placed, Query, lines, stat, table
from grafana.promql import BOTH, MODEL, UPSTREAM, quantile, rate, share

# Whose fault it is: each outcome of docs/operations.md but `ok` belongs to one of these.
OURS: Final = "internal_error|shed"
UPSTREAMS: Final = "upstream_error|upstream_timeout|truncated"
CALLERS: Final = "client_error|limited|client_gone"

_REQUESTS: Final = "sluice_requests_total"
_DURATION: Final = "sluice_request_duration_seconds"
_FIRST: Final = "sluice_time_to_first_token_seconds"
_OVERHEAD: Final = "sluice_overhead_seconds"
_WAIT: Final = "sluice_queue_wait_seconds"
_ATTEMPTS: Final = "sluice_upstream_attempts_total"
_NOW: Final = "5m"
_ANSWERED_FOR: Final = f'outcome!~"{CALLERS}"'
_FAILED: Final = f'outcome=~"{OURS}|{UPSTREAMS}"'

_US, _WAITING, _UPSTREAM, _CALLER = "blue", "yellow", "purple", "text"


def panels() -> list[Placed]:
    """The panels above all headings."""
    return [*_figures(), _where(), _whose(), _upstreams()]


def _figures() -> list[Placed]:
    return [
        stat("Calls", [Query(rate(_REQUESTS, MODEL))], unit="reqps", tells="Calls that are over, a second."),
        stat(
            "Served",
            [Query(f"1 - ({share(_REQUESTS, _FAILED, f'{_ANSWERED_FOR},{MODEL}', window=_NOW)})")],
            unit="percentunit",
            decimals=2,
            steps=((None, BAD), (0.98, WARN), (0.995, GOOD)),
            tells="Of the last 5 minutes. Calls that their own caller has spoiled (a bad request, a limit of "
            "its key, or it hung up) count neither way.",
        ),
        stat(
            "Whole call",
            [Query(quantile(q, _DURATION, MODEL, window=_NOW), f"p{round(q * 100)}") for q in (0.5, 0.99)],
            unit="s",
            tells="From the request's head to the answer's last byte, last 5 minutes.",
        ),
        stat(
            "First token",
            [Query(quantile(q, _FIRST, BOTH, window=_NOW), f"p{round(q * 100)}") for q in (0.5, 0.99)],
            unit="s",
            tells="From sending a stream's request upstream to its first event, last 5 minutes.",
        ),
        stat(
            "Oldest waiting",
            [Query(f"max(sluice_queue_oldest_seconds{{{UPSTREAM}}})")],
            unit="s",
            steps=((None, GOOD), (5, WARN), (30, BAD)),
            tells="For how long the oldest of the calls that wait in the gateway has waited.",
        ),
        stat(
            "Alerts",
            [Query('count(ALERTS{alertstate="firing",alertname=~"Sluice.+"}) or vector(0)')],
            steps=((None, GOOD), (1, BAD)),
            spark=False,
            tells="Alerts that fire; docs/runbooks.md has a page for each.",
        ),
    ]


def _where() -> Placed:
    calls = rate(f"{_DURATION}_count", window=_NOW)
    whole, own, waiting = (rate(f"{one}_sum", window=_NOW) for one in (_DURATION, _OVERHEAD, _WAIT))
    return lines(
        "Where a call's time goes",
        [
            Query(f"{own} / {calls}", "gateway"),
            Query(f"{waiting} / {calls}", "waiting in the gateway"),
            Query(f"clamp_min(({whole} - {own} - {waiting}) / {calls}, 0)", "upstream and caller"),
        ],
        unit="s",
        stacked=True,
        colours=(
            ("gateway", _US),
            ("waiting in the gateway", _WAITING),
            ("upstream and caller", _UPSTREAM),
        ),
        width=6,
        tells="Of all calls, whatever the filters. Much blue: it is us. Much yellow: an upstream has too few "
        "places, or too low a rate. The rest is the upstream's time, and that of callers that read slowly.",
    )


def _whose() -> Placed:
    return lines(
        "Whose fault failed calls are",
        [
            Query(share(_REQUESTS, f'outcome=~"{OURS}"', MODEL), "gateway"),
            Query(share(_REQUESTS, f'outcome=~"{UPSTREAMS}"', MODEL), "upstream"),
            Query(share(_REQUESTS, f'outcome=~"{CALLERS}"', MODEL), "caller"),
        ],
        unit="percentunit",
        stacked=True,
        colours=(("gateway", _US), ("upstream", _UPSTREAM), ("caller", _CALLER)),
        width=6,
        tells="gateway: shed for want of a place, or a bug. upstream: an error, a timeout, a stream cut "
        "short, after all attempts. caller: a bad request, a limit of its key, or it hung up.",
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
                f"max by (upstream) (sluice_breaker_state{{{UPSTREAM}}})",
                names=("closed", "half-open", "open"),
                steps=((None, GOOD), (1, WARN), (2, BAD)),
            ),
            Column("calls/s", rate(_ATTEMPTS, UPSTREAM, "upstream", _NOW)),
            Column(
                "failed",
                share(_ATTEMPTS, 'verdict=~"retryable|fatal"', UPSTREAM, "upstream", _NOW),
                "percentunit",
                ((None, GOOD), (0.01, WARN), (0.05, BAD)),
            ),
            Column("first token p99", quantile(0.99, _FIRST, BOTH, "upstream", _NOW), "s"),
            Column("in flight", f"sum by (upstream) (sluice_inflight{{{UPSTREAM}}})"),
            Column("waiting", f"sum by (upstream) (sluice_queue_depth{{{UPSTREAM}}})"),
        ],
        sort="failed",
        tells="One red row: it is that engine or provider. All rows red: look at the network, or at us.",
    )
