"""Probes tell the truth, at once, and cost the models nothing."""

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import call
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, ask


async def becomes(port: int, path: str, status: int) -> None:
    """Asks until the answer has this status, at most so often that a second passes."""
    for _ in range(5000):
        answer = await call(port, "GET", path)
        if answer.status == status:
            return
    raise AssertionError(f"{path} stays {answer.status}: {answer.body!r}")


async def test_ops_06_probes_call_no_model(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    await becomes(gateway.admin_port, "/readyz", 200)
    for _ in range(20):
        assert (await call(gateway.port, "GET", "/health")).status == 200
        assert (await call(gateway.admin_port, "GET", "/livez")).status == 200
        assert (await call(gateway.admin_port, "GET", "/readyz")).status == 200
    assert upstream.calls == []


async def test_ops_06_without_any_upstream_it_lives_and_is_not_ready(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    await upstream.stop()
    gateway = await start_gateway(settings(upstream.url))
    assert (await ask(gateway.port, C0)).status == 503
    assert (await call(gateway.admin_port, "GET", "/readyz")).status == 503
    assert (await call(gateway.admin_port, "GET", "/livez")).status == 200
    assert (await call(gateway.port, "GET", "/health")).status == 200
    shown = (await call(gateway.admin_port, "GET", "/admin/upstreams")).json()
    assert shown["local"]["state"] == "down"
    await upstream.start()
    assert (await ask(gateway.port, C0)).status == 200
    assert (await call(gateway.admin_port, "GET", "/readyz")).status == 200


async def test_ops_06_one_usable_upstream_is_enough(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    upstreams = {"dead": {"base_url": "http://127.0.0.1:1/v1"}, "local": {"base_url": upstream.url}}
    gateway = await start_gateway(settings(upstream.url, upstreams=upstreams))
    await becomes(gateway.admin_port, "/readyz", 200)


async def test_ops_06_readiness_comes_back_by_itself(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    await upstream.stop()
    gateway = await start_gateway(settings(upstream.url))
    await becomes(gateway.admin_port, "/readyz", 503)
    await upstream.start()
    await becomes(gateway.admin_port, "/readyz", 200)
    assert upstream.calls == []


@pytest.mark.parametrize("view", ["config", "stack", "upstreams"])
async def test_the_admin_port_shows_the_inside(gateway: InProcessGateway, view: str) -> None:
    answer = await call(gateway.admin_port, "GET", f"/admin/{view}")
    assert answer.status == 200
    assert answer.header("content-type") == "application/json"
    assert answer.json()


async def test_the_stack_is_shown_in_order(gateway: InProcessGateway) -> None:
    entries = (await call(gateway.admin_port, "GET", "/admin/stack")).json()
    assert entries.index("RequestMetrics") < entries.index("Authenticate") < entries.index("ModelAccess")
    assert entries[-1] == "Forward"
