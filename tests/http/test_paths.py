"""Which paths are served, which variants are forgiven, and how all others are rejected."""

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
async def test_sloppy_get_paths_are_forgiven(gateway: InProcessGateway, path: str) -> None:
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
async def test_every_other_path_is_a_404(gateway: InProcessGateway, upstream: FaultUpstream, path: str) -> None:
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
        ("/v1/files", "set batches.enabled, and it does."),
        ("/v1/batches", "set batches.enabled, and it does."),
    ],
)
async def test_paths_that_are_not_served_say_what_to_do(gateway: InProcessGateway, path: str, advice: str) -> None:
    answer = await ask(gateway.port, C0, path=path)
    assert (answer.status, answer.error["code"]) == (404, "unknown_url")
    area = path.removeprefix("/v1").split("/")[1]
    assert answer.error["message"].startswith(f"Sluice does not serve /v1/{area}; {advice}")


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


async def test_a_request_costs_one_call_to_each_path(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    async with await RawClient.open(gateway.port) as client:
        for path, body in [(CHAT, C0), (EMBEDDINGS, E0), (CHAT, S0), (COMPLETIONS, {**C0, "prompt": "x"})]:
            await client.request("POST", path, body)
            assert (await client.response()).complete
    assert [one.target for one in upstream.calls] == [CHAT, EMBEDDINGS, CHAT, COMPLETIONS]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/files", "set batches.enabled"),
        ("/v1/batches/batch_abc", "set batches.enabled"),
        ("/v1/vector_stores", "call the provider directly"),
        ("/v1/fine_tuning/jobs", "call the provider directly"),
        ("/v1/evals", "call the provider directly"),
        ("/v1/conversations", "call the provider directly"),
        ("/sleep", "call the engine directly"),
        ("/v1/load_lora_adapter", "call the engine directly"),
        ("/key/generate", "keys and their limits stand in the config; see /admin/config and /admin/budgets"),
        ("/team/list", "/admin/budgets on the admin port"),
        ("/spend/logs", "see /admin/usage on the admin port"),
        ("/global/spend/report", "see /admin/usage on the admin port"),
        ("/model/info", "see /v1/models, or /admin/config on the admin port"),
        ("/v1/model/info", "see /v1/models"),
        ("/ui", "run `sluice top`"),
        ("/health/liveliness", "it is /livez on the admin port"),
        ("/health/readiness", "it is /readyz on the admin port"),
        ("/metrics", "it is /metrics on the admin port"),
        ("/admin/usage", "it is on the admin port"),
        ("/api/chat", "this is Ollama's API"),
        ("/openai/deployments/gpt-4o/chat/completions?api-version=1", "this is Azure's path"),
        ("/v1beta/models/gemini-2.5-pro:generateContent", "this is Gemini's API"),
        ("/v1/chat/completion", "Did you mean /v1/chat/completions?"),
        ("/v1/chat", "Sluice serves /v1/chat/completions"),
        ("/v1/embedding", "Did you mean /v1/embeddings?"),
        ("/model", "see /v1/models"),
    ],
)
async def test_a_path_of_another_server_names_the_right_thing(gateway: InProcessGateway, path: str, hint: str) -> None:
    answer = await call(gateway.port, "POST", path, C0)
    assert (answer.status, answer.error["code"]) == (404, "unknown_url")
    assert hint in answer.error["message"]


async def test_the_admin_port_lists_its_paths(gateway: InProcessGateway) -> None:
    index = await call(gateway.admin_port, "GET", "/nothing")
    assert index.status == 404
    for path in ("/metrics", "/livez", "/readyz", "/admin/usage", "/admin/upstreams", "/admin/budgets"):
        assert path in index.body.decode().splitlines()
    for path, hint in (
        ("/nothing", "404: no such path"),
        ("/key/generate", "/admin/budgets"),
        ("/spend/logs", "/admin/usage"),
        ("/health/liveliness", "/livez"),
        (CHAT, "on the main port (server.port)"),
    ):
        answer = await call(gateway.admin_port, "POST", path, C0)
        assert answer.status == 404
        assert hint in answer.body.decode().splitlines()[0]
        assert "/admin/usage" in answer.body.decode().splitlines()
    assert (await call(gateway.admin_port, "POST", "/metrics", C0)).status == 405


@pytest.mark.parametrize(
    ("spoken", "named"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), "began with TLS; use http://"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "began with HTTP/2"),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n", "PROXY protocol"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12), "PROXY protocol"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "began with SSH"),
        (b"*1\r\n$4\r\nPING\r\n", "a Redis command"),
    ],
)
async def test_another_protocol_is_named_to_client_and_log(
    gateway: InProcessGateway, caplog: pytest.LogCaptureFixture, spoken: bytes, named: str
) -> None:
    for _ in range(2):
        client = await RawClient.open(gateway.port)
        await client.send(spoken)
        answer = await client.response()
        assert answer.status == 400
        assert named in answer.error["message"]
        await client.close()
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len([line for line in lines if named in line]) == 1
