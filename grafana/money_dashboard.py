"""The dashboard of money: what was spent by whom on what, what was saved, what is left."""

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
from grafana.promql import BOTH, KEY, MODEL, grown, rate, share

_COST: Final = "sluice_cost_usd_total"
_TOKENS: Final = "sluice_tokens_total"
_SAVED: Final = "sluice_cache_saved_usd_total"
_UNPRICED: Final = "sluice_unpriced_requests_total"
_WHOSE: Final = f"{BOTH},{KEY}"
_USED: Final = f'type=~"input|output",{BOTH}'
_READ: Final = f'type="cached_input",{BOTH}'
_INPUT: Final = f'type="input",{BOTH}'
_AT: Final = "model, upstream"
_SIZE: Final = "sluice_batch_size"
_HOUR: Final = 3600


def _head() -> list[Placed]:
    per_1k = f"1000 * {grown(_COST, BOTH)} / {grown(_TOKENS, _USED)}"
    return [
        stat("Spent", [Query(grown(_COST, _WHOSE))], unit="currencyUSD", decimals=4, spark=False),
        stat(
            "Spent an hour, now",
            [Query(f"{_HOUR} * {rate(_COST, _WHOSE)}")],
            unit="currencyUSD",
            decimals=4,
        ),
        stat("For 1000 tokens", [Query(per_1k)], unit="currencyUSD", decimals=6, spark=False),
        stat(
            "Saved by the cache",
            [Query(grown(_SAVED, MODEL))],
            unit="currencyUSD",
            decimals=4,
            spark=False,
            tells="What the answers had cost that were given again, as far as prices are known.",
        ),
        stat(
            "Least budget left",
            [Query(f"min(sluice_budget_left_usd{{{KEY}}})")],
            unit="currencyUSD",
            decimals=2,
            steps=((None, BAD), (0.01, WARN), (1, GOOD)),
            tells="Of all keys with usd_per_day; today, as the gateway's day goes.",
        ),
        stat(
            "Calls without a price",
            [Query(grown(_UNPRICED, BOTH))],
            decimals=0,
            spark=False,
            steps=((None, GOOD), (1, WARN)),
            tells="They cost something that is in no figure here. docs/usage.md tells how to set a price.",
        ),
    ]


def _an_hour(title: str, name: str, labels: str, by: str) -> Placed:
    """Dollars at the present pace, by one label."""
    query = Query(f"{_HOUR} * {rate(name, labels, by)}", f"{{{{{by}}}}}")
    return lines(title, [query], unit="currencyUSD", stacked=True)


def _spend() -> list[Placed]:
    return [
        *[_an_hour(f"Spent an hour, by {by}", _COST, _WHOSE, by) for by in ("key", "model", "upstream")],
        table(
            "By key and model",
            ["key", "model"],
            [
                Column("spent", grown(_COST, _WHOSE, "key, model"), "currencyUSD"),
                Column("an hour, now", f"{_HOUR} * {rate(_COST, _WHOSE, 'key, model')}", "currencyUSD"),
            ],
            sort="spent",
        ),
        table(
            "By model and upstream",
            ["model", "upstream"],
            [
                Column("spent", grown(_COST, _WHOSE, _AT), "currencyUSD"),
                Column("input tokens", grown(_TOKENS, _INPUT, _AT)),
                Column("output tokens", grown(_TOKENS, f'type="output",{BOTH}', _AT)),
                Column(
                    "for 1000 tokens",
                    f"1000 * {grown(_COST, BOTH, _AT)} / {grown(_TOKENS, _USED, _AT)}",
                    "currencyUSD",
                ),
            ],
            sort="spent",
        ),
    ]


def _budgets() -> list[Placed]:
    left = f"min by (key) (sluice_budget_left_usd{{{KEY}}})"
    return [
        lines("Budget left today", [Query(left, "{{key}}")], unit="currencyUSD"),
        lines(
            "Hours until it is gone, at the pace of the last 15 minutes",
            [
                Query(
                    f"clamp_max({left} / on (key) ({_HOUR} * {rate(_COST, KEY, 'key', '15m')} > 0), 24)",
                    "{{key}}",
                )
            ],
            unit="h",
            most=24,
            tells="24 stands for a day and more.",
        ),
        lines(
            "Refused: the budget was spent",
            [Query(rate("sluice_limit_rejections_total", f'limit="usd_per_day",{KEY}', "key"), "{{key}}")],
            unit="reqps",
        ),
    ]


def _saved() -> list[Placed]:
    return [
        _an_hour("Cache: saved an hour", _SAVED, MODEL, "model"),
        lines(
            "Cache: tokens that no upstream had to make",
            [Query(rate("sluice_cache_saved_tokens_total", MODEL, "type"), "{{type}}")],
            unit="short",
            stacked=True,
            tells="A second.",
        ),
        lines(
            "Cache: calls it answered",
            [Query(share("sluice_cache_requests_total", 'result=~"hit|collapsed"'), "share")],
            unit="percentunit",
            most=1,
        ),
        lines(
            "Prefix: input that the upstream read from its own cache",
            [
                Query(
                    f"{rate(_TOKENS, _READ, _AT)} / {rate(_TOKENS, _INPUT, _AT)}",
                    "{{model}} at {{upstream}}",
                )
            ],
            unit="percentunit",
            most=1,
            tells="Its price is lower at most providers; what it saved is in /admin/usage.",
        ),
        lines(
            "Routes: which upstream got the calls",
            [Query(rate("sluice_routed_total", BOTH, _AT), "{{model}} to {{upstream}}")],
            unit="reqps",
            stacked=True,
        ),
        lines(
            "Batches: upstream calls that were spared",
            [
                Query(
                    f"{rate(f'{_SIZE}_sum', MODEL, 'model')} - {rate(f'{_SIZE}_count', MODEL, 'model')}",
                    "{{model}}",
                )
            ],
            unit="reqps",
            tells="Callers who shared a call, less the calls.",
        ),
    ]


def _tokens() -> list[Placed]:
    return [
        lines("Tokens a second, by type", [Query(rate(_TOKENS, BOTH, "type"), "{{type}}")]),
        lines("Tokens a second, by model", [Query(rate(_TOKENS, _USED, "model"), "{{model}}")], stacked=True),
        lines(
            "For 1000 tokens, by model",
            [Query(f"1000 * {rate(_COST, _WHOSE, 'model')} / {rate(_TOKENS, _USED, 'model')}", "{{model}}")],
            unit="currencyUSD",
        ),
        lines(
            "Calls without a price",
            [Query(rate(_UNPRICED, BOTH, _AT), "{{model}} at {{upstream}}")],
            unit="reqps",
        ),
        lines(
            "Calls whose usage is estimated",
            [Query(rate("sluice_estimated_usage_total", BOTH, _AT), "{{model}} at {{upstream}}")],
            unit="reqps",
        ),
        lines(
            "Writes of usage that failed",
            [Query(rate("sluice_usage_write_errors_total"), "writes")],
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
        ("", _head()),
        ("Spend", _spend()),
        ("Budgets", _budgets()),
        ("Saved", _saved()),
        ("Tokens, and what is not known", _tokens()),
    ]
    tells = "Sums are those of the time that is shown, today at first. docs/usage.md has the exact ledger."
    return dashboard("sluice-money", "Sluice: money", tells, variables, rows, since="now/d")
