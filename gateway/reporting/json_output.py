"""The savings report as JSON: every sum exact, money as text in USD."""

from collections.abc import Iterable, Mapping

from gateway.core.tokens import Price
from gateway.core.units import usd
from gateway.reporting.figures import DeclaredBaseline, ReportFigures, ReportLine
from gateway.reporting.sources import Machine, Priced

METHOD = (
    "Each compared request is priced on the tokens actually used (same-token assumption) at the prices of "
    "its day, without any provider's cache: for the baseline declared at that time, for the cheapest "
    "candidate that could serve it, and for each single candidate. The actual cost includes all attempts. "
    "Parts are computed in a fixed order and add up to baseline minus actual. Requests with an unknown "
    "price are excluded from both sides and counted."
)


def as_json(report: ReportFigures) -> dict[str, object]:
    """Return the report as plain dicts, lists, numbers and text."""
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
        "upstream_calls_avoided_by_merging": report.avoided_calls,
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
    """Return nano-dollars as USD, exactly."""
    return f"-{usd(-nanos)}" if nanos < 0 else usd(nanos)


def _against(report: ReportFigures, cost: int | None) -> dict[str, object]:
    """Compare the actual cost with another; every value is None if `cost` is."""
    if cost is None:
        return {"usd": None, "saved_usd": None, "saved_share": None}
    saved = cost - report.actual
    share = round(saved / cost, 6) if cost else None
    return {"usd": signed(cost), "saved_usd": signed(saved), "saved_share": share}


def _singles(report: ReportFigures) -> Mapping[str, str | None]:
    return {model: None if single is None else single.name for model, single in report.singles.items()}


def _declared(baseline: DeclaredBaseline) -> dict[str, object]:
    return {
        "model": baseline.model,
        "name": baseline.name,
        "from": baseline.first,
        "to": baseline.last,
        "requests": baseline.requests,
    }


def _lines(lines: Iterable[ReportLine]) -> list[dict[str, object]]:
    return [
        {
            "name": line.name,
            "requests": line.requests,
            "compared": line.compared,
            "cache_hits": line.hits,
            "coalesced": line.shared,
            "answered_by_another_candidate": line.elsewhere,
            "baseline_usd": signed(line.baseline),
            "actual_usd": signed(line.actual),
            "saved_usd": signed(line.baseline - line.actual),
        }
        for line in lines
    ]


def _machine(machine: Machine) -> dict[str, object]:
    return {
        "upstream": machine.upstream,
        "usd_per_hour": usd(machine.hourly),
        "hours_at_most": round(machine.hours, 2),
        "usd_at_most": usd(machine.cost),
    }


def _priced(row: Priced) -> dict[str, object]:
    return {
        "model": row.model,
        "upstream": row.upstream,
        "model_sent": row.sent_as,
        "source": row.source,
        "usd_per_million_tokens": None if row.price is None else _dollars(row.price),
        "differs_from": None if row.listed is None else {"source": row.catalogue, **_dollars(row.listed)},
    }


def _dollars(price: Price) -> dict[str, str | None]:
    return {
        "input": usd(price.input),
        "output": None if price.output is None else usd(price.output),
        "cached_input": usd(price.cached_input),
    }
