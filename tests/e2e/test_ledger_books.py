"""The ledger equals the books that providers keep, over calls that fail, break off, are retried and left."""

from pathlib import Path

from doubles.gateway import StartGateway

from benchmarks import ledger
from benchmarks.billing_providers import STREAMS, WHOLE, Providers

CALLS, SEED = 300, 11


async def test_every_attempt_is_in_it_to_the_nano_dollar(start_gateway: StartGateway, tmp_path: Path) -> None:
    providers = Providers(SEED)
    runner, port = await ledger.serve(providers)
    try:
        own = {"server": {"port": 0}, "admin": {"port": 0}, "log": {"level": "error"}}
        gateway = await start_gateway({**own, **ledger.sections(port, tmp_path / "usage.db")})
        await ledger.drive(gateway.port, CALLS, 8, SEED)
        kept = await ledger.kept(gateway.admin_port, CALLS)
    finally:
        await runner.cleanup()
    assert set(providers.books.fates) == {*WHOLE, *STREAMS}, "each fate was met"
    assert ledger.differences(kept, providers.books.told) == []
    assert (
        ledger.total(kept, "told", "nano_usd") == ledger.total(providers.books.told, "told", "nano_usd") > 0
    )
    requests = sum(row["requests"] for row in kept.values())
    assert requests == CALLS < sum(providers.books.fates.values()), "there were retries"
