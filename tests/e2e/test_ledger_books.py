"""Calls that fail, break off, are retried or abandoned: ledger and counters agree with the providers' books."""

from pathlib import Path

from doubles.gateway import StartGateway

from benchmarks import ledger
from benchmarks.billing_providers import STREAMS, WHOLE, Providers

CALLS, SEED = 300, 11


async def test_the_ledger_has_every_attempt_to_the_nano_dollar(start_gateway: StartGateway, tmp_path: Path) -> None:
    providers = Providers(SEED)
    runner, port = await ledger.serve(providers)
    try:
        own = {"server": {"port": 0}, "admin": {"port": 0}, "log": {"level": "error"}}
        gateway = await start_gateway({**own, **ledger.sections(port, tmp_path / "usage.db")})
        await ledger.drive(gateway.port, CALLS, 8, SEED)
        rows = await ledger.ledger_rows(gateway.admin_port, CALLS)
        metrics = await gateway.metrics()
    finally:
        await runner.cleanup()
    assert set(providers.books.fates) == {*WHOLE, *STREAMS}, "each fate occurred"
    assert ledger.differences(rows, providers.books.reported) == []
    assert (
        ledger.total(rows, "reported", "nano_usd") == ledger.total(providers.books.reported, "reported", "nano_usd") > 0
    )
    requests = sum(row["requests"] for row in rows.values())
    assert requests == CALLS < sum(providers.books.fates.values()), "there were retries"
    for type_ in ("input", "output", "cached_input", "reasoning", "cache_write"):
        for model in ("reported", "silent"):
            for upstream in {place[2] for place in rows}:
                booked = sum(row[type_] for place, row in rows.items() if place[1:] == (model, upstream))
                labels = {"model": model, "upstream": upstream, "type": type_}
                assert metrics.value("sluice_tokens_total", **labels) == booked, labels
    labels = {"model": "silent", "type": "input"}
    assert metrics.value("sluice_tokens_total", source="estimated", **labels) > 0
    assert metrics.value("sluice_tokens_total", source="upstream", model="reported", type="input") > 0
