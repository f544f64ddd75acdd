"""Responses by id: they go where they live, belong to their key, and are found by every gateway that shares a Redis."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import yaml
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import Answer, call
from doubles.redis_server import RedisServer
from doubles.routed import routed
from doubles.script import compact, full, stream
from doubles.settings import KEY
from doubles.upstream import FaultUpstream
from doubles.wires import responses
from doubles.wires.engine import EveryWire
from doubles.wires.responses import ResponsesEngine
from kit import openai_schema

from gateway.config.load import load

OTHER = "gw-key-of-another-team"
KEYS = [{"name": "team-a", "key": KEY}, {"name": "team-b", "key": OTHER}]
PATH = "/v1/responses"


class Scene:
    """Two upstreams that keep responses, `a` and `b`."""

    def __init__(self, first: FaultUpstream, second: FaultUpstream) -> None:
        self.upstreams = first, second
        for upstream, prefix in ((first, "resp_a"), (second, "resp_b")):
            EveryWire(upstream).responses = ResponsesEngine(prefix=prefix)

    def config(self, **more: Any) -> dict[str, Any]:
        """A config with two keys; a model of two candidates, and one that is served at `b` only."""
        config = routed(*(upstream.url for upstream in self.upstreams), **more)
        config["keys"] = KEYS
        price = {"input": 1, "output": 10, "cached_input": 0.5}
        config["models"]["only-b"] = {"candidates": [{"upstream": "b", "model": "up-b", "price": price}]}
        return config

    def targets(self) -> list[list[str]]:
        """What each upstream was asked for."""
        return [[f"{one.method} {one.target}" for one in upstream.calls] for upstream in self.upstreams]


@pytest.fixture
async def scene(upstream: FaultUpstream, other: FaultUpstream) -> Scene:
    """The upstreams, in good health."""
    return Scene(upstream, other)


@pytest.fixture
async def gateway(scene: Scene, start_gateway: StartGateway) -> InProcessGateway:
    """A gateway in front of both."""
    return await start_gateway(scene.config())


@pytest.fixture
async def sdk(gateway: InProcessGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    """A client as its users make it."""
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


async def ask(gateway: InProcessGateway, method: str, path: str, body: Any = b"", key: str = KEY) -> Answer:
    """One call with a raw client."""
    return await call(gateway.port, method, path, body, [("x-api-key", key)])


async def make(gateway: InProcessGateway, model: str = "only-b", **more: Any) -> str:
    """The id of a new response."""
    answer = await ask(gateway, "POST", PATH, {"model": model, "input": "ping", **more})
    assert answer.status == 200, answer.body
    return str(answer.json()["id"])


async def test_the_sdks_calls_by_id(scene: Scene, sdk: openai.AsyncOpenAI, gateway: InProcessGateway) -> None:
    made = await sdk.responses.create(model="only-b", input="ping")
    assert (await sdk.responses.retrieve(made.id)).model == "only-b"
    assert [item.id async for item in sdk.responses.input_items.list(made.id, limit=2)] == ["msg_in"]
    assert (await sdk.responses.cancel(made.id)).status == "cancelled"
    assert (await sdk.responses.input_tokens.count(model="only-b", input="ping")).input_tokens == 12
    await sdk.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.retrieve(made.id)
    at = f"/v1/responses/{made.id}"
    assert scene.targets() == [
        [],
        [
            "POST /v1/responses",
            f"GET {at}",
            f"GET {at}/input_items?limit=2",
            f"POST {at}/cancel",
            "POST /v1/responses/input_tokens",
            f"DELETE {at}",
        ],
    ]
    # What a response has used is booked once.
    await gateway.counted("sluice_tokens_total", 12, type="input")
    await gateway.counted("sluice_requests_total", 1, endpoint="/v1/responses/{id}/cancel", model="only-b")


async def test_a_streamed_response_is_kept_too(sdk: openai.AsyncOpenAI, gateway: InProcessGateway) -> None:
    async with sdk.responses.stream(model="only-b", input="ping") as reading:
        made = await reading.get_final_response()
    assert (await sdk.responses.retrieve(made.id)).output_text == "pong"


async def test_a_response_can_be_watched_again(
    scene: Scene, sdk: openai.AsyncOpenAI, gateway: InProcessGateway
) -> None:
    name = await make(gateway)
    final = responses.response("up-b", responses.message("pong"), id=name)
    scene.upstreams[1].reply(stream(*responses.events(final)))
    events = [event async for event in await sdk.responses.retrieve(name, stream=True, starting_after=0)]
    assert events[-1].type == "response.completed"
    assert scene.upstreams[1].calls[-1].target.startswith(f"/v1/responses/{name}?")
    await gateway.counted("sluice_tokens_total", 12, type="input")


async def test_another_keys_response_does_not_exist(scene: Scene, gateway: InProcessGateway) -> None:
    name = await make(gateway)
    before = scene.targets()
    for method, path in (
        ("GET", f"{PATH}/{name}"),
        ("DELETE", f"{PATH}/{name}"),
        ("POST", f"{PATH}/{name}/cancel"),
        ("GET", f"{PATH}/{name}/input_items"),
    ):
        theirs = await ask(gateway, method, path, key=OTHER)
        unknown = await ask(gateway, method, path.replace(name, "resp_x"), key=OTHER)
        assert (theirs.status, theirs.error["code"]) == (404, "response_not_found")
        assert theirs.body == unknown.body.replace(b"resp_x", name.encode())
        openai_schema.check(theirs.json(), "ErrorResponse")
    body = {"model": "only-b", "input": "on", "previous_response_id": name}
    assert (await ask(gateway, "POST", PATH, body, key=OTHER)).status == 404
    assert scene.targets() == before
    assert (await ask(gateway, "POST", PATH, body)).status == 200


async def test_a_conversation_stays_where_it_began(scene: Scene, gateway: InProcessGateway) -> None:
    first, second = scene.upstreams
    first.reply(replies.error(503))
    name = await make(gateway, "m-small")  # `a` was busy
    assert name.startswith("resp_b")
    answer = await ask(gateway, "POST", PATH, {"model": "m-small", "input": "on", "previous_response_id": name})
    assert (answer.status, answer.header("x-sluice-upstream")) == (200, "b")
    second.always(replies.error(500))
    failed = await ask(gateway, "POST", PATH, {"model": "m-small", "input": "on", "previous_response_id": name})
    assert failed.status == 502
    assert len(first.calls) == 1  # it never falls back to another
    elsewhere = {"model": "m-none", "input": "on", "previous_response_id": name}
    assert (await ask(gateway, "POST", PATH, elsewhere)).error["code"] == "model_not_found"


async def test_a_response_that_is_not_kept_is_not_remembered(scene: Scene, gateway: InProcessGateway) -> None:
    name = await make(gateway, store=False)
    assert (await ask(gateway, "GET", f"{PATH}/{name}")).error["code"] == "response_not_found"
    assert len(scene.upstreams[1].calls) == 1


async def test_a_reload_that_takes_the_upstream_away(scene: Scene, gateway: InProcessGateway, tmp_path: Any) -> None:
    name = await make(gateway)
    config = scene.config()
    config["models"]["only-b"]["candidates"] = config["models"]["m-small"]["candidates"][:1]
    (tmp_path / "next.yaml").write_text(yaml.safe_dump(config))
    loaded = load(tmp_path / "next.yaml", {}).config
    assert loaded is not None
    await gateway._gateway.reload(loaded)
    assert (await ask(gateway, "GET", f"{PATH}/{name}")).error["code"] == "response_not_found"


@pytest.mark.parametrize("path", ["/v1/responses/a%2Fb", "/v1/responses/a/b", "/v1/responses/" + "x" * 300])
async def test_what_is_no_id_is_an_unknown_url(gateway: InProcessGateway, path: str) -> None:
    assert (await ask(gateway, "GET", path)).error["code"] == "unknown_url"
    assert (await ask(gateway, "PUT", "/v1/responses/resp_1")).status == 405
    assert (await ask(gateway, "GET", "/v1/responses/resp_1/cancel")).header("allow") == "POST"


async def test_gateways_with_one_redis_share_what_they_remember(
    scene: Scene, start_gateway: StartGateway, redis_server: RedisServer
) -> None:
    shared = scene.config(redis={"url": redis_server.url, "timeout": "5s"})
    first, second = await start_gateway(shared), await start_gateway(shared)
    name = await make(first)
    assert (await ask(second, "GET", f"{PATH}/{name}")).status == 200
    assert (await ask(second, "GET", f"{PATH}/{name}", key=OTHER)).status == 404
    await first.stop()
    restarted = await start_gateway(shared)
    assert (await ask(restarted, "GET", f"{PATH}/{name}")).json()["model"] == "only-b"
    assert (await ask(restarted, "GET", f"{PATH}/{name}", key=OTHER)).status == 404
    assert (await ask(second, "DELETE", f"{PATH}/{name}")).status == 200
    assert (await ask(restarted, "GET", f"{PATH}/{name}")).error["code"] == "response_not_found"


async def test_without_redis_what_is_known_here_is_served(
    scene: Scene, start_gateway: StartGateway, redis_server: RedisServer
) -> None:
    gateway = await start_gateway(scene.config(redis={"url": redis_server.url, "timeout": "200ms"}))
    name = await make(gateway)
    redis_server.pause()
    try:
        assert (await ask(gateway, "GET", f"{PATH}/{name}")).status == 200
        unknown = await ask(gateway, "GET", f"{PATH}/resp_x")
        assert (unknown.status, unknown.error["code"]) == (503, "limits_unavailable")
        assert unknown.header("retry-after") == "1"
    finally:
        redis_server.resume()


async def test_background_work_is_booked_once_when_it_is_seen_done(scene: Scene, gateway: InProcessGateway) -> None:
    name = await make(gateway, background=True)
    await gateway.counted("sluice_tokens_total", 0)
    working = responses.response("up-b", id=name, status="in_progress")
    scene.upstreams[1].reply([full(compact(working))])
    assert (await ask(gateway, "GET", f"{PATH}/{name}")).json()["status"] == "in_progress"
    await gateway.counted("sluice_requests_total", 2)
    await gateway.counted("sluice_tokens_total", 0)
    costs = []
    for _ in range(3):
        shown = await ask(gateway, "GET", f"{PATH}/{name}")
        assert shown.json()["status"] == "completed"
        costs.append(float(shown.header("x-sluice-cost-usd") or 0))
    assert costs == [pytest.approx((8 * 1 + 4 * 0.5 + 5 * 10) / 10**6), 0, 0]
    await gateway.counted("sluice_requests_total", 5)
    await gateway.counted("sluice_tokens_total", 12, type="input", source="upstream")
    await gateway.counted("sluice_tokens_total", 5, type="output", source="upstream")


async def test_background_work_is_booked_by_one_gateway(
    scene: Scene, start_gateway: StartGateway, redis_server: RedisServer
) -> None:
    shared = scene.config(redis={"url": redis_server.url, "timeout": "5s"})
    first, second = await start_gateway(shared), await start_gateway(shared)
    name = await make(first, background=True)
    for gateway in (second, first, second):
        assert (await ask(gateway, "GET", f"{PATH}/{name}")).status == 200
    await second.counted("sluice_tokens_total", 12, type="input", source="upstream")
    await first.counted("sluice_requests_total", 2)
    await first.counted("sluice_tokens_total", 0)
