"""What holds for chat holds for every endpoint: keys, limits, names, money, failures, metrics."""

from typing import Any, NamedTuple

import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import Answer, call
from doubles.routed import routed
from doubles.script import FIN, full
from doubles.settings import KEY, OTHER_KEY, settings
from doubles.upstream import FaultUpstream
from doubles.wires.engine import EveryWire

JSON = ("content-type", "application/json")
BEARER = ("authorization", f"Bearer {KEY}")


class Asked(NamedTuple):
    """A request to an endpoint, where upstreams serve it, and the tokens that their answer reports."""

    path: str
    body: dict[str, Any]
    at: str
    tokens: tuple[int, int]


REQUESTS = {
    one.path: one
    for one in (
        Asked("/v1/responses", {"input": "ping"}, "/v1/responses", (12, 5)),
        Asked("/v1/messages", {"max_tokens": 9, "messages": []}, "/v1/messages", (15, 5)),
        Asked("/v1/messages/count_tokens", {"messages": []}, "/v1/messages/count_tokens", (0, 0)),
        Asked("/v1/rerank", {"query": "ab", "documents": ["a", "bcd"]}, "/v1/rerank", (6, 0)),
        Asked("/rerank", {"query": "ab", "documents": ["a", "bcd"]}, "/v1/rerank", (6, 0)),
        Asked("/v2/rerank", {"query": "ab", "documents": ["a", "bcd"]}, "/v2/rerank", (6, 0)),
        Asked("/v1/score", {"text_1": "q", "text_2": ["ab", "c"]}, "/v1/score", (3, 0)),
        Asked("/v1/pooling", {"input": ["ab", "c"]}, "/pooling", (3, 0)),
        Asked("/classify", {"input": ["ab", "c"]}, "/classify", (3, 0)),
        Asked("/tokenize", {"prompt": "ab"}, "/tokenize", (0, 0)),
        Asked("/v1/detokenize", {"tokens": [97]}, "/detokenize", (0, 0)),
        Asked("/v1/images/generations", {"prompt": "a cat"}, "/v1/images/generations", (10, 20)),
        Asked("/v1/moderations", {"input": ["ab"]}, "/v1/moderations", (0, 0)),
    )
}
every = pytest.mark.parametrize("asked", REQUESTS.values(), ids=REQUESTS)


async def ask(gateway: InProcessGateway, asked: Asked, *headers: tuple[str, str], model: str = "m-small") -> Answer:
    """Send the request."""
    return await call(gateway.port, "POST", asked.path, {"model": model, **asked.body}, [JSON, *headers])


def code_or_type(answer: Answer) -> str:
    """What tells a refusal in its wire's shape."""
    error = answer.json()["error"]
    if answer.json().get("type") == "error":
        return str(error["type"])
    assert set(error) == {"message", "type", "param", "code"}
    return str(error["code"])


@every
async def test_the_model_is_renamed_both_ways(
    upstream: FaultUpstream, start_gateway: StartGateway, asked: Asked
) -> None:
    EveryWire(upstream)
    config = settings(upstream.url)
    config["models"]["m-small"]["aliases"] = ["gpt-*"]
    gateway = await start_gateway(config)
    for model in ("m-small", "gpt-x"):
        answer = await ask(gateway, asked, model=model)
        assert answer.status == 200, answer.body
        assert answer.json().get("model", model) == model
        received = upstream.calls[-1]
        assert received.json() == {"model": "up-small", **asked.body}
        assert received.target == asked.at
        assert answer.header("x-sluice-upstream-model") == "up-small"


@every
async def test_tokens_money_and_metrics(upstream: FaultUpstream, start_gateway: StartGateway, asked: Asked) -> None:
    EveryWire(upstream)
    config = settings(upstream.url)
    config["models"]["m-small"]["candidates"][0]["price"] = {"input": 1_000, "output": 10_000}
    gateway = await start_gateway(config)
    answer = await ask(gateway, asked)
    given, made = asked.tokens
    assert float(answer.header("x-sluice-cost-usd") or 0) == pytest.approx((given * 1_000 + made * 10_000) / 10**6)
    path = "/v1" + asked.at if asked.at.count("/") == 1 else asked.at
    await gateway.outcome("ok", endpoint=path, model="m-small", status="200")
    await gateway.counted("sluice_tokens_total", given, type="input")
    await gateway.counted("sluice_tokens_total", made, type="output")


@every
async def test_keys_and_limits(upstream: FaultUpstream, start_gateway: StartGateway, asked: Asked) -> None:
    EveryWire(upstream)
    config = settings(upstream.url, keys=True)
    config["keys"][0]["limits"] = {"rpm": 1}
    gateway = await start_gateway(config)
    assert (await ask(gateway, asked)).status == 401
    assert (await ask(gateway, asked, ("x-api-key", OTHER_KEY))).status == 403
    unknown = await ask(gateway, asked, ("x-api-key", OTHER_KEY), model="m-none")
    assert (unknown.status, code_or_type(unknown)[:5]) == (404, "not_f" if "messages" in asked.path else "model")
    assert (await ask(gateway, asked, BEARER)).status == 200
    limited = await ask(gateway, asked, BEARER)
    assert limited.status == 429
    assert limited.header("retry-after") is not None
    assert len(upstream.calls) == 1


@every
async def test_a_candidate_that_does_not_serve_it_is_passed_over(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, asked: Asked
) -> None:
    EveryWire(other)
    upstream.always([full(b'{"detail":"Not Found"}', 404)])
    gateway = await start_gateway(routed(upstream.url, other.url))
    answer = await ask(gateway, asked)
    assert (answer.status, answer.header("x-sluice-upstream")) == (200, "b")


@every
async def test_only_what_serves_it_is_asked(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, asked: Asked
) -> None:
    for one in (upstream, other):
        EveryWire(one)
    config = routed(upstream.url, other.url, fallbacks=(upstream.url,))
    config["upstreams"]["a"]["serves"] = config["upstreams"]["x"]["serves"] = ["chat"]
    config["models"]["m-small"]["aliases"] = ["gpt-*"]
    gateway = await start_gateway(config)
    for model in ("m-small", "gpt-1"):
        answer = await ask(gateway, asked, model=model)
        assert (answer.status, answer.header("x-sluice-upstream")) == (200, "b")
        assert answer.json().get("model", model) == model
    refused = await ask(gateway, asked, model="m-x")
    assert refused.status == 404
    assert refused.json()["error"]["message"].endswith("Models for this key that are: `m-small`.")
    assert "is not served at /v" in refused.json()["error"]["message"]
    assert upstream.calls == []
    other.always(replies.error(500))
    assert (await ask(gateway, asked)).status == 502  # nobody else is asked
    assert upstream.calls == []


@every
async def test_a_dead_upstream_is_followed_by_the_next(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, asked: Asked
) -> None:
    EveryWire(other)
    upstream.always([FIN])
    gateway = await start_gateway(routed(upstream.url, other.url))
    answer = await ask(gateway, asked)
    assert (answer.status, answer.header("x-sluice-attempts")) == (200, "2")


@every
async def test_errors_have_the_shape_of_the_wire(
    upstream: FaultUpstream, start_gateway: StartGateway, asked: Asked
) -> None:
    gateway = await start_gateway(settings(upstream.url))
    upstream.reply(replies.error(400, "no such thing"), replies.error(500), [full(b"<html>")], [full(b"[]")])
    anthropic = "messages" in asked.path
    refused = await ask(gateway, asked)
    assert (refused.status, refused.json()["error"]["message"]) == (400, "no such thing")
    for _ in range(3):
        failed = await ask(gateway, asked)
        assert (failed.status, code_or_type(failed)[:3]) == (502, "api" if anthropic else "ups")


@pytest.mark.parametrize("form", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"])
@every
async def test_other_forms_of_a_body_are_a_415(
    upstream: FaultUpstream, start_gateway: StartGateway, asked: Asked, form: str
) -> None:
    gateway = await start_gateway(settings(upstream.url))
    answer = await call(gateway.port, "POST", asked.path, b"x", [("content-type", form)])
    assert answer.status == 415
    code_or_type(answer)
