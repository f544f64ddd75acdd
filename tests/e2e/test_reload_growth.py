"""Reloads that rename everything leave nothing behind: objects, series and descriptors are as at the start."""

import asyncio
import gc
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.limited import FrozenClock, asked
from doubles.rawclient import RawClient, call
from doubles.redis_server import RedisServer
from doubles.script import Until
from doubles.settings import AUTH, KEY, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, ask
from doubles.waiting import eventually

from gateway.assembly.gateway import Gateway
from gateway.assembly.reload import apply
from gateway.config.load import load
from gateway.limits.account import Account
from gateway.limits.shared_account import SharedAccount
from gateway.queueing.upstream_queue import UpstreamQueue
from gateway.resilience.retry_budget import RetryBudget
from gateway.resilience.upstream_breakers import UpstreamBreakers
from gateway.usage.estimator import TokenFactors

KINDS = (Account, SharedAccount, UpstreamQueue, UpstreamBreakers, RetryBudget, TokenFactors)
RELOADS = 20
NAMES = 5


def renamed(url: str, number: int, *, same_keys: bool = False, **sections: Any) -> dict[str, Any]:
    """A config whose upstreams, models and keys have names of their own."""
    numbers = range(NAMES)
    key_prefix = "k" if same_keys else f"k{number}"
    keys = [
        {"name": f"{key_prefix}-{one}", "key": f"{KEY}-{one}", "limits": {"rpm": 1000 + number, "tpm": 10**6}}
        for one in numbers
    ]
    config = settings(
        url,
        **sections,
        upstreams={f"u{number}-{one}": {"base_url": url, "rate": {"rpm": 6000}} for one in numbers},
        models={
            f"m{number}-{one}": {"candidates": [{"upstream": f"u{number}-{one}", "model": f"x{number}"}]}
            for one in numbers
        },
    )
    return {**config, "keys": keys}


async def reload(gateway: InProcessGateway, config: Mapping[str, Any], tmp_path: Path) -> None:
    """Apply this config."""
    file = tmp_path / "next.yaml"
    file.write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
    loaded = load(file, {})
    assert loaded.config is not None, loaded.problems
    assert await apply(gateway._gateway, loaded.config) is None


async def call_every_model(gateway: InProcessGateway, number: int) -> None:
    """One call of each model with each model's own key."""
    for one in range(NAMES):
        body = {**C0, "model": f"m{number}-{one}"}
        key = ("authorization", f"Bearer {KEY}-{one}")
        assert (await ask(gateway.port, body, [key])).status == 200


def held() -> Counter[str]:
    """How many objects of each kind there are."""
    gc.collect()
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, KINDS))


def series(gateway: Gateway) -> int:
    """Series with labels that name something of the config."""
    return sum(len(family.series) for family in gateway.metrics.families.values())


@pytest.mark.parametrize("shared", [False, True])
async def test_what_reloads_remove_is_released(
    upstream: FaultUpstream,
    start_gateway: StartGateway,
    redis_server: RedisServer,
    clock: FrozenClock,
    tmp_path: Path,
    shared: bool,
) -> None:
    sections = {"redis": {"url": redis_server.url}} if shared else {}
    before = held()  # of other tests of this process
    gateway = await start_gateway(renamed(upstream.url, 0, **sections))
    await call_every_model(gateway, 0)
    await gateway.counted("sluice_requests_total", NAMES)
    objects, first, files = held(), series(gateway._gateway), len(os.listdir("/proc/self/fd"))
    made = "SharedAccount" if shared else "Account"
    assert objects[made] - before[made] <= 2 * NAMES
    for number in range(1, RELOADS + 1):
        await reload(gateway, renamed(upstream.url, number, same_keys=shared, **sections), tmp_path)
        await call_every_model(gateway, number)
        await gateway.counted("sluice_requests_total", 1, model=f"m{number}-{NAMES - 1}")
    assert series(gateway._gateway) > first * RELOADS / 2
    clock.passes(61)
    if (limits := gateway._gateway._accounts._shared) is not None:
        await eventually(lambda: not any(one._leased for one in limits._accounts), "all is settled", within=20)
        limits._tend()
    await eventually(lambda: series(gateway._gateway) == first, "the series are released", within=20)
    await eventually(lambda: not held() - objects, f"no more objects than {objects}", within=20)
    await eventually(lambda: len(os.listdir("/proc/self/fd")) <= files + 2, "descriptors are closed", within=20)


async def test_a_key_that_comes_back_while_its_call_runs_has_its_slot_in_use(
    upstream: FaultUpstream, start_gateway: StartGateway, clock: FrozenClock, tmp_path: Path
) -> None:
    go_on = asyncio.Event()
    upstream.always([Until(go_on), *replies.chat("pong")])
    key = {"name": "team-a", "key": KEY, "limits": {"concurrency": 1}}
    config = settings(upstream.url) | {"keys": [key]}
    gateway = await start_gateway(config)
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, C0, [AUTH])
        await upstream.received(1)
        await reload(gateway, settings(upstream.url) | {"keys": [{"name": "other", "key": f"{KEY}-2"}]}, tmp_path)
        clock.passes(61)
        accounts = gateway._gateway._accounts
        accounts.tick(clock.now)
        await reload(gateway, config, tmp_path)
        assert (await asked(gateway.port)).error["code"] == "rate_limit_exceeded"
        go_on.set()
        assert (await client.response()).status == 200
    await gateway.counted("sluice_upstream_inflight", 0)
    assert (await asked(gateway.port)).status == 200
    await reload(gateway, settings(upstream.url) | {"keys": [{"name": "other", "key": f"{KEY}-2"}]}, tmp_path)
    accounts.tick(clock.now)
    assert "team-a" not in accounts._all
    assert (await call(gateway.port, "GET", "/health")).status == 200
