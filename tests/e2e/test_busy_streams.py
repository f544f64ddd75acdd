"""Busy is not dead, on streams and inside a 200 too: whoever is free again is asked at once (ROUTE-08)."""

import pytest
from doubles import replies
from doubles.gateway import StartGateway
from doubles.rawclient import call
from doubles.routed import routed
from doubles.script import DONE, Step, event, stream
from doubles.sse import contents
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, S0, ask


def inside(code: int) -> list[Step]:
    """An error of this status as the first event of a 200."""
    told = {"message": "The request queue is full.", "type": "SERVICE_UNAVAILABLE", "code": code}
    return stream(event({"error": told}), DONE)


BUSY: dict[str, tuple[list[Step], int]] = {
    "a 429": (replies.error(429), 429),
    "a 503": (replies.error(503), 503),
    "a 529": (replies.error(529), 503),
    "a 503 inside a 200": (inside(503), 503),
    "a 429 inside a 200": (inside(429), 429),
    "a 529 inside a 200": (inside(529), 503),
}


@pytest.mark.parametrize("name", BUSY)
async def test_route_08_busy_streams_open_no_breaker(
    upstream: FaultUpstream, start_gateway: StartGateway, name: str
) -> None:
    gateway = await start_gateway(routed(upstream.url, retry={"attempts": 1}))
    script, status = BUSY[name]
    upstream.always(script)
    for _ in range(25):
        answer = await ask(gateway.port, S0)
        assert answer.status == status
        assert answer.header("retry-after") == "1"
    assert len(upstream.calls) == 25
    shown = await call(gateway.admin_port, "GET", "/admin/upstreams")
    assert shown.json()["a"]["breaker"] == "closed"
    upstream.always(replies.ordinary)
    assert contents((await ask(gateway.port, S0)).body) == "pong"
    assert (await ask(gateway.port, C0)).status == 200
