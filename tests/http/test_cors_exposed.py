"""A page may read of an answer what other clients may: every header that the gateway adds (COMPAT-16)."""

from typing import Any

import pytest
from doubles.gateway import StartGateway
from doubles.limited import asked, limited
from doubles.rawclient import Answer
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, S0

ORIGIN = ("origin", "https://app.example")
PLAIN = {"content-type", "content-length", "transfer-encoding", "date", "connection", "cache-control", "vary"}
"""What needs no permission, or tells nothing of the call."""


def unreadable(answer: Answer) -> set[str]:
    """Names of headers that a browser keeps from the page."""
    exposed = {one.strip() for one in (answer.header("access-control-expose-headers") or "").split(",")}
    return {name for name, _ in answer.headers if not name.startswith("access-control-")} - exposed - PLAIN


@pytest.mark.parametrize("body", [C0, S0, {**C0, "temperature": 0}], ids=["whole", "stream", "kept"])
async def test_compat_16_limits_cost_and_cache_are_told_to_pages_too(
    upstream: FaultUpstream, start_gateway: StartGateway, body: dict[str, Any]
) -> None:
    price = {"input": 1, "output": 1}
    config = limited(
        upstream.url,
        {"rpm": 3, "tpm": 1000},
        price=price,
        server={"cors_origins": [ORIGIN[1]]},
        cache={"enabled": True},
    )
    config["models"]["m-small"]["route"] = "cheapest"
    gateway = await start_gateway(config)
    answers = [await asked(gateway.port, body, [ORIGIN]) for _ in range(5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    for answer in answers:
        assert answer.header("x-ratelimit-remaining-requests") is not None
        assert unreadable(answer) - {"x-accel-buffering"} == set()
