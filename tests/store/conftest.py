"""A real Redis for the tests that need one."""

from collections.abc import Iterator

import pytest
from doubles.redis_server import RedisServer


@pytest.fixture(scope="package")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for all tests that leave it running."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as one:
        yield one


@pytest.fixture
def redis_server(shared_redis: RedisServer) -> RedisServer:
    """An empty server, answering. Whoever pauses it resumes it."""
    shared_redis.command("FLUSHALL")
    return shared_redis
