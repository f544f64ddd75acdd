"""Fixtures that start an upstream and the gateway, and end both."""

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.listing_engine import Always, ListingEngine
from doubles.redis_server import RedisServer
from doubles.settings import settings
from doubles.upstream import FaultUpstream

# Hypothesis bounds the time of an example and of drawing it: on a busy machine that fails tests of correct code.
hypothesis.settings.register_profile(
    "no time limits", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("no time limits")


@pytest.fixture
async def upstream() -> AsyncIterator[FaultUpstream]:
    """A fault upstream on the test's loop."""
    async with FaultUpstream() as one:
        yield one


@pytest.fixture
async def other() -> AsyncIterator[FaultUpstream]:
    """A second upstream, in good health."""
    async with FaultUpstream() as one:
        yield one


@pytest.fixture
def engine(upstream: FaultUpstream, monkeypatch: pytest.MonkeyPatch) -> ListingEngine:
    """The upstream as an engine that takes lists, on which merging pays: no trial changes the mode meanwhile."""
    monkeypatch.setattr("gateway.batching.profile.MergeExperiment", Always)
    return ListingEngine(upstream)


@pytest.fixture
async def start_gateway(tmp_path: Path) -> AsyncIterator[StartGateway]:
    """Starts gateways on the test's loop from configs; they stop at its end."""
    running: list[InProcessGateway] = []

    async def start(config: Mapping[str, Any]) -> InProcessGateway:
        folder = tmp_path / f"gateway-{len(running)}"
        folder.mkdir()
        running.append(await InProcessGateway(config, folder).start())
        return running[-1]

    yield start
    for gateway in running:
        await gateway.stop()


@pytest.fixture
async def gateway(upstream: FaultUpstream, start_gateway: StartGateway) -> InProcessGateway:
    """A gateway without keys in front of `upstream`."""
    return await start_gateway(settings(upstream.url))


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for all tests that leave it running."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as one:
        yield one


@pytest.fixture
def redis_server(shared_redis: RedisServer) -> RedisServer:
    """An empty server, answering. Whoever pauses it resumes it."""
    shared_redis.command("FLUSHALL")
    return shared_redis
