"""What clients of other gateways and providers expect: time-outs, details of errors, windows, engine fields."""

import json
from typing import Any

import pytest
from doubles.gateway import StartGateway
from doubles.rawclient import call
from doubles.script import NEVER, Script, full
from doubles.settings import AUTH, KEY, OTHER_KEY, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, ask

from gateway.wire.http.header_policy import read_timeout


def error(body: dict[str, Any], status: int) -> Script:
    return [full(json.dumps(body).encode(), status)]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-stainless-timeout": "1"}, 1.0),
        ({"x-stainless-timeout": "600.5"}, 600.5),
        ({"x-stainless-read-timeout": "600", "x-stainless-timeout": "2"}, 2.0),
        ({"x-stainless-read-timeout": "2", "x-stainless-timeout": "600"}, 2.0),
        ({"x-stainless-read-timeout": "NOT_GIVEN", "x-stainless-timeout": "3"}, 3.0),
        ({"x-stainless-read-timeout": "3", "x-stainless-timeout": "NOT_GIVEN"}, 3.0),
        *[({"x-stainless-timeout": nonsense}, float("inf")) for nonsense in ("", "0", "-1", "1e9", "nan", "None")],
    ],
)
def test_the_shorter_timeout_of_the_sdk_counts(headers: dict[str, str], seconds: float) -> None:
    assert read_timeout(headers) == seconds


async def test_a_call_of_the_node_sdk_is_ended_in_time(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    upstream.always([NEVER])
    gateway = await start_gateway(settings(upstream.url))
    assert (await ask(gateway.port, C0, [("x-stainless-timeout", "0.2")])).status == 504


DETAILS: dict[str, dict[str, Any]] = {
    "Azure's content filter": {
        "innererror": {
            "code": "ResponsibleAIPolicyViolation",
            "content_filter_result": {"hate": {"filtered": True, "severity": "high"}},
        }
    },
    "OpenRouter's metadata": {"metadata": {"raw": "temperature is too high", "provider_name": "DeepInfra"}},
    "Google's details": {"status": "INVALID_ARGUMENT", "details": [{"@type": "type.googleapis.com/x", "field": "a"}]},
    "numbers and lists": {"limit": 5, "allowed": [1.5, True, "low"], "nested": {"a": [{"b": 1}]}},
    "Mistral's loc": {"loc": ["body", "messages", 0], "ctx": {"error": "bad role"}},
    "Groq's generation": {"failed_generation": "<function=x>"},
}


@pytest.mark.parametrize("details", DETAILS.values(), ids=DETAILS)
@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_further_members_of_a_clients_own_error_arrive(
    upstream: FaultUpstream, start_gateway: StartGateway, details: dict[str, Any], status: int
) -> None:
    upstream.always(error({"error": {"message": "Invalid value", "type": "a", "code": "b", **details}}, status))
    gateway = await start_gateway(settings(upstream.url))
    answer = await ask(gateway.port, C0)
    assert answer.status == status
    assert answer.json()["error"] == {"message": "Invalid value", "type": "a", "param": None, "code": "b", **details}


async def test_further_members_are_masked(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    secret, deep = "up-key-0123456789", {"a": {}}
    for _ in range(30):
        deep = {"a": deep}
    further = {
        "raw": f"key {secret} at {upstream.url} from 10.0.0.7, sk-abcdef0123456789",
        "headers": {"Authorization": "Bearer abcdefghijkl", "x": "fine"},
        f"member-{secret}": 1,
        "deep": deep,
        "many": list(range(5000)),
        "code": "its own",
    }
    upstream.always(error({"error": {"message": "no", "metadata": further}}, 400))
    gateway = await start_gateway(settings(upstream.url, upstream={"api_key": secret}))
    answer = await ask(gateway.port, C0)
    for hidden in (secret, "10.0.0.7", "sk-abcdef", "abcdefghijkl", upstream.url):
        assert hidden not in answer.body.decode()
    assert answer.json()["error"]["metadata"]["headers"] == {"Authorization": "***", "x": "fine"}
    assert len(answer.body) < 4000


@pytest.mark.parametrize("status", [401, 403, 402, 500, 503, 429])
async def test_further_members_of_other_errors_do_not_arrive(
    upstream: FaultUpstream, start_gateway: StartGateway, status: int
) -> None:
    upstream.always(error({"error": {"message": "no", "metadata": {"raw": "account 7"}}}, status))
    gateway = await start_gateway(settings(upstream.url))
    answer = await ask(gateway.port, C0)
    assert set(answer.error) == {"message", "type", "param", "code"}


async def test_models_tell_what_is_known_of_their_lengths(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    one = {"upstream": "local"}
    models = {
        "both": {"candidates": [{**one, "context_window": 131072, "max_output": 8192}]},
        "largest": {"candidates": [{**one, "context_window": 8192}, {**one, "context_window": 32768}, one]},
        "output": {"candidates": [{**one, "max_output": 512}]},
        "unknown": {"candidates": [one]},
    }
    gateway = await start_gateway(settings(upstream.url, models=models))
    listed = (await call(gateway.port, "GET", "/v1/models")).json()["data"]
    common = {"id", "object", "created", "owned_by"}
    assert [{name: value for name, value in entry.items() if name not in common} for entry in listed] == [
        {"context_length": 131072, "max_model_len": 131072, "max_output_tokens": 8192},
        {"context_length": 32768, "max_model_len": 32768},
        {"max_output_tokens": 512},
        {},
    ]
    assert (await call(gateway.port, "GET", "/v1/models/both")).json() == listed[0]


ENGINE_FIELDS = {"session_id": "s", "priority": 1, "request_id": "r", "rid": "x", "cache_salt": "y", "lora": []}


@pytest.mark.parametrize("field", ENGINE_FIELDS)
async def test_engine_fields_pass_to_a_provider_and_not_to_an_engine(
    upstream: FaultUpstream, start_gateway: StartGateway, field: str
) -> None:
    config = settings(upstream.url)
    config["upstreams"] |= {kind: {"base_url": upstream.url, "kind": kind} for kind in ("vllm", "sglang", "llamacpp")}
    candidates = {kind: {"candidates": [{"upstream": kind, "model": "x"}]} for kind in config["upstreams"]}
    config["models"] = {
        **candidates,
        "second": {"candidates": [*candidates["local"]["candidates"], *candidates["vllm"]["candidates"]]},
        "falls": {**candidates["local"], "fallbacks": ["over"]},
        "over": {**candidates["local"], "fallbacks": ["vllm"]},
    }
    gateway = await start_gateway(config)
    for model in config["models"]:
        answer = await ask(gateway.port, {**C0, "model": model, field: ENGINE_FIELDS[field]})
        if model == "local":
            assert answer.status == 200
            assert upstream.calls[-1].json()[field] == ENGINE_FIELDS[field]
        else:
            assert (answer.status, answer.error["param"]) == (400, field)
    assert len(upstream.calls) == 1


async def test_the_404_of_a_model_names_ten_that_the_key_may_use(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = settings(upstream.url, keys=True)
    config["models"] |= {f"m-{i}": {"candidates": [{"upstream": "local"}]} for i in range(12)}
    config["keys"].append({"name": "none", "key": "gw-key-none-0123", "models": ["x*"]})
    gateway = await start_gateway(config)

    async def said(key: str, path: str = CHAT) -> str:
        headers = [("authorization", f"Bearer {key}")]
        method, body = ("POST", {**C0, "model": "gpt-5"}) if path == CHAT else ("GET", None)
        answer = await call(gateway.port, method, path, body, headers)
        assert (answer.status, answer.error["code"]) == (404, "model_not_found")
        return str(answer.error["message"])

    for path in (CHAT, "/v1/models/gpt-5"):
        every = await said(KEY, path)
        assert every.startswith("The model `gpt-5` does not exist. Models for this key: `m-small`, `m-embed`, `m-0`,")
        assert every.endswith("`m-7`, ...; GET /v1/models lists all.")
        own = "The model `gpt-5` does not exist. Models for this key: `m-embed`."
        assert await said(OTHER_KEY, path) == own
        assert (await said("gw-key-none-0123", path)).endswith("This key may use no model.")


async def test_a_page_may_call_a_gateway_in_a_private_network(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, server={"cors_origins": ["https://app.example"]}))
    asked = [("access-control-request-method", "POST"), ("access-control-request-private-network", "true")]
    for origin, allowed in (("https://app.example", "true"), ("https://evil.example", None)):
        answer = await call(gateway.port, "OPTIONS", CHAT, headers=[("origin", origin), *asked])
        assert answer.header("access-control-allow-private-network") == allowed
    plain = await call(gateway.port, "OPTIONS", CHAT, headers=[("origin", "https://app.example"), asked[0], AUTH])
    assert plain.header("access-control-allow-private-network") is None
