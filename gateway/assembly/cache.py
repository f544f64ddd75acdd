"""From the config to the cache layer, with the stores and flights that outlive a reload."""

import hashlib
from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from gateway.cache.accounting import CacheMetrics
from gateway.cache.layer import CacheLayer
from gateway.cache.lookup import CachePolicy
from gateway.cache.memory_store import MemoryCacheStore
from gateway.cache.redis_store import RedisCacheStore
from gateway.cache.single_flight import Flights
from gateway.cache.store import CacheStore
from gateway.config import model as cfg
from gateway.core.call import Call
from gateway.core.clock import Clock
from gateway.telemetry.metrics import Metrics

_SHARED: Final = ""
"""Name of the store that all models without their own `max_bytes` share."""


class CacheFactory:
    """The cache stores of one process, by the model that owns them or shared by all."""

    def __init__(self, metrics: Metrics, clock: Clock, rng: Random, record_avoided: Callable[[Call], None]) -> None:
        """`record_avoided` records a call that needed no upstream call of its own in the usage ledger."""
        self._metrics = metrics
        self._clock = clock
        self._rng = rng
        self._savings = CacheMetrics(metrics, record_avoided)
        self._flights = Flights(clock)
        self._memory: dict[str, MemoryCacheStore] = {}
        self._redis: RedisCacheStore | None = None
        self._connected = False

    def layer(self, config: cfg.Config) -> CacheLayer | None:
        """The layer for this config; None if no model is cached."""
        caching = {name: model for name, model in config.models.items() if model.cache.enabled}
        in_memory = {_owner(config, model) for model in caching.values() if model.cache.store == "memory"}
        for unused in self._memory.keys() - in_memory:
            self._memory.pop(unused).resize(0)  # calls in flight still hold it
        policies = {name: self._policy(config, model) for name, model in caching.items()}
        if not policies:
            return None
        return CacheLayer(policies, self._flights, self._savings, self._fresh_id, self._clock)

    async def connect(self) -> None:
        """Connect to Redis if answers are stored there."""
        if self._redis is not None and not self._connected:
            self._connected = True
            await self._redis.start()

    async def close(self) -> None:
        """Cancel flights and disconnect from Redis."""
        await self._flights.close()
        if self._redis is not None and self._connected:
            await self._redis.stop()

    def _policy(self, config: cfg.Config, model: cfg.ModelConfig) -> CachePolicy:
        upstreams = config.upstreams
        reached = [model, *(config.models[name] for name in model.fallbacks)]
        forwarded = {
            name.lower()
            for reachable in reached
            for candidate in reachable.candidates
            for name in upstreams[candidate.upstream].forward_headers
        }
        serving = [
            (candidate.upstream, upstreams[candidate.upstream].base_url, candidate.model)
            for candidate in model.candidates
        ]
        return CachePolicy(
            self._store(config, model),
            model.cache.ttl,
            hashlib.sha256(msgspec.json.encode(serving)).digest(),
            sorted(forwarded),
        )

    def _store(self, config: cfg.Config, model: cfg.ModelConfig) -> CacheStore:
        if model.cache.store == "redis" and config.redis is not None:
            if self._redis is None:
                self._redis = self._redis_store(config.redis)
            return self._redis
        owner, max_bytes = _owner(config, model), model.cache.max_bytes
        store = self._memory.get(owner)
        if store is None:
            store = self._memory[owner] = MemoryCacheStore(max_bytes, self._clock, self._count_growth)
        store.resize(max_bytes)
        return store

    def _redis_store(self, redis: cfg.RedisConfig) -> RedisCacheStore:
        return RedisCacheStore(redis.address(), redis.timeout, redis.prefix, self._metrics.redis_errors.count)

    def _count_growth(self, entries: int, size: int) -> None:
        self._metrics.cache_entries.add(entries)
        self._metrics.cache_bytes.add(size)

    def _fresh_id(self) -> str:
        return f"{self._rng.getrandbits(96):024x}"


def _owner(config: cfg.Config, model: cfg.ModelConfig) -> str:
    return _SHARED if model.cache.max_bytes == config.cache.max_bytes else model.name
