"""A reload in the middle of everything: what new calls see, what old ones keep, what outlives it by name."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.limited import asked, limited, used
from doubles.rawclient import RawClient, call
from doubles.redis_server import RedisServer
from doubles.script import LAST_CHUNK, Until, frame, sse_head
from doubles.settings import AUTH, KEY, OTHER_KEY, settings
from doubles.sse import contents
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, E0, EMBEDDINGS, S0, ask
from doubles.waiting import eventually

from gateway.assembly.reload import apply
from gateway.config.load import load
from gateway.usage.store import UsageUnavailable

Reload = Callable[[InProcessGateway, Mapping[str, Any]], Awaitable[str | None]]
OTHER = ("authorization", f"Bearer {OTHER_KEY}")
EVENTS = replies.chat_events("one", "two")
PRICE = {"input": 1000, "output": 2000}


@pytest.fixture(autouse=True)
def logging(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What the log was set to; this process's own log stays as it is."""
    shapes: list[tuple[str, str]] = []
    monkeypatch.setattr("gateway.telemetry.logging.setup", lambda level, shape: shapes.append((level, shape)))
    return shapes


@pytest.fixture
def reload(tmp_path: Path) -> Reload:
    """Puts another config in force; gives why not."""

    async def reload(gateway: InProcessGateway, config: Mapping[str, Any]) -> str | None:
        file = tmp_path / "other.yaml"
        file.write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
        loaded = load(file, {})
        assert loaded.config is not None, loaded.problems
        return await apply(gateway._gateway, loaded.config)

    return reload


async def test_a_new_key_works_and_one_that_is_gone_is_refused(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    config = settings(upstream.url, keys=True)
    first, second = config["keys"]
    gateway = await start_gateway({**config, "keys": [first]})
    assert (await ask(gateway.port, C0, [AUTH])).status == 200
    assert (await ask(gateway.port, E0, [OTHER], EMBEDDINGS)).status == 401
    # On a connection that was there before, too.
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, C0, [AUTH])
        assert (await client.response()).status == 200
        await reload(gateway, {**config, "keys": [second]})
        await client.request("POST", CHAT, C0, [AUTH])
        assert (await client.response()).status == 401
    assert (await ask(gateway.port, E0, [OTHER], EMBEDDINGS)).status == 200
    await reload(gateway, {**config, "keys": [{**second, "key": KEY}]})
    assert (await ask(gateway.port, E0, [AUTH], EMBEDDINGS)).status == 200
    assert (await ask(gateway.port, E0, [OTHER], EMBEDDINGS)).status == 401


async def test_models_and_limits_of_requests_are_those_of_the_new_config(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    gateway = await start_gateway(settings(upstream.url))
    models = {"m-new": {"candidates": [{"upstream": "local", "model": "up-new"}]}}
    await reload(gateway, settings(upstream.url, server={"max_body": 1000}, models=models))
    listed = (await call(gateway.port, "GET", "/v1/models")).json()
    assert [one["id"] for one in listed["data"]] == ["m-new"]
    assert (await ask(gateway.port, C0)).status == 404
    assert (await ask(gateway.port, {**C0, "model": "m-new"})).status == 200
    assert upstream.calls[-1].json()["model"] == "up-new"
    assert (await ask(gateway.port, {"model": "m-new", "messages": ["x" * 1000]})).status == 413
    shown = (await call(gateway.admin_port, "GET", "/admin/config")).json()
    assert list(shown["models"]) == ["m-new"]


async def test_ops_14_a_stream_ends_whole_though_its_model_and_upstream_are_gone(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    go_on = asyncio.Event()
    upstream.always([sse_head(), frame(EVENTS[0]), Until(go_on), *map(frame, EVENTS[1:]), LAST_CHUNK])
    gateway = await start_gateway(settings(upstream.url))
    async with FaultUpstream() as other, await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, S0)
        answer = await client.head()
        await client.chunk(answer)
        models = {"m-other": {"candidates": [{"upstream": "other", "model": "up-other"}]}}
        upstreams = {"other": {"base_url": other.url}}
        await reload(gateway, settings(upstream.url, upstreams=upstreams, models=models))
        assert (await ask(gateway.port, C0)).status == 404
        assert (await ask(gateway.port, {**C0, "model": "m-other"})).status == 200
        gateway._gateway._retired.tick(0.0)
        assert len(upstream.connections) == 1
        go_on.set()
        await client.rest(answer)
        assert answer.complete
        assert contents(answer.body) == "onetwo"
        await upstream.idle(within=2)  # sooner than an idle connection would be closed


async def test_who_waits_goes_with_the_key_it_came_for_and_newcomers_with_the_new_one(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    go_on = asyncio.Event()
    upstream.always([Until(go_on), *replies.chat()])
    own = {"max_concurrency": 1, "api_key": "up-old"}
    gateway = await start_gateway(settings(upstream.url, upstream=own))
    tasks = [asyncio.create_task(ask(gateway.port, C0))]
    await upstream.received(1)
    tasks.append(asyncio.create_task(ask(gateway.port, C0)))
    await gateway.counted("sluice_upstream_queue_depth", 1)
    await reload(gateway, settings(upstream.url, upstream={**own, "api_key": "up-new"}))
    tasks.append(asyncio.create_task(ask(gateway.port, C0)))
    await gateway.counted("sluice_upstream_queue_depth", 2)
    go_on.set()
    assert [(await task).status for task in tasks] == [200, 200, 200]
    sent = [one.header("authorization") for one in upstream.calls]
    assert sent == [["Bearer up-old"], ["Bearer up-old"], ["Bearer up-new"]]
    assert upstream.most_in_flight == 1


async def test_a_call_whose_body_is_on_its_way_goes_by_what_it_came_under(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    config = settings(upstream.url, keys=True)
    gateway = await start_gateway(config)
    for body in (C0, S0):
        text = json.dumps(body).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: {AUTH[1]}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
        async with await RawClient.open(gateway.port) as client:
            client.writer.write(head.encode() + text[:10])
            await eventually(lambda: len(gateway._gateway._serve.open_calls) == 1, "it has come")
            without = {"m-embed": config["models"]["m-embed"]}
            await reload(gateway, {**config, "models": without, "keys": config["keys"][1:]})
            client.writer.write(text[10:])
            answer = await client.response()
            assert (answer.status, answer.complete) == (200, True)
        assert (await ask(gateway.port, body, [AUTH])).status == 401
        await reload(gateway, config)


async def test_a_shorter_heartbeat_is_kept(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    gateway = await start_gateway(settings(upstream.url, server={"heartbeat": "60s"}))
    await reload(gateway, settings(upstream.url, server={"heartbeat": "50ms"}))
    heard = asyncio.Event()
    upstream.always([Until(heard), *replies.chat_stream()])
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, S0)
        answer = await client.head()
        assert (await client.chunk(answer)).startswith(b": ")
        heard.set()
        await client.rest(answer)
        assert answer.complete
    assert gateway._gateway._pipelines.ticker is not gateway._gateway._pipeline.generation.ticker


async def test_connections_to_an_upstream_are_kept_while_they_are_good_for_it(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    gateway = await start_gateway(settings(upstream.url))
    assert (await ask(gateway.port, C0)).status == 200
    await reload(gateway, settings(upstream.url, upstream={"timeouts": {"total": "300s"}}))
    assert (await ask(gateway.port, C0)).status == 200
    assert upstream.accepted == 2  # the look at the start, and this one
    await reload(gateway, settings(upstream.url, upstream={"headers": {"x-tenant": "a"}}))
    assert (await ask(gateway.port, C0)).status == 200
    assert upstream.accepted == 3
    assert upstream.calls[-1].header("x-tenant") == ["a"]
    await upstream.until(lambda: len(upstream.connections) == 1, "the old pool is closed", within=2)


async def test_readiness_does_not_flicker(upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload) -> None:
    gateway = await start_gateway(settings(upstream.url))
    assert (await ask(gateway.port, C0)).status == 200
    more = {"local": {"base_url": upstream.url}, "more": {"base_url": "http://127.0.0.1:1/v1"}}
    await reload(gateway, settings(upstream.url, upstreams=more))
    assert await gateway._gateway.not_ready() is None
    assert (await call(gateway.admin_port, "GET", "/readyz")).status == 200


async def test_requests_of_this_minute_stay_used_and_new_limits_apply(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 2}))
    assert [(await asked(gateway.port)).status for _ in range(3)] == [200, 200, 429]
    await reload(gateway, limited(upstream.url, {"rpm": 2}, server={"max_body": "1MiB"}))
    assert (await asked(gateway.port)).status == 429
    await reload(gateway, limited(upstream.url, {"rpm": 4}))
    refused = await asked(gateway.port)  # as much of the minute is used up as before: all of it
    assert (refused.status, refused.header("x-ratelimit-limit-requests")) == (429, "4")
    assert 10_000 < int(refused.header("retry-after-ms") or 0) <= 15_000
    await reload(gateway, limited(upstream.url, {"tpm": 10_000}))
    answer = await asked(gateway.port)
    assert (answer.status, answer.header("x-ratelimit-limit-tokens")) == (200, "10000")


async def test_a_key_that_was_out_for_a_moment_has_not_got_its_limit_anew(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    config = limited(upstream.url, {"rpm": 1})
    gateway = await start_gateway(config)
    assert (await asked(gateway.port)).status == 200
    await reload(gateway, {**config, "keys": config["keys"][1:]})
    assert (await asked(gateway.port)).status == 401
    await reload(gateway, config)
    assert (await asked(gateway.port)).status == 429


async def test_places_of_calls_under_way_stay_taken(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    go_on = asyncio.Event()
    upstream.always([Until(go_on), *replies.chat()])
    gateway = await start_gateway(limited(upstream.url, {"concurrency": 2}))
    first = asyncio.create_task(asked(gateway.port))
    await upstream.received(1)
    await reload(gateway, limited(upstream.url, {"concurrency": 1}))
    assert (await asked(gateway.port)).error["type"] == "concurrency"
    go_on.set()
    assert (await first).status == 200
    await gateway.counted("sluice_upstream_inflight", 0)
    assert (await asked(gateway.port)).status == 200


async def test_dollars_of_today_stay_spent(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    upstream.always(used(1000, 0))
    gateway = await start_gateway(limited(upstream.url, {"usd_per_day": 1}, price=PRICE))
    assert (await asked(gateway.port, {**C0, "max_tokens": 1})).status == 200
    assert (await asked(gateway.port)).error["code"] == "insufficient_quota"
    await reload(gateway, limited(upstream.url, {"usd_per_day": 1, "rpm": 99}, price=PRICE))
    assert (await asked(gateway.port)).error["code"] == "insufficient_quota"
    await reload(gateway, limited(upstream.url, {"usd_per_day": 3}, price=PRICE))
    assert (await asked(gateway.port, {**C0, "max_tokens": 1})).status == 200


async def test_a_new_budget_knows_what_the_key_has_spent_before_it_had_one(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload, tmp_path: Path
) -> None:
    usage = {"store": "sqlite", "path": str(tmp_path / "usage.db")}
    upstream.always(used(1000, 0))
    gateway = await start_gateway(limited(upstream.url, {}, price=PRICE, usage=usage))
    assert (await asked(gateway.port)).status == 200
    await gateway.outcome("ok")
    assert await reload(gateway, limited(upstream.url, {"usd_per_day": 1}, price=PRICE, usage=usage)) is None
    assert (await asked(gateway.port)).error["code"] == "insufficient_quota"
    rows = (await call(gateway.admin_port, "GET", "/admin/usage")).json()
    assert [(row["key"], row["requests"]) for row in rows] == [("team-a", 1)]


async def test_where_that_cannot_be_known_the_old_config_stays_whole(
    upstream: FaultUpstream,
    start_gateway: StartGateway,
    reload: Reload,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usage = {"store": "sqlite", "path": str(tmp_path / "usage.db")}
    gateway = await start_gateway(limited(upstream.url, {"rpm": 1}, usage=usage))

    async def spent(day: str) -> dict[str, int]:
        raise UsageUnavailable("the disk is gone")

    ledger = gateway._gateway._accounts._ledger
    monkeypatch.setattr(ledger, "spent", spent)
    wanted = limited(upstream.url, {"usd_per_day": 1}, usage=usage, price=PRICE)
    assert await reload(gateway, wanted) == "usage: the disk is gone"
    assert [(await asked(gateway.port)).status for _ in range(2)] == [200, 429]


async def test_a_reload_that_fails_for_a_bug_changes_nothing(
    upstream: FaultUpstream,
    start_gateway: StartGateway,
    reload: Reload,
    logging: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 1}))
    with monkeypatch.context() as patched:
        patched.setattr("gateway.assembly.upstreams.first_hop", lambda config: 1 / 0)
        assert await reload(gateway, limited(upstream.url, {"rpm": 9})) == "a bug in the gateway"
    assert logging == []
    loud = limited(upstream.url, {"rpm": 1}, log={"level": "debug", "format": "text"})
    assert await reload(gateway, loud) is None
    assert logging == [("debug", "text")]
    assert [(await asked(gateway.port)).status for _ in range(2)] == [200, 429]


async def test_a_breaker_stays_open_but_not_for_another_server(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    upstream.always(replies.error(500))
    own = {"breaker": {"failures": 2, "open_for": "60s"}}
    gateway = await start_gateway(settings(upstream.url, upstream=own))
    for _ in range(2):
        assert (await ask(gateway.port, C0)).status == 502
    await gateway.counted("sluice_upstream_breaker_state", 2)
    await reload(gateway, settings(upstream.url, upstream={**own, "max_concurrency": 9}))
    assert (await gateway.metrics()).value("sluice_upstream_breaker_state") == 2
    async with FaultUpstream() as other:
        await reload(gateway, settings(other.url, upstream=own))
        assert (await ask(gateway.port, C0)).status == 200
    assert len(upstream.calls) == 2


async def test_who_waits_goes_when_there_is_more_room_and_nobody_is_cut_off_by_less(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    go_on = asyncio.Event()
    upstream.always([Until(go_on), *replies.chat()])
    gateway = await start_gateway(settings(upstream.url, upstream={"max_concurrency": 1}))
    tasks = [asyncio.create_task(ask(gateway.port, C0)) for _ in range(4)]
    await gateway.counted("sluice_upstream_queue_depth", 3)
    await reload(gateway, settings(upstream.url, upstream={"max_concurrency": 3}))
    await upstream.holding(3)
    await gateway.counted("sluice_upstream_queue_depth", 1)
    await reload(gateway, settings(upstream.url, upstream={"max_concurrency": 1}))
    assert (await gateway.metrics()).value("sluice_upstream_inflight") == 3
    upstream.reply(replies.chat())
    go_on.set()
    assert [(await task).status for task in tasks] == [200] * 4
    upstream.most_in_flight = 0
    assert {one.status for one in await asyncio.gather(*(ask(gateway.port, C0) for _ in range(5)))} == {200}
    assert upstream.most_in_flight == 1


async def test_a_rate_that_comes_and_goes_holds_and_lets_go(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream={"rate": {"rpm": 1}}))
    assert (await ask(gateway.port, C0)).status == 200
    held = asyncio.create_task(ask(gateway.port, C0))
    await gateway.counted("sluice_upstream_queue_depth", 1)
    await reload(gateway, settings(upstream.url, upstream={"rate": {"rpm": 1}, "max_concurrency": 2}))
    assert (await gateway.metrics()).value("sluice_upstream_queue_depth") == 1
    await reload(gateway, settings(upstream.url))
    assert (await held).status == 200


async def test_more_room_lets_go_whom_the_rate_lets_go(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    go_on = asyncio.Event()
    upstream.always([Until(go_on), *replies.chat()])
    own = {"rate": {"rpm": 60_000}, "max_concurrency": 1}
    gateway = await start_gateway(settings(upstream.url, upstream=own))
    tasks = [asyncio.create_task(ask(gateway.port, C0)) for _ in range(2)]
    await gateway.counted("sluice_upstream_queue_depth", 1)
    await reload(gateway, settings(upstream.url, upstream={**own, "max_concurrency": 2}))
    await upstream.holding(2)
    go_on.set()
    assert [(await task).status for task in tasks] == [200, 200]


async def test_what_was_learned_of_answers_is_not_forgotten(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    upstream.always(used(5, 2))
    config = limited(upstream.url, {"tpm": 100_000})
    gateway = await start_gateway(config)

    async def left() -> int:
        return int((await asked(gateway.port)).header("x-ratelimit-remaining-tokens") or 0)

    unlearned, learned = await left(), await left()
    assert learned > unlearned + 200
    await reload(gateway, {**config, "server": {**config["server"], "max_body": "1MiB"}})
    assert await left() > unlearned + 200


async def test_usage_is_one_report(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload, tmp_path: Path
) -> None:
    config = limited(upstream.url, {}, usage={"store": "sqlite", "path": str(tmp_path / "usage.db")})
    gateway = await start_gateway(config)
    for _ in range(2):
        assert (await asked(gateway.port)).status == 200
        await reload(gateway, config)
    await gateway.outcome("ok", 2)
    rows = (await call(gateway.admin_port, "GET", "/admin/usage")).json()
    assert [row["requests"] for row in rows] == [2]


async def test_limits_in_redis_stay_used(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload, tmp_path: Path
) -> None:
    with RedisServer(tmp_path) as redis:
        section = {"url": redis.url, "timeout": "2s"}
        # There is nothing to share at first, so Redis is not even connected to.
        gateway = await start_gateway(limited(upstream.url, {}, redis=section))
        await reload(gateway, limited(upstream.url, {"rpm": 2}, redis=section))
        await gateway.counted("sluice_redis_up", 1)
        assert [(await asked(gateway.port)).status for _ in range(3)] == [200, 200, 429]
        await reload(gateway, limited(upstream.url, {"rpm": 2}, redis=section, retry={"attempts": 3}))
        assert (await asked(gateway.port)).status == 429
        await reload(gateway, limited(upstream.url, {"rpm": 4}, redis=section))
        refused = await asked(gateway.port)
        assert (refused.status, refused.header("x-ratelimit-limit-requests")) == (429, "4")
        assert 10_000 < int(refused.header("retry-after-ms") or 0) <= 15_000


@pytest.mark.parametrize("transport", ["httptools", "aiohttp"])
async def test_ops_14_many_reloads_leave_no_task_and_no_connection_behind(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload, transport: str
) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream={"transport": transport}))
    assert (await ask(gateway.port, C0)).status == 200
    before = len(asyncio.all_tasks())
    for number in range(50):
        own = {"transport": transport, "api_key": f"key-{number}", "timeouts": {"idle": f"{1 + number % 2}s"}}
        upstreams = {"local": {"base_url": upstream.url, **own}, f"more-{number}": {"base_url": upstream.url}}
        assert await reload(gateway, settings(upstream.url, upstreams=upstreams)) is None
        assert (await ask(gateway.port, C0)).status == 200
    await eventually(lambda: len(asyncio.all_tasks()) <= before, "as many tasks as before")
    await upstream.until(lambda: len(upstream.connections) <= 1, "one pool is left")
    assert gateway._gateway._retired._used == []
