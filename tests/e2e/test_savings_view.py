"""GET /admin/savings: what was saved, from calls that went through the gateway."""

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from doubles.gateway import GatewayProcess, InProcessGateway, StartGateway
from doubles.limited import OTHER, asked, counted, limited, used
from doubles.rawclient import call
from doubles.script import compact, full
from doubles.settings import KEY, OTHER_KEY
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0

CHEAP, DEAR = {"input": 1, "output": 2}, {"input": 3, "output": 15}


@pytest.fixture
def config(upstream: FaultUpstream, tmp_path: Path) -> dict[str, Any]:
    made = limited(upstream.url, {}, price=CHEAP, usage={"store": "sqlite", "path": str(tmp_path / "usage.db")})
    made["models"]["m-small"] |= {"baseline": {"price": DEAR}, "cache": {"enabled": True}}
    return made


async def savings(gateway: InProcessGateway | GatewayProcess, query: str = "") -> Any:
    return (await call(gateway.admin_port, "GET", f"/admin/savings{query}")).json()


async def test_kept_answers_and_prices_are_told_apart(
    config: dict[str, Any], upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config)
    upstream.reply(used(100, 10, prompt_tokens_details={"cached_tokens": 60}), used(100, 10))
    for _ in range(3):
        await asked(gateway.port, {**C0, "temperature": 0})
    await asked(gateway.port, {**C0, "temperature": 0}, key=OTHER)
    told = await savings(gateway)
    assert told["requests"] == {
        "all": 4, "compared": 4, "not_compared": 0, "not_served": 0, "not_recorded": 0, "cache_hits": 2,
        "coalesced": 0, "merged": 0,
    }  # fmt: skip
    assert told["actual_usd"] == "0.00024"
    assert told["baselines"]["declared"]["usd"] == "0.0018"
    assert told["baselines"]["cheapest"]["usd"] == "0.00048"
    parts = {part["name"]: Decimal(part["saved_usd"]) for part in told["parts"]}
    assert sum(parts.values()) == Decimal("0.0018") - Decimal("0.00024")
    assert parts["exact_cache"] == Decimal("0.0009")
    assert [one["name"] for one in told["keys"]] == ["team-a", "team-b"]
    assert told["prices"][0]["source"] == "config"


async def test_a_failed_attempt_that_was_counted_is_waste(
    config: dict[str, Any], upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    config["retry"] = {"attempts": 2, "backoff_base": 0, "backoff_max": 0}
    gateway = await start_gateway(config)
    failed = {"error": {"message": "no", "code": 500}, "usage": counted(50, 0)}
    broken = [full(compact(failed), 500)]
    upstream.reply(broken, used(100, 10))
    assert (await asked(gateway.port)).status == 200
    told = await savings(gateway)
    parts = {part["name"]: part["saved_usd"] for part in told["parts"]}
    assert (parts["failed_attempts"], told["actual_usd"]) == ("-0.00005", "0.00017")


async def test_all_workers_are_in_it(config: dict[str, Any], upstream: FaultUpstream, tmp_path: Path) -> None:
    config["server"]["workers"] = 2
    with GatewayProcess(config, tmp_path) as gateway:
        for _ in range(8):  # each on a connection of its own, so that both workers get some
            assert (await asked(gateway.port)).status == 200

        async def requests() -> int:
            return int((await savings(gateway))["requests"]["compared"])

        async with asyncio.timeout(10):
            while await requests() < 8:
                await asyncio.sleep(0.05)
        told = await savings(gateway)
    # As the double counts an ordinary answer: five tokens in and two out.
    assert (told["actual_usd"], told["baselines"]["declared"]["usd"]) == ("0.000072", "0.00036")


async def test_what_is_wrong_is_told(
    config: dict[str, Any], upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config)
    assert "days must be" in (await savings(gateway, "?days=no"))["error"]
    assert (await savings(gateway, "?days=1"))["requests"]["all"] == 0
    config["usage"] = {"store": "off"}
    other = await start_gateway(config)
    assert "not recorded" in (await savings(other))["error"]


async def test_no_key_is_in_it(config: dict[str, Any], upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(config)
    upstream.reply(used(100, 10))
    await asked(gateway.port)
    text = (await call(gateway.admin_port, "GET", "/admin/savings")).body.decode()
    assert KEY not in text
    assert OTHER_KEY not in text
    assert upstream.url not in text


async def test_who_could_not_have_served_a_shared_call_is_no_alternative(
    config: dict[str, Any], upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    config["models"]["m-small"]["candidates"].append(
        {
            "upstream": "local",
            "model": "up-bare",
            "price": {"input": 0, "output": 0},
            "capabilities": ["audio"],
        }
    )
    gateway = await start_gateway(config)
    upstream.reply(used(100, 10))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    assert (await asked(gateway.port, {**C0, "temperature": 0, "tools": tools})).status == 200
    baselines = (await savings(gateway))["baselines"]
    assert baselines["cheapest"]["usd"] == "0.00012"
    assert baselines["best_single"]["names"] == {"m-small": "local/up-small"}
