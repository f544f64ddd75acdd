"""`GET /v1/models`: OpenAI's shape, only what the key may use, from the config alone."""

import time

import pytest
from doubles.gateway import StartGateway
from doubles.rawclient import call
from doubles.settings import AUTH, OTHER_KEY, settings
from doubles.upstream import FaultUpstream


async def test_compat_15_the_list(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, keys=True))
    await upstream.stop()  # nothing of it is asked
    answer = await call(gateway.port, "GET", "/v1/models", headers=[AUTH])
    assert answer.status == 200
    listing = answer.json()
    assert set(listing) == {"object", "data"}
    assert listing["object"] == "list"
    assert [entry["id"] for entry in listing["data"]] == ["m-small", "m-embed"]
    for entry in listing["data"]:
        assert set(entry) >= {"id", "object", "created", "owned_by"}
        assert entry["object"] == "model"
        assert isinstance(entry["owned_by"], str)
        assert 1_600_000_000 < entry["created"] <= time.time()
    assert upstream.calls == []


async def test_compat_15_a_restricted_key_sees_its_own(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, keys=True))
    restricted = [("x-api-key", OTHER_KEY)]
    answer = await call(gateway.port, "GET", "/v1/models", headers=restricted)
    assert [entry["id"] for entry in answer.json()["data"]] == ["m-embed"]
    one = await call(gateway.port, "GET", "/v1/models/m-small", headers=restricted)
    assert one.status == 404
    assert one.error["code"] == "model_not_found"
    absent = await call(gateway.port, "GET", "/v1/models/x-small", headers=restricted)
    assert one.body == absent.body.replace(b"x-small", b"m-small")
    assert (await call(gateway.port, "GET", "/v1/models")).status == 401


@pytest.mark.parametrize("path", ["org/fast", "org%2Ffast", "org/fast/"])
async def test_compat_15_one_model(upstream: FaultUpstream, start_gateway: StartGateway, path: str) -> None:
    models = {"org/fast": {"candidates": [{"upstream": "local"}]}}
    gateway = await start_gateway(settings(upstream.url, models=models))
    answer = await call(gateway.port, "GET", f"/v1/models/{path}")
    assert answer.status == 200
    assert answer.json()["id"] == "org/fast"
    listing = await call(gateway.port, "GET", "/v1/models")
    assert listing.json()["data"] == [answer.json()]
