"""A report for machines: every sum exact, money as text in USD."""

from collections.abc import Iterable, Mapping

from gateway.core.tokens import Price
from gateway.core.units import usd
from gateway.reporting.figures import Declared, ReportFigures, ReportLine
from gateway.reporting.sources import Machine, Priced

METHOD = (
    "Each compared request is priced on the tokens that were really used (same-token assumption) at the "
    "prices of its day, without any provider's cache, for the baseline that was declared at that time, for "
    "the cheapest candidate that could serve it, and for each candidate alone. Actual cost has all attempts "
    "in it. Parts are taken in a fixed order and add up to baseline less actual. Requests with an unknown "
    "price are left out of both sides and counted."
)


def as_json(report: ReportFigures) -> dict[str, object]:
    """The report as plain dicts, lists, numbers and text."""
    sums = report.sums
    return {
        "from": report.period.first,
        "to": report.period.last,
        "timezone": report.period.zone,
        "method": METHOD,
        "quality": {"measured": False, "answered_by_another_candidate": sums.elsewhere},
        "requests": {
            "all": report.requests,
            "compared": sums.compared,
            "not_compared": sums.uncompared,
            "not_served": sums.failed,
            "not_recorded": report.unrecorded,
            "cache_hits": sums.hits,
            "coalesced": sums.shared,
            "merged": sums.merged,
        },
        "tokens": {
            "input": report.input,
            "output": report.output,
            "cached_input": report.cached_input,
            "saved_by_cache": {"input": sums.hit_input, "output": sums.hit_output},
            "saved_by_coalescing": {"input": sums.shared_input, "output": sums.shared_output},
        },
        "upstream_calls_spared_by_merging": report.spared_calls,
        "actual_usd": signed(report.actual),
        "baselines": {
            "declared": _against(report, report.baseline) | {"names": [*map(_declared, report.declared)]},
            "cheapest": _against(report, sums.cheapest),
            "best_single": _against(report, report.single) | {"names": _singles(report)},
        },
        "parts": [{"name": part.name, "saved_usd": signed(part.saved)} for part in report.parts],
        "left_out": {
            "usd": signed(report.outside),
            "unpriced_attempts": report.unpriced,
            "unpriced_tokens": {"input": sums.unpriced_input, "output": sums.unpriced_output},
        },
        "estimated_attempts": report.estimated,
        "machines": [*map(_machine, report.machines)],
        "models": _lines(report.models),
        "keys": _lines(report.keys),
        "prices": [*map(_priced, report.prices)],
    }


def signed(nanos: int) -> str:
    """Nano-dollars as USD, exactly."""
    return f"-{usd(-nanos)}" if nanos < 0 else usd(nanos)


def _against(report: ReportFigures, cost: int | None) -> dict[str, object]:
    """None where there is nothing to compare with."""
    if cost is None:
        return {"usd": None, "saved_usd": None, "saved_share": None}
    saved = cost - report.actual
    share = round(saved / cost, 6) if cost else None
    return {"usd": signed(cost), "saved_usd": signed(saved), "saved_share": share}


def _singles(report: ReportFigures) -> Mapping[str, str | None]:
    return {model: None if one is None else one.name for model, one in report.singles.items()}


def _declared(one: Declared) -> dict[str, object]:
    return {"model": one.model, "name": one.name, "from": one.first, "to": one.last, "requests": one.requests}


def _lines(lines: Iterable[ReportLine]) -> list[dict[str, object]]:
    return [
        {
            "name": one.name,
            "requests": one.requests,
            "compared": one.compared,
            "cache_hits": one.hits,
            "coalesced": one.shared,
            "answered_by_another_candidate": one.elsewhere,
            "baseline_usd": signed(one.baseline),
            "actual_usd": signed(one.actual),
            "saved_usd": signed(one.baseline - one.actual),
        }
        for one in lines
    ]


def _machine(one: Machine) -> dict[str, object]:
    return {
        "upstream": one.upstream,
        "usd_per_hour": usd(one.hourly),
        "hours_at_most": one.hours,
        "usd_at_most": usd(one.cost),
    }


def _priced(one: Priced) -> dict[str, object]:
    return {
        "model": one.model,
        "upstream": one.upstream,
        "model_sent": one.sent_as,
        "source": one.source,
        "usd_per_million_tokens": None if one.price is None else _dollars(one.price),
        "differs_from": None if one.listed is None else {"source": one.catalogue, **_dollars(one.listed)},
    }


def _dollars(price: Price) -> dict[str, str | None]:
    return {
        "input": usd(price.input),
        "output": None if price.output is None else usd(price.output),
        "cached_input": usd(price.cached_input),
    }
