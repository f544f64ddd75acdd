"""From the config to what is remembered of stored responses; it outlives a reload."""

from gateway.config import model as cfg
from gateway.core.clock import Clock
from gateway.stored.layer import StoredResponses
from gateway.stored.records import ResponseMemory
from gateway.stored.redis_store import RedisResponseStore
from gateway.telemetry.metrics import Metrics


class StoredResponsesFactory:
    """The stored responses of one process, shared through Redis where that is configured."""

    def __init__(self, config: cfg.Config, metrics: Metrics, clock: Clock) -> None:
        self._shared: RedisResponseStore | None = None
        if config.redis is not None:  # changing it needs a restart
            redis = config.redis
            self._shared = RedisResponseStore(redis.address(), redis.timeout, redis.prefix, metrics.redis_errors.count)
        self.layer = StoredResponses(ResponseMemory(), self._shared, clock)

    async def connect(self) -> None:
        """Connect to Redis if it is configured."""
        if self._shared is not None:
            await self._shared.start()

    async def close(self) -> None:
        """Disconnect."""
        if self._shared is not None:
            await self._shared.stop()
