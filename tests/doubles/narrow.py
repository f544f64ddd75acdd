"""A client for whom the system holds only a few bytes back, so that the gateway soon has to."""

import asyncio
import socket

from doubles.gateway import InProcessGateway
from doubles.rawclient import RawClient, request_bytes


async def narrowed(gateway: InProcessGateway, client: RawClient) -> asyncio.Transport:
    """The gateway's transport to this client, its only one, made narrow. Open the client narrow too."""
    await client.send(request_bytes("GET", "/health"))
    assert (await client.response()).status == 200
    (connection,) = gateway._gateway._listener.connections
    transport = connection.transport
    assert transport is not None
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return transport
