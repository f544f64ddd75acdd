"""What Prometheus is told of an upstream: whether it can be reached, and how many calls it may have."""

from pathlib import Path

import pytest
from doubles.gateway import GatewayProcess, StartGateway
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, ask
from doubles.waiting import eventually

NOWHERE = {"base_url": "http://127.0.0.1:9/v1"}


def two(url: str, **more: object) -> dict[str, object]:
    """A config with a second upstream, where nobody listens."""
    config = settings(url, upstream={"max_concurrency": 7}, **more)
    config["upstreams"]["gone"] = NOWHERE
    return config


async def test_each_upstream_is_up_or_down(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(two(upstream.url))
    await gateway.counted("sluice_upstream_up", 1, upstream="local")
    await gateway.counted("sluice_upstream_up", 0, upstream="gone")
    await upstream.stop()
    assert (await ask(gateway.port, C0)).status == 503
    await gateway.counted("sluice_upstream_up", 0, upstream="local")
    await upstream.start()
    await gateway.counted("sluice_upstream_up", 1, upstream="local")


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_places_are_those_of_the_config_however_many_workers(
    upstream: FaultUpstream, tmp_path: Path, workers: int
) -> None:
    with GatewayProcess(two(upstream.url, server={"workers": workers}), tmp_path) as gateway:
        await eventually(
            lambda: gateway.metrics().value("sluice_upstream_up", upstream="local") == 1,
            "the upstream is up",
        )
        metrics = gateway.metrics()
        assert metrics.value("sluice_upstream_up") == 1
        assert metrics.value("sluice_upstream_max_concurrency", upstream="local") == 7
