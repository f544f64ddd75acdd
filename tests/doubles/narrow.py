"""A client with a small socket buffer, so that the gateway soon has to buffer for it."""

import asyncio
import socket

from doubles.gateway import InProcessGateway
from doubles.rawclient import RawClient, request_bytes


async def narrowed(gateway: InProcessGateway, client: RawClient) -> asyncio.Transport:
    """Shrink the gateway's send buffer to this client, its only one; returns the transport.

    Open the client with a small `receive_buffer` too.
    """
    await client.send(request_bytes("GET", "/health"))
    assert (await client.response()).status == 200
    (connection,) = gateway._gateway._listener.connections
    transport = connection.transport
    assert transport is not None
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return transport
