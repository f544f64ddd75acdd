"""`sluice check --connect`: asks the config's Redis whether it is there and takes the login."""

import asyncio
from typing import Final

from redis.exceptions import RedisError, ResponseError

from gateway.config.model import RedisConfig
from gateway.redis.explain import explained
from gateway.redis.servers import RedisServers

_TIMEOUT_S: Final = 5.0
_ERRORS: Final = (RedisError, OSError, ValueError)


async def ask_redis(config: RedisConfig) -> str | None:
    """What is wrong with Redis, or None: it has answered a PING within 5 seconds.

    Of sentinels, their master is asked; of a cluster, one node, which also says whether all slots are served.
    """
    servers = RedisServers(config.address(), protocol=2, driver_info=None, socket_timeout=None)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await servers.locate()
            connection = servers.connection()
            try:
                await connection.send_command("PING", check_health=False)
                await connection.read_response()
                await connection.send_command("CLUSTER", "INFO", check_health=False)
                try:
                    state = await connection.read_response()
                except ResponseError:  # no cluster, or a user without this right
                    return None
            finally:
                await connection.disconnect()
    except _ERRORS as error:
        return explained(error, servers.where, tls=servers.tls, waited=f"{_TIMEOUT_S:g} s")
    if b"cluster_state:fail" in (state if isinstance(state, bytes) else b""):
        return f"the cluster of {servers.where} does not serve (cluster_state:fail); see CLUSTER INFO"
    return None
