"""GET /admin/usage: what each key has used, to the last call, also after a restart."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import GatewayProcess, InProcessGateway, StartGateway
from doubles.limited import OTHER, FrozenClock, asked, limited, used, used_stream
from doubles.rawclient import RawClient, call
from doubles.script import NEVER, frame, piece, sse_head
from doubles.settings import AUTH, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, E0, EMBEDDINGS, S0, ask

from gateway.usage.sqlite_store import SqliteUsageStore
from gateway.usage.store import UsageBatch, UsageRow

PRICE = {"input": 1, "output": 2}
TODAY = "2026-11-18"


@pytest.fixture
def config(upstream: FaultUpstream, tmp_path: Path) -> dict[str, Any]:
    usage = {"store": "sqlite", "path": str(tmp_path / "usage.db")}
    return limited(upstream.url, {"rpm": 5}, price=PRICE, usage=usage)


@pytest.fixture
async def gateway(clock: FrozenClock, config: dict[str, Any], start_gateway: StartGateway) -> InProcessGateway:
    return await start_gateway(config)


async def usage(admin_port: int, query: str = "") -> Any:
    """What the admin port shows."""
    answer = await call(admin_port, "GET", f"/admin/usage{query}")
    assert answer.status == 200
    assert answer.header("content-type") == "application/json"
    return answer.json()


def row(key: str, model: str, requests: int, **more: Any) -> dict[str, Any]:
    """One of today, with zeros for what is not given."""
    counts: dict[str, Any] = {"input": 0, "output": 0, "cached_input": 0, "reasoning": 0, "cost_usd": "0"}
    counts |= {"cache_write": 0, "estimated": 0, "unpriced": 0}
    who = {"day": TODAY, "key": key, "model": model, "upstream": "local"}
    return {**who, "requests": requests, **counts, **more}


async def test_by_day_key_and_model(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    upstream.reply(
        used(100, 10, prompt_tokens_details={"cached_tokens": 60}),
        used_stream(200, 20),
        used(5, 5),
        used(7, 0),
    )
    await asked(gateway.port)
    await asked(gateway.port, S0)
    await asked(gateway.port, key=OTHER)
    await asked(gateway.port, E0, path=EMBEDDINGS)
    mine = row("team-a", "m-small", 2, input=300, output=30, cached_input=60, cost_usd="0.00036")
    embedded = row("team-a", "m-embed", 1, input=7, unpriced=1)
    others = row("team-b", "m-small", 1, input=5, output=5, cost_usd="0.000015")
    assert await usage(gateway.admin_port) == [embedded, mine, others]
    assert await usage(gateway.admin_port, "?key=team-b") == [others]
    assert await usage(gateway.admin_port, "?key=nobody") == []


async def test_sums_by_some_of_the_names(
    gateway: InProcessGateway, upstream: FaultUpstream, clock: FrozenClock
) -> None:
    for key, days in ((AUTH, 1), (OTHER, 0), (OTHER, 0)):
        upstream.reply(used(100, 10))
        await asked(gateway.port, key=key)
        clock.passes(days * 24 * 3600)
    by_key = await usage(gateway.admin_port, "?by=key")
    assert [(one["key"], one["requests"], one["input"], one["cost_usd"]) for one in by_key] == [
        ("team-a", 1, 100, "0.00012"),
        ("team-b", 2, 200, "0.00024"),
    ]
    assert {"day", "model", "upstream"}.isdisjoint(by_key[0])
    by_day = await usage(gateway.admin_port, "?by=day,model")
    assert [(one["day"], one["model"], one["requests"]) for one in by_day] == [
        ("2026-11-19", "m-small", 2),
        (TODAY, "m-small", 1),
    ]
    assert [one["requests"] for one in await usage(gateway.admin_port, "?by=upstream&key=team-b&days=1")] == [2]
    for wrong in ("?by=", "?by=cost", "?by=key,"):
        assert "by must be some of" in (await usage(gateway.admin_port, wrong))["error"]


async def test_more_rows_than_are_read_at_once(
    gateway: InProcessGateway, config: dict[str, Any], upstream: FaultUpstream
) -> None:
    await asked(gateway.port)
    store = SqliteUsageStore(config["usage"]["path"])
    stored = [UsageRow(TODAY, f"key-{number:04}", "m", "u", 1, 2, 3, 4, 5, 6) for number in range(2500)]
    await store.add(UsageBatch("1", tuple(stored)))
    await store.close()
    rows = await usage(gateway.admin_port)
    assert [one["key"] for one in rows] == [*(one.key for one in stored), "team-a"]


async def test_newest_day_first_and_as_many_as_asked_for(
    gateway: InProcessGateway, upstream: FaultUpstream, clock: FrozenClock
) -> None:
    await asked(gateway.port)
    clock.passes(24 * 3600)
    await asked(gateway.port)
    rows = await usage(gateway.admin_port)
    assert [one["day"] for one in rows] == ["2026-11-19", TODAY]
    assert [one["day"] for one in await usage(gateway.admin_port, "?days=1")] == ["2026-11-19"]
    assert "days" in (await usage(gateway.admin_port, "?days=none"))["error"]


async def test_what_never_reached_an_upstream_is_not_in_it(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    for _ in range(7):
        await asked(gateway.port)
    assert await asked(gateway.port, {**C0, "model": "nope"}, key=OTHER)
    (only,) = await usage(gateway.admin_port)
    assert (only["key"], only["requests"]) == ("team-a", 5)


async def test_neither_is_what_the_queue_refused(
    clock: FrozenClock, config: dict[str, Any], upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    config["server"]["max_queue"] = 0
    config["upstreams"]["local"]["max_concurrency"] = 1
    gateway = await start_gateway(config)
    upstream.reply([NEVER])
    client = await RawClient.open(gateway.port)
    await client.request("POST", CHAT, C0, [AUTH])
    await upstream.received(1)
    assert (await asked(gateway.port, key=OTHER)).status == 503
    await client.close()
    await gateway.counted("sluice_requests_total", 1, outcome="client_gone")
    (only,) = await usage(gateway.admin_port)
    assert (only["key"], only["requests"]) == ("team-a", 1)


async def test_failures_count_as_requests_that_used_nothing(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    upstream.reply(replies.error(500))
    assert (await asked(gateway.port)).status == 502
    assert await usage(gateway.admin_port) == [row("team-a", "m-small", 1)]


async def test_who_leaves_is_in_it_with_what_has_passed(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    upstream.reply([sse_head(), *[frame(piece("word"))] * 50, NEVER])
    client = await RawClient.open(gateway.port)
    await client.request("POST", CHAT, {**S0, "max_tokens": 90}, [OTHER])
    answer = await client.head()
    while answer.body.count(b"data:") < 50:
        await client.chunk(answer)
    await client.close()
    await gateway.outcome("client_gone")
    (only,) = await usage(gateway.admin_port)
    assert only["output"] == 50
    assert 1 <= only["input"] <= 20


async def test_without_keys_everybody_is_anonymous(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    config = settings(upstream.url, usage={"store": "sqlite", "path": str(tmp_path / "usage.db")})
    gateway = await start_gateway(config)
    await ask(gateway.port, C0)
    assert await usage(gateway.admin_port) == [row("anonymous", "m-small", 1, input=5, output=2, unpriced=1)]


async def test_off_says_so(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url))
    await ask(gateway.port, C0)
    assert "not recorded" in (await usage(gateway.admin_port))["error"]


@pytest.mark.parametrize("view", ["usage", "savings"])
async def test_a_file_that_cannot_be_read_is_a_503_that_says_so(
    gateway: InProcessGateway, config: dict[str, Any], view: str
) -> None:
    file = Path(config["usage"]["path"])
    file.unlink()
    file.mkdir()
    answer = await call(gateway.admin_port, "GET", f"/admin/{view}")
    assert answer.status == 503
    assert "unable to open" in answer.json()["error"]
    file.rmdir()
    assert (await call(gateway.admin_port, "GET", f"/admin/{view}")).status == 200


async def test_it_outlives_a_restart(
    clock: FrozenClock,
    config: dict[str, Any],
    upstream: FaultUpstream,
    start_gateway: StartGateway,
    tmp_path: Path,
) -> None:
    first = await InProcessGateway(config, tmp_path).start()
    await asked(first.port)
    await first.stop()
    second = await start_gateway(config)
    await asked(second.port)
    assert await usage(second.admin_port) == [row("team-a", "m-small", 2, input=10, output=4, cost_usd="0.000018")]


async def test_two_workers_write_one_report(upstream: FaultUpstream, tmp_path: Path) -> None:
    file = {"store": "sqlite", "path": str(tmp_path / "usage.db")}
    config = settings(upstream.url, keys=True, usage=file, server={"workers": 2})
    with GatewayProcess(config, tmp_path) as gateway:
        for _ in range(20):  # each on a connection of its own, so that both workers get some
            assert (await ask(gateway.port, C0, [AUTH])).status == 200
        async with asyncio.timeout(10):
            while sum(one["requests"] for one in await usage(gateway.admin_port)) < 20:
                await asyncio.sleep(0.05)
        (only,) = await usage(gateway.admin_port)
    assert (only["key"], only["requests"], only["input"], only["output"]) == ("team-a", 20, 100, 40)
