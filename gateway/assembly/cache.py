"""From the config to the layers that keep answers: whose answers, where, and what outlives a reload."""

import hashlib
from collections.abc import Callable
from functools import lru_cache
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
"""Name of the store of all models that have no bound of their own."""


class CacheFactory:
    """The stores of one process. A store is known by the model that it belongs to alone, if it does."""

    def __init__(self, metrics: Metrics, clock: Clock, rng: Random, spared: Callable[[Call], None]) -> None:
        """`spared` enters a call that needed no upstream of its own into the usage ledger."""
        self._metrics = metrics
        self._clock = clock
        self._rng = rng
        self._savings = CacheMetrics(metrics, spared)
        self._flights = Flights(clock)
        self._memory: dict[str, MemoryCacheStore] = {}
        self._redis: RedisCacheStore | None = None
        self._connected = False

    def layers(self, config: cfg.Config) -> CacheLayer | None:
        """The layers for this config; None where nothing is kept."""
        caching = {name: model for name, model in config.models.items() if model.cache.enabled}
        in_memory = {_owner(config, model) for model in caching.values() if model.cache.store == "memory"}
        for gone in self._memory.keys() - in_memory:
            self._memory.pop(gone).resize(0)  # also for answers that are under way
        terms = {name: self._terms(config, model) for name, model in caching.items()}
        return CacheLayer(terms, self._flights, self._savings, self._fresh_id, self._clock) if terms else None

    async def connect(self) -> None:
        """To Redis, if answers are kept there."""
        if self._redis is not None and not self._connected:
            self._connected = True
            await self._redis.start()

    async def close(self) -> None:
        """End what is under way, and let go of Redis."""
        await self._flights.close()
        if self._redis is not None and self._connected:
            await self._redis.stop()

    def _terms(self, config: cfg.Config, model: cfg.ModelConfig) -> CachePolicy:
        upstreams = config.upstreams
        reached = [model, *(config.models[name] for name in model.fallbacks)]
        travelling = {
            name.lower()
            for one in reached
            for candidate in one.candidates
            for name in upstreams[candidate.upstream].forward_headers
        }
        serving = [(one.upstream, upstreams[one.upstream].base_url, one.model) for one in model.candidates]
        return CachePolicy(
            self._store(config, model),
            model.cache.ttl,
            hashlib.sha256(msgspec.json.encode(serving)).digest(),
            sorted(travelling),
        )

    def _store(self, config: cfg.Config, model: cfg.ModelConfig) -> CacheStore:
        if model.cache.store == "redis" and config.redis is not None:
            if self._redis is None:
                self._redis = self._in_redis(config.redis)
            return self._redis
        owner, max_bytes = _owner(config, model), model.cache.max_bytes
        store = self._memory.get(owner)
        if store is None:
            store = self._memory[owner] = MemoryCacheStore(max_bytes, self._clock, self._grown)
        store.resize(max_bytes)
        return store

    def _in_redis(self, redis: cfg.RedisConfig) -> RedisCacheStore:
        failed = lru_cache(maxsize=None)(self._metrics.redis_errors.labels)
        return RedisCacheStore(redis.url, redis.timeout, redis.prefix, lambda kind: failed(kind).inc())

    def _grown(self, entries: int, size: int) -> None:
        self._metrics.cache_entries.inc(entries)
        self._metrics.cache_bytes.inc(size)

    def _fresh_id(self) -> str:
        return f"{self._rng.getrandbits(96):024x}"


def _owner(config: cfg.Config, model: cfg.ModelConfig) -> str:
    return _SHARED if model.cache.max_bytes == config.cache.max_bytes else model.name
