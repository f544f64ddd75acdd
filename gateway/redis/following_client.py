"""A client for stores: one command after the other, on whichever server has the keys now."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis.asyncio import Redis
from redis.exceptions import ConnectionError, MovedError, ReadOnlyError, RedisError, TimeoutError

from gateway.core.units import Secret
from gateway.redis.servers import MAX_HOPS, RedisServers

_T = TypeVar("_T")


class FollowingClient:
    """Connects when first used, and again after a failure; follows a cluster's and a sentinel's words."""

    def __init__(self, url: Secret, timeout: float, key: str) -> None:
        """`timeout` is in seconds per command. `key` is one of the keys: all of them are on one node."""
        self._servers = RedisServers(url, socket_timeout=timeout, socket_connect_timeout=timeout)
        self._key = key
        self._client: Redis | None = None
        self._making_client = asyncio.Lock()

    async def run(self, step: Callable[[Redis], Awaitable[_T]]) -> _T:
        """The result of a step. Raises RedisError, OSError, or ValueError for a server that does not speak RESP."""
        for _ in range(MAX_HOPS):
            client: Redis | None = None
            try:
                async with self._making_client:
                    if self._client is None:
                        self._client = await self._servers.client(self._key)
                client = self._client
                return await step(client)
            except MovedError as error:
                if await self._dropped(client):
                    self._servers.follow(error)
            except (RedisError, OSError, ValueError) as error:
                # The client of a server that only refuses a command can be used again.
                away = isinstance(error, ConnectionError | TimeoutError | ReadOnlyError | OSError)
                if away and await self._dropped(client):
                    self._servers.give_up()
                raise
        raise RedisError("the nodes of the cluster name one another for the same slot")

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _dropped(self, client: Redis | None) -> bool:
        """Whether this client was still the current one; then the next step gets another."""
        if client is not self._client:
            return False
        await self.close()
        return True
