"""`max_tokens` and `max_completion_tokens` travel as they came, and limits read either (COMPAT-04)."""

from typing import Any

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.limited import FrozenClock, asked, limited
from doubles.rawclient import RawClient, request_bytes
from doubles.script import NEVER, compact
from doubles.settings import AUTH
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, ask

CAPS: list[dict[str, Any]] = [
    {"max_tokens": 9},
    {"max_completion_tokens": 9},
    {"max_tokens": 9, "max_completion_tokens": 12},
    {"max_tokens": 0},
    {"max_completion_tokens": 0},
    {"max_tokens": None},
    {"max_completion_tokens": None, "max_tokens": 9},
]


@pytest.mark.parametrize("caps", CAPS, ids=str)
async def test_compat_04_caps_pass_byte_for_byte(
    gateway: InProcessGateway, upstream: FaultUpstream, caps: dict[str, Any]
) -> None:
    body = compact({**C0, **caps})
    assert (await ask(gateway.port, body)).status == 200
    assert upstream.calls[0].body == body.replace(b"m-small", b"up-small")


@pytest.mark.parametrize(
    "caps",
    [{"max_tokens": 700}, {"max_completion_tokens": 700}, {"max_tokens": 10, "max_completion_tokens": 700}],
    ids=str,
)
async def test_compat_04_either_is_what_a_call_reserves(
    clock: FrozenClock,
    upstream: FaultUpstream,
    start_gateway: StartGateway,
    caps: dict[str, Any],
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"tpm": 1000}))
    upstream.always([NEVER])
    async with await RawClient.open(gateway.port) as client:
        await client.send(request_bytes("POST", CHAT, {**C0, **caps}, [AUTH]))
        await upstream.received(1)
        refused = await asked(gateway.port, {**C0, **caps})
    assert (refused.status, refused.error["type"]) == (429, "tokens")
    too_large = {name: value * 2 for name, value in caps.items()}
    assert (await asked(gateway.port, {**C0, **too_large})).error["code"] == "request_too_large"
