"""Nothing of an engine is reachable but what the gateway itself serves."""

from pathlib import Path

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import RawClient, call
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0

from gateway.wire.endpoints import ENDPOINTS

# Of vLLM, SGLang and llama.cpp, and of our own admin port.
PATHS = (Path(__file__).parent / "control_paths.txt").read_text(encoding="ascii").split()


@pytest.mark.parametrize("prefix", ["", "/v1", "//", "/v1/v1", "/v1/models/../.."])
async def test_no_control_endpoint_is_reachable(
    gateway: InProcessGateway, upstream: FaultUpstream, prefix: str
) -> None:
    async with await RawClient.open(gateway.port) as client:
        for path in PATHS:
            for method in ("GET", "POST", "PUT", "DELETE"):
                target = prefix.rstrip("/") + path if prefix != "//" else "/" + path
                await client.request(method, target, C0 if method != "GET" else None)
                answer = await client.response()
                # What lies under /v1/models is the name of a model, which nobody has.
                assert answer.status in ((404, 405) if "models" in prefix else (404,)), (method, target)
                assert answer.error["type"] == "invalid_request_error"
    assert upstream.calls == []


async def test_the_names_of_models_open_no_path(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    async with await RawClient.open(gateway.port) as client:
        for name in ("../reset_prefix_cache", "..%2f..%2fsleep", "m-small/../x", "%00", "m-small%3Fx", "?x"):
            await client.request("GET", f"/v1/models/{name}")
            assert (await client.response()).status == (200 if name == "?x" else 404), name
            await client.request("POST", "/v1/chat/completions", {**C0, "model": name})
            assert (await client.response()).status == 404
    assert upstream.calls == []


async def test_every_route_asks_for_a_key(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, keys=True, server={"cors_origins": ["http://a.test"]}))
    served = {(method, str(endpoint)) for endpoint in ENDPOINTS for method in endpoint.methods}
    assert served == {
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/responses"),
        ("POST", "/v1/responses/compact"),
        ("POST", "/v1/responses/input_tokens"),
        ("GET", "/v1/responses/{id}"),
        ("DELETE", "/v1/responses/{id}"),
        ("POST", "/v1/responses/{id}/cancel"),
        ("GET", "/v1/responses/{id}/input_items"),
        ("POST", "/v1/messages"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/v1/rerank"),
        ("POST", "/v2/rerank"),
        ("POST", "/v1/score"),
        ("POST", "/v1/pooling"),
        ("POST", "/v1/classify"),
        ("POST", "/v1/tokenize"),
        ("POST", "/v1/detokenize"),
        ("POST", "/v1/moderations"),
        ("POST", "/v1/images/generations"),
        ("POST", "/v1/images/edits"),
        ("POST", "/v1/images/variations"),
        ("POST", "/v1/audio/speech"),
        ("POST", "/v1/audio/transcriptions"),
        ("POST", "/v1/audio/translations"),
        ("GET", "/v1/models"),
        ("HEAD", "/v1/models"),
        ("GET", "/health"),
        ("HEAD", "/health"),
    }
    for method, path in [
        *served,
        ("GET", "/v1/models/m-small"),
        ("GET", "/models"),
        ("POST", "/completions"),
    ]:
        answer = await call(gateway.port, method, path.replace("{id}", "resp_1"), C0 if method == "POST" else None)
        assert answer.status == (200 if path == "/health" else 401), (method, path)
    assert upstream.calls == []
