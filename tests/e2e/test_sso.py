"""Tokens of an identity provider end to end: rotation, a provider that is away, limits, metrics, reload, workers."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from doubles.gateway import GatewayProcess, InProcessGateway, StartGateway
from doubles.identity_provider import AUDIENCE, ISSUER, IdentityProvider, SigningKey, claims
from doubles.rawclient import Answer, RawClient, call
from doubles.settings import AUTH, KEY, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, ask
from doubles.waiting import eventually

from gateway.assembly import accounts

OLD, NEW, THIRD = SigningKey("old"), SigningKey("new"), SigningKey("third", "P-256")


def config(upstream: FaultUpstream, provider: IdentityProvider, **changes: Any) -> dict[str, Any]:
    """Keys for two groups, and this provider."""
    jwt = {"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": provider.url, "map": {"eng": "team-a", "mail": "team-b"}}
    limits = changes.pop("limits", {})
    keys = [
        {"name": "team-a", "key": KEY, "limits": limits},
        {"name": "team-b", "key": "gw-key-team-b-000", "models": ["m-embed"]},
    ]
    return settings(upstream.url, **{"auth": {"jwt": [jwt | changes.pop("jwt", {})]}, **changes}) | {"keys": keys}


def bearer(key: SigningKey, **other: Any) -> tuple[str, str]:
    return "authorization", f"Bearer {key.sign(claims(time.time(), **other))}"


@pytest.fixture
async def provider() -> AsyncIterator[IdentityProvider]:
    async with IdentityProvider(OLD) as one:
        yield one


async def test_a_token_is_used_like_a_key(
    upstream: FaultUpstream, provider: IdentityProvider, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config(upstream, provider))
    assert (await ask(gateway.port, C0, [bearer(OLD)])).status == 200
    assert (await ask(gateway.port, C0, [("x-api-key", bearer(OLD)[1].partition(" ")[2])])).status == 200
    refused = await ask(gateway.port, C0, [bearer(OLD, groups=["mail"])])
    assert (refused.status, refused.error["code"]) == (403, "model_not_allowed")
    listed = await call(gateway.port, "GET", "/v1/models", headers=[bearer(OLD, groups=["mail"])])
    assert [model["id"] for model in listed.json()["data"]] == ["m-embed"]
    assert (await ask(gateway.port, C0, [AUTH])).status == 200
    wrong = await ask(gateway.port, C0, [("authorization", "Bearer gw-key-guess-00")])
    expired = await ask(gateway.port, C0, [bearer(OLD, exp=int(time.time()) - 600)])
    assert expired.status == wrong.status == 401
    assert expired.body == wrong.body
    assert [one for one in expired.headers if one[0] not in ("x-request-id", "date")] == [
        one for one in wrong.headers if one[0] not in ("x-request-id", "date")
    ]
    for received in upstream.calls:
        assert "authorization" not in received.headers


async def lasting_load(gateway: InProcessGateway, tokens: list[tuple[str, str]], stop: asyncio.Event) -> list[Answer]:
    """Calls one after the other on one connection until `stop`, each with the newest token."""
    answers = []
    async with await RawClient.open(gateway.port) as client:
        while not stop.is_set():
            await client.request("POST", CHAT, C0, [tokens[-1]])
            answers.append(await client.response())
    return answers


async def test_rotation_and_a_dead_provider_under_load_lose_no_valid_call(
    upstream: FaultUpstream, provider: IdentityProvider, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config(upstream, provider))
    tokens, stop = [bearer(OLD)], asyncio.Event()
    load = [asyncio.create_task(lasting_load(gateway, tokens, stop)) for _ in range(8)]
    await upstream.received(40)
    provider.keys = [NEW, OLD]
    tokens.append(bearer(NEW))
    await upstream.received(80)
    provider.away = True
    tokens += [bearer(NEW, sub="bob"), bearer(OLD, sub="carol")]
    store = next(iter(gateway._gateway._pipelines.identity._stores.values()))
    await store.refresh()
    await upstream.received(120)
    tokens.append(bearer(THIRD))
    before = provider.fetched
    stop.set()
    statuses = [answer.status for answers in await asyncio.gather(*load) for answer in answers]
    assert set(statuses) == {200}
    assert len(statuses) >= 120
    assert provider.fetched == before == 2
    assert (await ask(gateway.port, C0, [bearer(THIRD)])).status == 401


async def test_unknown_keys_fetch_once_a_minute_whoever_sends_them(
    upstream: FaultUpstream, provider: IdentityProvider, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config(upstream, provider))
    fakes = [SigningKey("old-but-fake" if number % 2 else f"k{number}", "P-256") for number in range(12)]
    answers = await asyncio.gather(*(ask(gateway.port, C0, [bearer(fake)]) for fake in fakes))
    assert {answer.status for answer in answers} == {401}
    assert len({answer.body for answer in answers}) == 1
    assert provider.fetched == 2
    assert (await ask(gateway.port, C0, [bearer(OLD)])).status == 200


async def test_a_provider_that_is_away_at_the_start_is_tried_again(
    upstream: FaultUpstream, provider: IdentityProvider, start_gateway: StartGateway
) -> None:
    provider.away = True
    gateway = await start_gateway(config(upstream, provider))
    assert (await ask(gateway.port, C0, [AUTH])).status == 200
    assert (await ask(gateway.port, C0, [bearer(OLD)])).status == 401
    provider.away = False
    store = next(iter(gateway._gateway._pipelines.identity._stores.values()))
    await store.refresh()
    assert (await ask(gateway.port, C0, [bearer(OLD)])).status == 200


@pytest.mark.parametrize(("status", "body"), [(302, None), (500, None), (200, b"<html>"), (200, b"x" * 1_100_000)])
async def test_an_answer_without_keys_changes_nothing(
    status: int, body: bytes | None, upstream: FaultUpstream, provider: IdentityProvider, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config(upstream, provider))
    provider.status, provider.body = status, body
    store = next(iter(gateway._gateway._pipelines.identity._stores.values()))
    await store.refresh()
    assert provider.fetched == 2
    assert (await ask(gateway.port, C0, [bearer(OLD)])).status == 200


async def test_each_subject_has_the_limits_of_the_key_for_itself_and_metrics_know_the_group(
    upstream: FaultUpstream, provider: IdentityProvider, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config(upstream, provider, limits={"rpm": 2}))
    for subject in ("alice", "bob"):
        statuses = [(await ask(gateway.port, C0, [bearer(OLD, sub=subject)])).status for _ in range(3)]
        assert statuses == [200, 200, 429]
    assert (await ask(gateway.port, C0, [AUTH])).status == 200
    metrics = await gateway.metrics()
    assert metrics.value("sluice_limit_rejections_total", key="sso:eng", limit="rpm") == 2
    assert not [sample for sample in metrics.samples if "alice" in str(sample.labels)]


async def test_a_group_without_key_from_shares_its_limits(
    upstream: FaultUpstream, provider: IdentityProvider, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config(upstream, provider, limits={"rpm": 2}, jwt={"key_from": None}))
    answers = [(await ask(gateway.port, C0, [bearer(OLD, sub=one)])).status for one in ("a", "b", "c")]
    assert answers == [200, 200, 429]


async def test_too_many_subjects_share_one_account_for_each_group(
    upstream: FaultUpstream, provider: IdentityProvider, start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "MAX_VOUCHED", 2)
    gateway = await start_gateway(config(upstream, provider, limits={"rpm": 1}))
    seen = [(await ask(gateway.port, C0, [bearer(OLD, sub=one)])).status for one in ("a", "b", "c", "d", "a", "c")]
    assert seen == [200, 200, 200, 429, 429, 429]
    held = gateway._gateway._accounts._vouched
    assert list(held) == ["sso:eng/b", "sso:eng/a", "sso:eng/"]
    held["sso:eng/b"].used_at -= 90_000.0
    assert (await ask(gateway.port, C0, [bearer(OLD, sub="d")])).status == 200
    assert "sso:eng/b" not in held


async def test_dollars_are_booked_and_bounded_by_subject_over_restarts(
    upstream: FaultUpstream, provider: IdentityProvider, start_gateway: StartGateway, tmp_path: Path
) -> None:
    priced = config(upstream, provider, limits={"usd_per_day": 0.01}, usage={"path": str(tmp_path / "usage.db")})
    for model in priced["models"].values():
        model["candidates"][0]["price"] = {"input": 500, "output": 500}
    body = {**C0, "max_tokens": 1}
    first = await InProcessGateway(priced, tmp_path).start()
    assert (await ask(first.port, body, [bearer(OLD)])).status == 200
    spent = []
    while (answer := await ask(first.port, body, [bearer(OLD)])).status == 200:
        spent.append(answer)
        assert len(spent) < 100
    assert answer.error["code"] == "insufficient_quota"
    await first.stop()
    second = await start_gateway(priced)
    assert (await ask(second.port, body, [bearer(OLD)])).error["code"] == "insufficient_quota"
    assert (await ask(second.port, body, [bearer(OLD, sub="bob")])).status == 200
    rows = (await call(second.admin_port, "GET", "/admin/usage?key=sso:eng/alice")).json()
    assert sum(row["requests"] for row in rows) == len(spent) + 1
    metrics = await second.metrics()
    assert metrics.value("sluice_cost_usd_total", key="sso:eng") > 0


async def test_a_reload_takes_a_new_provider_and_lets_the_old_one_go(
    upstream: FaultUpstream, provider: IdentityProvider, start_gateway: StartGateway, tmp_path: Path
) -> None:
    from gateway.config.load import load

    gateway = await start_gateway(config(upstream, provider))
    assert (await ask(gateway.port, C0, [bearer(OLD)])).status == 200
    async with IdentityProvider(NEW) as other:
        changed = config(upstream, other)
        (tmp_path / "new.yaml").write_text(json.dumps(changed), encoding="utf-8")
        loaded = load(tmp_path / "new.yaml", {})
        assert loaded.config is not None, loaded.problems
        await gateway._gateway.reload(loaded.config)
        assert (await ask(gateway.port, C0, [bearer(OLD)])).status == 401
        assert (await ask(gateway.port, C0, [bearer(NEW)])).status == 200
        assert len(gateway._gateway._pipelines.identity._stores) == 1


async def test_workers_and_a_file_of_keys(upstream: FaultUpstream, tmp_path: Path, provider: IdentityProvider) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [OLD.jwk()]}), encoding="utf-8")
    jwt = {"jwks_url": None, "jwks_file": str(keys)}
    async with AsyncExitStack() as stack:
        gateway = stack.enter_context(
            GatewayProcess(config(upstream, provider, server={"workers": 2}, jwt=jwt), tmp_path)
        )
        answers = [await ask(gateway.port, C0, [bearer(OLD)]) for _ in range(8)]
        assert {answer.status for answer in answers} == {200}
        keys.write_text(json.dumps({"keys": [NEW.jwk()]}), encoding="utf-8")
        answers = [await ask(gateway.port, C0, [bearer(NEW)]) for _ in range(8)]
        assert {answer.status for answer in answers} == {200}
        await asyncio.to_thread(gateway.stop)
    assert provider.fetched == 0


async def test_the_log_says_why_a_token_was_refused_and_never_the_token(
    upstream: FaultUpstream, provider: IdentityProvider, tmp_path: Path
) -> None:
    expired = bearer(OLD, exp=int(time.time()) - 600)
    with GatewayProcess(config(upstream, provider), tmp_path) as gateway:
        assert (await ask(gateway.port, C0, [expired])).status == 401
        await eventually(lambda: "`exp` is missing or not valid" in gateway.log, "the reason is logged")
        assert expired[1].partition(" ")[2][:60] not in gateway.log
        await asyncio.to_thread(gateway.stop)


async def test_what_holds_for_the_bodies_of_a_key_holds_for_those_it_lends_its_rights_to(
    upstream: FaultUpstream, provider: IdentityProvider, start_gateway: StartGateway
) -> None:
    private = config(upstream, provider, inspector={"bodies": True})
    private["keys"][0]["keep_bodies"] = False
    for served, kept in ((config(upstream, provider, inspector={"bodies": True}), True), (private, False)):
        gateway = await start_gateway(served)
        answer = await ask(gateway.port, C0, [bearer(OLD)])
        told = await call(gateway.admin_port, "GET", f"/admin/calls/{answer.header('x-request-id')}")
        assert told.status == 200
        assert (b"ping" in told.body) is kept
