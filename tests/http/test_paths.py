"""Which paths are served, how slips are forgiven, and what everything else is told."""

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import RawClient, call
from doubles.settings import AUTH, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, COMPLETIONS, E0, EMBEDDINGS, S0, ask


@pytest.mark.parametrize(
    ("path", "reaches"),
    [
        (CHAT, CHAT),
        ("/chat/completions", CHAT),
        ("/v1/chat/completions/", CHAT),
        ("//v1//chat///completions//", CHAT),
        ("/completions", COMPLETIONS),
        ("/embeddings/", EMBEDDINGS),
    ],
)
async def test_slips_reach_the_same_route_without_a_redirect(
    gateway: InProcessGateway, upstream: FaultUpstream, path: str, reaches: str
) -> None:
    body = {**C0, "prompt": "x", "input": "x"}
    assert (await ask(gateway.port, body, path=path)).status == 200
    assert upstream.calls[0].target == reaches


@pytest.mark.parametrize("path", ["/models", "/v1/models/", "//v1/models", "/models/m-small", "/health/"])
async def test_slips_of_get(gateway: InProcessGateway, path: str) -> None:
    assert (await call(gateway.port, "GET", path)).status == 200


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/v1/models/m-small"])
async def test_v1_twice_names_the_right_path(gateway: InProcessGateway, path: str) -> None:
    answer = await ask(gateway.port, C0, path="/v1" + path)
    assert answer.status == 404
    assert answer.error["code"] == "unknown_url"
    assert f"Did you mean {path}?" in answer.error["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v2/chat/completions",
        "/v1/chat/completions/x",
        "/v1/chat%2Fcompletions",
        "/v1/chat/completions%00",
        "/v1/../v1/chat/completions",
        "/v1/x/../chat/completions",
        "/V1/CHAT/COMPLETIONS",
        "/v1/embeddings;x",
        "/metrics",
        "/admin/config",
        "/readyz",
        "/" + "x" * 5000,
    ],
)
async def test_every_other_path_is_a_404(
    gateway: InProcessGateway, upstream: FaultUpstream, path: str
) -> None:
    for method in ("POST", "GET"):
        answer = await call(gateway.port, method, path, C0 if method == "POST" else None)
        assert answer.status == 404
        assert answer.error["code"] == "unknown_url"
        assert len(answer.body) < 1000
    assert upstream.calls == []
    await gateway.outcome("client_error", 2, status="404", model="other", endpoint="other")


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("/v1/responses", f"use {CHAT} instead."),
        ("/responses", f"use {CHAT} instead."),
        ("/v1/files", f"use {CHAT} instead."),
        ("/v1/batches", f"use {CHAT} instead."),
        ("/v1/messages", f"use {CHAT} instead, with a client that speaks OpenAI's API."),
        ("/v1/messages/count_tokens", f"use {CHAT} instead, with a client that speaks OpenAI's API."),
        ("/v1/rerank", f"ask the engine that ranks directly, or compare the vectors of {EMBEDDINGS}."),
        ("/rerank", f"ask the engine that ranks directly, or compare the vectors of {EMBEDDINGS}."),
        ("/v1/audio/speech", f"ask the provider directly, or send audio to {CHAT} as part of a message"),
        ("/v1/audio/transcriptions", f"ask the provider directly, or send audio to {CHAT}"),
        ("/v1/images/generations", "ask the provider directly; a model that sees takes images in"),
    ],
)
async def test_paths_that_are_not_served_say_what_to_do(
    gateway: InProcessGateway, path: str, advice: str
) -> None:
    answer = await ask(gateway.port, C0, path=path)
    assert (answer.status, answer.error["code"]) == (404, "unknown_url")
    area = path.removeprefix("/v1").split("/")[1]
    assert answer.error["message"].startswith(f"/v1/{area} is not served by this gateway; {advice}")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", CHAT, "POST"),
        ("HEAD", CHAT, "POST"),
        ("PUT", EMBEDDINGS, "POST"),
        ("PATCH", CHAT, "POST"),
        ("REPORT", CHAT, "POST"),
        ("OPTIONS", CHAT, "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/v1/models/m-small", "GET"),
        ("POST", "/health", "GET"),
    ],
)
async def test_other_methods_are_a_405_with_allow(
    gateway: InProcessGateway, method: str, path: str, allowed: str
) -> None:
    answer = await call(gateway.port, method, path)
    assert answer.status == 405
    assert allowed in {one.strip() for one in (answer.header("allow") or "").split(",")}
    if method != "HEAD":
        assert answer.error["code"] == "method_not_allowed"


async def test_compat_18_query_strings_are_dropped_and_azure_paths_unknown(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, keys=True))
    answer = await ask(gateway.port, C0, [AUTH], path=f"{CHAT}?foo=1&foo=2&sig=a%2Bb")
    assert answer.status == 200
    assert upstream.calls[0].target == CHAT
    azure = "/openai/deployments/fast/chat/completions?api-version=2024-06-01"
    answer = await ask(gateway.port, {"messages": []}, [("api-key", AUTH[1].split()[1])], path=azure)
    assert answer.status == 404
    assert answer.error["code"] == "unknown_url"
    assert "api-version" not in answer.error["message"]
    assert len(upstream.calls) == 1


@pytest.mark.parametrize("host", ["gw.example", "gw.example:8080", "[::1]:8080", "10.0.0.1", "UPPER.example"])
async def test_any_well_formed_host_is_accepted(gateway: InProcessGateway, host: str) -> None:
    assert (await ask(gateway.port, C0, [("host", host)])).status == 200


async def test_a_request_costs_one_call_to_each_path(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    async with await RawClient.open(gateway.port) as client:
        for path, body in [(CHAT, C0), (EMBEDDINGS, E0), (CHAT, S0), (COMPLETIONS, {**C0, "prompt": "x"})]:
            await client.request("POST", path, body)
            assert (await client.response()).complete
    assert [one.target for one in upstream.calls] == [CHAT, EMBEDDINGS, CHAT, COMPLETIONS]
