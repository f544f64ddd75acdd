"""What an operator does at the admin port: drain and resume an upstream, close a breaker, reload; all audited."""

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import yaml
from doubles import replies
from doubles.gateway import GatewayProcess, StartGateway
from doubles.rawclient import Answer, call
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, ask
from doubles.waiting import eventually

KEY = "admin-key-0123456789"
BEARER = ("authorization", f"Bearer {KEY}")


def two(upstream: FaultUpstream, other: FaultUpstream, **sections: Any) -> dict[str, Any]:
    """`m-small` at `local`, then at `other`."""
    config = settings(upstream.url, **sections)
    config["upstreams"]["other"] = {"base_url": other.url}
    config["models"]["m-small"]["candidates"].append({"upstream": "other", "model": "up-small"})
    return config


async def act(port: int, name: str, *headers: tuple[str, str]) -> Answer:
    return await call(port, "POST", f"/admin/{name}", b"", headers)


async def state(port: int, name: str = "local") -> tuple[str, str]:
    """State and breaker of an upstream."""
    shown = (await call(port, "GET", "/admin/upstreams", headers=[BEARER])).json()[name]
    return shown["state"], shown["breaker"]


async def test_a_drained_upstream_gets_no_call_until_it_is_resumed(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(two(upstream, other))
    assert (await ask(gateway.port, C0)).header("x-sluice-upstream") == "local"
    drained = await act(gateway.admin_port, "upstreams/local/drain")
    assert (drained.status, drained.json()) == (200, {"upstream": "local", "drained": True})
    assert (await state(gateway.admin_port))[0] == "drained"
    for _ in range(5):
        assert (await ask(gateway.port, C0)).header("x-sluice-upstream") == "other"
    only_there = await ask(gateway.port, {"model": "m-embed", "input": "a"}, path="/v1/embeddings")
    assert only_there.status == 503
    assert only_there.error["code"] == "upstream_unavailable"
    assert int(only_there.header("retry-after") or 0) >= 1
    assert len(upstream.calls) == 1
    assert (await act(gateway.admin_port, "upstreams/local/close-breaker")).status == 409
    assert (await act(gateway.admin_port, "upstreams/local/resume")).json() == {"upstream": "local", "drained": False}
    assert (await state(gateway.admin_port)) == ("up", "closed")
    for _ in range(5):
        assert (await ask(gateway.port, C0)).header("x-sluice-upstream") == "local"


async def test_a_drain_outlives_a_reload_that_changes_the_breaker(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    from gateway.config.load import load

    config = two(upstream, other)
    gateway = await start_gateway(config)
    await act(gateway.admin_port, "upstreams/local/drain")
    config["upstreams"]["local"]["breaker"] = {"failures": 7}
    (tmp_path / "new.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    loaded = load(tmp_path / "new.yaml", {})
    assert loaded.config is not None
    await gateway._gateway.reload(loaded.config)
    assert (await state(gateway.admin_port))[0] == "drained"
    assert (await ask(gateway.port, C0)).header("x-sluice-upstream") == "other"


async def test_an_open_breaker_is_closed_by_hand(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream={"breaker": {"failures": 1, "open_for": "1m"}}))
    upstream.reply(replies.error(500))
    assert (await ask(gateway.port, C0)).status == 502
    assert (await state(gateway.admin_port))[1] == "open"
    assert (await ask(gateway.port, C0)).status == 503
    closed = await act(gateway.admin_port, "upstreams/local/close-breaker")
    assert closed.json() == {"upstream": "local", "breaker": "closed"}
    assert (await state(gateway.admin_port))[1] == "closed"
    for _ in range(5):
        assert (await ask(gateway.port, C0)).status == 200


async def test_what_does_not_exist_is_said(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url))
    for action in ("drain", "resume", "close-breaker"):
        answer = await act(gateway.admin_port, f"upstreams/nowhere/{action}")
        assert (answer.status, answer.json()) == (404, {"error": "no upstream named nowhere"})
    assert (await act(gateway.admin_port, "batches/unknown/cancel")).json() == {"error": "no batch unknown"}
    assert (await act(gateway.admin_port, "reload")).status == 503


async def test_with_workers_actions_reach_all_and_outlive_a_worker_and_are_audited(
    upstream: FaultUpstream, other: FaultUpstream, tmp_path: Path
) -> None:
    config = two(upstream, other, server={"workers": 2}, admin={"port": 0, "keys": [KEY]})
    async with AsyncExitStack() as stack:
        gateway = stack.enter_context(GatewayProcess(config, tmp_path))
        port = gateway.admin_port
        assert (await act(port, "upstreams/local/drain")).status == 401
        assert (await act(port, "upstreams/local/drain", BEARER)).json() == {"upstream": "local", "drained": True}
        assert (await state(port))[0] == "drained"
        for _ in range(12):
            assert (await ask(gateway.port, C0)).header("x-sluice-upstream") == "other"
        killed = gateway.workers()[0]
        os.kill(killed, signal.SIGKILL)
        await eventually(lambda: killed not in gateway.workers() and len(gateway.workers()) == 2, "another worker")
        await eventually(lambda: gateway.log.count("worker died") == 1, "the death is logged")
        async with asyncio.timeout(20):
            while (await call(port, "GET", "/readyz")).status != 200 or (await state(port))[0] != "drained":
                await asyncio.sleep(0.05)
        async with asyncio.timeout(20):  # the new worker may not answer yet
            while (resumed := await act(port, "upstreams/local/resume", BEARER)).status == 503:
                await asyncio.sleep(0.05)
        assert resumed.json() == {"upstream": "local", "drained": False}
        assert (await state(port))[0] != "drained"
        assert {(await ask(gateway.port, C0)).header("x-sluice-upstream") for _ in range(12)} == {"local"}
        assert (await act(port, "reload", BEARER)).json() == {"reloaded": True}
        (tmp_path / "sluice.yaml").write_text("nonsense: 1\n", encoding="utf-8")
        refused = await act(port, "reload", BEARER)
        assert refused.status == 409
        assert "nonsense: unknown field" in refused.json()["error"]
        (tmp_path / "sluice.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        assert (await act(port, "reload", BEARER)).status == 200
        audits = [json.loads(line) for line in gateway.log.splitlines() if '"admin action"' in line]
        assert [(one["audit"], one["by"], one["status"]) for one in audits if one["status"] != 503] == [
            ("drain", "admin.keys[0]", 200),
            ("resume", "admin.keys[0]", 200),
            ("reload", "admin.keys[0]", 200),
            ("reload", "admin.keys[0]", 409),
            ("reload", "admin.keys[0]", 200),
        ]
        assert audits[0]["target"] == "local"
        assert KEY not in gateway.log
        await asyncio.to_thread(gateway.stop)
