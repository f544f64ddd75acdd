"""The money dashboard: what was spent by whom on what, what was saved, what is left."""

from typing import Final

from grafana.panels import (
    BAD,
    GOOD,
    WARN,
    Column,
    Json,
    Placed,
    Query,
    dashboard,
    lines,
    stat,
    table,
    variable,
)
from grafana.promql import BOTH, KEY, MODEL, increase, rate, share

_COST: Final = "sluice_cost_usd_total"
_TOKENS: Final = "sluice_tokens_total"
_SAVED: Final = "sluice_cache_saved_usd_total"
_UNPRICED: Final = "sluice_unpriced_attempts_total"
_ALL: Final = f"{BOTH},{KEY}"
_USED: Final = f'type=~"input|output",{BOTH}'
_CACHED: Final = f'type="cached_input",{BOTH}'
_INPUT: Final = f'type="input",{BOTH}'
_REPORTED: Final = f'{_INPUT},source="upstream"'
_BY_UPSTREAM: Final = "model, upstream"
_SIZE: Final = "sluice_batch_size"
_HOUR: Final = 3600


def _stats() -> list[Placed]:
    per_1k = f"1000 * {increase(_COST, BOTH)} / {increase(_TOKENS, _USED)}"
    return [
        stat("Spend", [Query(increase(_COST, _ALL))], unit="currencyUSD", decimals=4, spark=False),
        stat(
            "Current spend per hour",
            [Query(f"{_HOUR} * {rate(_COST, _ALL)}")],
            unit="currencyUSD",
            decimals=4,
        ),
        stat("Cost per 1K tokens", [Query(per_1k)], unit="currencyUSD", decimals=6, spark=False),
        stat(
            "Saved by the cache",
            [Query(increase(_SAVED, MODEL))],
            unit="currencyUSD",
            decimals=4,
            spark=False,
            description="What the reused responses cost when they were made, where prices are known.",
        ),
        stat(
            "Lowest remaining budget",
            [Query(f"min(sluice_budget_remaining_usd{{{KEY}}})")],
            unit="currencyUSD",
            decimals=2,
            steps=((None, BAD), (0.01, WARN), (1, GOOD)),
            description="Of all keys with usd_per_day. The day begins at midnight in server.timezone.",
        ),
        stat(
            "Attempts without a price",
            [Query(increase(_UNPRICED, BOTH))],
            decimals=0,
            spark=False,
            steps=((None, GOOD), (1, WARN)),
            description="Their cost is missing here. docs/usage.md shows how to set a price.",
        ),
    ]


def _per_hour(title: str, name: str, labels: str, by: str) -> Placed:
    """Dollars per hour at the current rate, by one label."""
    query = Query(f"{_HOUR} * {rate(name, labels, by)}", f"{{{{{by}}}}}")
    return lines(title, [query], unit="currencyUSD", stacked=True)


def _spend() -> list[Placed]:
    cost_per_1k = f"1000 * {increase(_COST, BOTH, _BY_UPSTREAM)} / {increase(_TOKENS, _USED, _BY_UPSTREAM)}"
    return [
        *[_per_hour(f"Spend per hour by {by}", _COST, _ALL, by) for by in ("key", "model", "upstream")],
        table(
            "Spend by key and model",
            ["key", "model"],
            [
                Column("spend", increase(_COST, _ALL, "key, model"), "currencyUSD"),
                Column("per hour, now", f"{_HOUR} * {rate(_COST, _ALL, 'key, model')}", "currencyUSD"),
            ],
            sort="spend",
        ),
        table(
            "Spend by model and upstream",
            ["model", "upstream"],
            [
                Column("spend", increase(_COST, _ALL, _BY_UPSTREAM), "currencyUSD"),
                Column("input tokens", increase(_TOKENS, _INPUT, _BY_UPSTREAM)),
                Column("output tokens", increase(_TOKENS, f'type="output",{BOTH}', _BY_UPSTREAM)),
                Column("cost per 1K tokens", cost_per_1k, "currencyUSD"),
            ],
            sort="spend",
        ),
    ]


def _budgets() -> list[Placed]:
    remaining = f"min by (key) (sluice_budget_remaining_usd{{{KEY}}})"
    return [
        lines("Remaining budget today", [Query(remaining, "{{key}}")], unit="currencyUSD"),
        lines(
            "Hours until the budget is spent",
            [
                Query(
                    f"clamp_max({remaining} / on (key) ({_HOUR} * {rate(_COST, KEY, 'key', '15m')} > 0), 24)",
                    "{{key}}",
                )
            ],
            unit="h",
            most=24,
            description="At the rate of the last 15 minutes. 24 means a day or more.",
        ),
        lines(
            "Requests rejected: budget spent",
            [Query(rate("sluice_limit_rejections_total", f'limit="usd_per_day",{KEY}', "key"), "{{key}}")],
            unit="reqps",
        ),
    ]


def _savings() -> list[Placed]:
    return [
        _per_hour("Cache: saved per hour", _SAVED, MODEL, "model"),
        lines(
            "Cache: tokens saved per second",
            [Query(rate("sluice_cache_saved_tokens_total", MODEL, "type"), "{{type}}")],
            unit="short",
            stacked=True,
            description="Tokens that no upstream had to process.",
        ),
        lines(
            "Cache: share of requests served",
            [Query(share("sluice_cache_requests_total", 'result=~"hit|collapsed"'), "share")],
            unit="percentunit",
            most=1,
            description="Cache hits, and requests that shared another request's upstream call.",
        ),
        lines(
            "Upstream's prompt cache: share of input tokens",
            [
                Query(
                    f"{rate(_TOKENS, _CACHED, _BY_UPSTREAM)} / {rate(_TOKENS, _REPORTED, _BY_UPSTREAM)}",
                    "{{model}} at {{upstream}}",
                )
            ],
            unit="percentunit",
            most=1,
            description="Most providers charge less for these tokens. /admin/usage shows what that saved.",
        ),
        lines(
            "Routing: requests by upstream",
            [Query(rate("sluice_routing_decisions_total", BOTH, _BY_UPSTREAM), "{{model}} to {{upstream}}")],
            unit="reqps",
            stacked=True,
        ),
        lines(
            "Batching: upstream calls saved",
            [
                Query(
                    f"{rate(f'{_SIZE}_sum', MODEL, 'model')} - {rate(f'{_SIZE}_count', MODEL, 'model')}",
                    "{{model}}",
                )
            ],
            unit="reqps",
            description="Requests in batches, minus the upstream calls that served them.",
        ),
    ]


def _tokens() -> list[Placed]:
    return [
        lines("Tokens per second by type", [Query(rate(_TOKENS, BOTH, "type"), "{{type}}")]),
        lines("Tokens per second by model", [Query(rate(_TOKENS, _USED, "model"), "{{model}}")], stacked=True),
        lines(
            "Cost per 1K tokens by model",
            [Query(f"1000 * {rate(_COST, _ALL, 'model')} / {rate(_TOKENS, _USED, 'model')}", "{{model}}")],
            unit="currencyUSD",
        ),
        lines(
            "Attempts without a price",
            [Query(rate(_UNPRICED, BOTH, _BY_UPSTREAM), "{{model}} at {{upstream}}")],
            unit="reqps",
        ),
        lines(
            "Attempts with estimated usage",
            [
                Query(
                    rate("sluice_usage_estimated_attempts_total", BOTH, _BY_UPSTREAM),
                    "{{model}} at {{upstream}}",
                )
            ],
            unit="reqps",
        ),
        lines("Tokens per second by source", [Query(rate(_TOKENS, _USED, "source"), "{{source}}")], stacked=True),
        lines(
            "Usage write errors",
            [Query(rate("sluice_usage_write_errors_total"), "errors")],
            unit="ops",
        ),
    ]


def build() -> Json:
    """The dashboard's JSON."""
    variables = [
        variable("key", "key", f"label_values({_COST}, key)"),
        variable("model", "model", f"label_values({_COST}, model)"),
        variable("upstream", "upstream", f"label_values({_COST}, upstream)"),
    ]
    rows = [
        ("", _stats()),
        ("Spend", _spend()),
        ("Budgets", _budgets()),
        ("Savings", _savings()),
        ("Tokens and data quality", _tokens()),
    ]
    description = "Totals cover the selected time range, today by default. docs/usage.md describes the exact ledger."
    return dashboard("sluice-money", "Sluice: money", description, variables, rows, since="now/d")
