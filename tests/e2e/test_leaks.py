"""No key and no address in anything that a client can read (AUTH-02)."""

import json
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import StartGateway
from doubles.script import NEVER, RST, event, full, stream
from doubles.settings import KEY, UPSTREAM_KEY, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, S0, ask

HOST = "u-internal.invalid"
ECHO = f"key {UPSTREAM_KEY} refused by http://user:pw@{HOST}:9/v1 (10.9.8.7:9, /home/u/app.py)"
LEAKS = {
    "400": (replies.error(400, ECHO), 400),
    "401": (replies.error(401, ECHO), 502),
    "500": (replies.error(500, ECHO), 502),
    "503": (replies.error(503, ECHO), 503),
    "error in a 200": (replies.error(200, ECHO), 502),
    "invalid JSON": ([full(ECHO.encode())], 502),
    "error as the first event": (stream(event({"error": {"message": ECHO}})), 502),
    "reset": ([RST], 502),
    "no answer": ([NEVER], 504),
}


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
@pytest.mark.parametrize("name", LEAKS)
async def test_auth_02_no_key_and_no_address_in_what_a_client_reads(
    upstream: FaultUpstream, start_gateway: StartGateway, name: str, body: dict[str, Any]
) -> None:
    own = {
        "api_key": UPSTREAM_KEY,
        "headers": {"x-token": "header-secret"},
        "timeouts": {"first_byte": "200ms"},
    }
    gateway = await start_gateway(settings(upstream.url, upstream=own))
    script, status = LEAKS[name]
    upstream.reply(script)
    answer = await ask(gateway.port, body)
    assert answer.status == (status if name != "error as the first event" or body is S0 else 502)
    metrics = str((await gateway.metrics()).samples)
    told = answer.head.decode() + answer.body.decode() + metrics
    for secret in (
        UPSTREAM_KEY,
        "header-secret",
        "pw",
        HOST,
        "10.9.8.7",
        "/home/u",
        "127.0.0.1",
        str(upstream.port),
    ):
        assert secret not in told, secret


@pytest.mark.parametrize("url", [f"http://{HOST}:9/v1", "https://127.0.0.1:{port}/v1", "http://127.0.0.1:1/v1"])
async def test_auth_02_no_address_when_it_cannot_be_reached(
    upstream: FaultUpstream, start_gateway: StartGateway, url: str
) -> None:
    gateway = await start_gateway(
        settings(
            url.format(port=upstream.port),
            upstream={"api_key": UPSTREAM_KEY, "timeouts": {"connect": "300ms"}},
        )
    )
    answer = await ask(gateway.port, C0)
    assert answer.status in (502, 503)
    assert answer.error["type"] in ("upstream_error", "overloaded_error")
    for secret in (UPSTREAM_KEY, HOST, "127.0.0.1", str(upstream.port), "Errno", "ssl", "SSL"):
        assert secret not in answer.body.decode(), secret


async def test_keys_of_clients_are_in_no_answer(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, keys=True))
    for wrong in (KEY + "x", "x" * 600, "", " ", "\xff\xfe"):
        answer = await ask(gateway.port, C0, [("authorization", f"Bearer {wrong}")])
        assert answer.status == 401
        assert KEY.encode() not in answer.body
        assert json.loads(answer.body)["error"]["code"] == "invalid_api_key"
