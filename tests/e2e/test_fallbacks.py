"""Other candidates, then other models: who is called in place of whom, and what the client is told of it."""

import socket
from typing import Any

import pytest
from doubles import replies
from doubles.call import Call
from doubles.gateway import StartGateway
from doubles.routed import routed
from doubles.script import RST, Script, Step, compact, full, stream
from doubles.sse import contents, final_error
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, COMPLETIONS, EMBEDDINGS, S0, ask

QUOTA = "You have reached your specified API usage limits."


@pytest.fixture
def closed_port() -> str:
    """An address where nobody listens."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{reserved.getsockname()[1]}/v1"


# Candidates.

ELSEWHERE: dict[str, tuple[list[Step], str]] = {
    "retry_01 a 429, at once": (replies.error(429, headers=[("retry-after", "2")]), "rate_limited"),
    "a 429 for longer than any pause": (replies.error(429, headers=[("retry-after", "999")]), "rate_limited"),
    "a 503": (replies.error(503, headers=[("retry-after", "999")]), "overloaded"),
    "a 529": (replies.error(529), "overloaded"),
    "a 500": (replies.error(500), "server_error"),
    "row 16 a 500 that speaks for itself": (
        replies.error(500, headers=[("x-should-retry", "false")]),
        "server_error",
    ),
    "retry_10 a 401": (replies.error(401), "account"),
    "retry_10 a 402": (replies.error(402), "account"),
    "retry_10 a 403": (replies.error(403), "account"),
    "retry_10 quota words in a 400": (replies.error(400, QUOTA), "account"),
    "retry_10 quota words in a 429": (replies.error(429, code="insufficient_quota"), "account"),
    "row 15 a reset": ([RST], "reset"),
    "row 21 a page": ([full(b"<html>", content_type="text/html")], "invalid"),
}


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
@pytest.mark.parametrize("name", ELSEWHERE)
async def test_another_candidate_takes_the_call(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, name: str, body: Any
) -> None:
    script, reason = ELSEWHERE[name]
    gateway = await start_gateway(routed(upstream.url, other.url, retry={"backoff_base": "10s", "backoff_max": "60s"}))
    upstream.always(script)
    answer = await ask(gateway.port, body)
    assert (answer.status, answer.complete) == (200, True)
    assert answer.header("x-sluice-attempts") == "2"
    assert (answer.header("x-sluice-upstream"), answer.header("x-sluice-upstream-model")) == ("b", "up-b")
    assert b'"model":"m-small"' in answer.body
    assert b"up-" not in answer.body
    assert [call.json()["model"] for call in (*upstream.calls, *other.calls)] == ["up-a", "up-b"]
    await gateway.outcome("ok")
    await gateway.counted("sluice_retries_total", 1, upstream="a", reason=reason)
    await gateway.counted("sluice_retries_total", 1)
    await gateway.counted("sluice_fallbacks_total", 0)


async def test_route_04_a_dead_host_costs_no_call(
    closed_port: str, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(closed_port, other.url, retry={"budget": 1.0}))
    for _ in range(20):
        assert (await ask(gateway.port, C0)).status == 200
    assert len(other.calls) == 20
    await gateway.counted("sluice_upstream_attempts_total", 5, upstream="a")
    await gateway.counted("sluice_upstream_breaker_state", 2, upstream="a")


async def test_a_wrong_path_costs_one_call_and_the_other_endpoints_nothing(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    def no_chat(call: Call) -> Script:
        return replies.error(404, "Not Found") if call.target == CHAT else replies.ordinary(call)

    gateway = await start_gateway(routed(upstream.url, other.url))
    upstream.always(no_chat)
    for _ in range(20):  # more than the budget has
        assert (await ask(gateway.port, C0)).status == 200
    assert (len(upstream.calls), len(other.calls)) == (1, 20)
    answer = await ask(gateway.port, {"model": "m-small", "input": "x"}, path=EMBEDDINGS)
    assert (answer.status, answer.header("x-sluice-upstream")) == (200, "a")
    await gateway.counted("sluice_retries_total", 1)


async def test_each_upstream_gets_its_own_key_and_no_other(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = routed(upstream.url, other.url)
    for name, one in config["upstreams"].items():
        one["api_key"] = f"key-of-{name}-0123456789"
    gateway = await start_gateway(config)
    upstream.always(replies.error(500))
    assert (await ask(gateway.port, C0)).status == 200
    assert upstream.calls[0].header("authorization") == ["Bearer key-of-a-0123456789"]
    assert other.calls[0].header("authorization") == ["Bearer key-of-b-0123456789"]
    assert b"key-of-a" not in other.calls[0].head


async def test_retry_01_both_are_busy_so_both_are_asked_once_and_one_of_them_twice(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url, retry={"attempts": 4}))
    upstream.reply(replies.error(429, headers=[("retry-after-ms", "150")]))
    other.always(replies.error(429, headers=[("retry-after-ms", "300")]))
    answer = await ask(gateway.port, C0)
    assert answer.status == 200
    assert (len(upstream.calls), len(other.calls)) == (2, 1)
    assert answer.header("x-sluice-upstream") == "a"


async def test_one_that_fails_does_not_lend_its_headers_to_another(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url))
    headers = [("retry-after", "9"), ("x-should-retry", "false"), ("x-request-id", "req-of-a")]
    upstream.always(replies.error(503, headers=headers))
    answer = await ask(gateway.port, C0)
    assert answer.status == 200
    for name in ("retry-after", "retry-after-ms", "x-should-retry", "x-upstream-request-id"):
        assert answer.header(name) is None


# Overflows.

TOO_LONG = {
    "vllm": (
        "This model's maximum context length is 4096 tokens. However, you requested 5077 tokens "
        "(4077 in the messages, 1000 in the completion). Please reduce the length of the messages.",
        400,
    ),
    "sglang": ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", 400),
    "llama.cpp": (
        "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
        400,
    ),
    "anthropic": ("prompt is too long: 5000 tokens > 4096 maximum", 400),
    "gemini": ("The input token count (5000) exceeds the maximum number of tokens allowed (4096).", 400),
}


@pytest.mark.parametrize("name", TOO_LONG)
async def test_route_01_an_overflow_goes_to_the_larger_window(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, name: str
) -> None:
    message, status = TOO_LONG[name]
    config = routed(
        upstream.url, upstream.url, other.url, windows=(4096, 2048, 8192), retry={"attempts": 1, "budget": 0}
    )
    gateway = await start_gateway(config)
    upstream.always(replies.error(status, message, code=status))
    for _ in range(5):  # more than any reserve of a budget
        answer = await ask(gateway.port, C0)
        assert answer.status == 200
        assert answer.header("x-sluice-upstream-model") == "up-c"
    assert {call.json()["model"] for call in upstream.calls} == {"up-a"}
    await gateway.counted("sluice_upstream_breaker_state", 0)


@pytest.mark.parametrize("name", TOO_LONG)
async def test_route_01_without_one_the_client_hears_so_in_the_upstreams_words(
    upstream: FaultUpstream, start_gateway: StartGateway, name: str
) -> None:
    message, status = TOO_LONG[name]
    gateway = await start_gateway(routed(upstream.url, upstream.url, windows=(4096, 4096)))
    upstream.always(replies.error(status, message, code=status))
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert answer.error["message"].startswith(message)
    assert answer.header("x-should-retry") == "false"
    assert len(upstream.calls) == 1


async def test_route_01_a_fallback_with_a_larger_window_will_do(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = routed(upstream.url, fallbacks=(other.url,), windows=(4096,))
    config["models"]["m-x"]["candidates"][0]["context_window"] = 8192
    gateway = await start_gateway(config)
    upstream.always(replies.error(400, TOO_LONG["sglang"][0]))
    answer = await ask(gateway.port, C0)
    assert answer.status == 200
    await gateway.counted("sluice_fallbacks_total", 1, from_model="m-small", to_model="m-x")


# Fallbacks.

ASKS_MUCH = {
    **C0,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "response_format": {"type": "json_object"},
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ],
        }
    ],
    "seed": 7,
    "made_up": {"kept": True},
}


@pytest.mark.parametrize("body", [ASKS_MUCH, ASKS_MUCH | {"stream": True}], ids=["whole", "stream"])
async def test_a_fallback_answers_under_the_name_that_was_asked_for(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, body: dict[str, Any]
) -> None:
    gateway = await start_gateway(routed(upstream.url, fallbacks=(other.url,)))
    upstream.always(replies.error(500))
    answer = await ask(gateway.port, body)
    assert (answer.status, answer.complete) == (200, True)
    assert b'"model":"m-small"' in answer.body
    assert b"up-x" not in answer.body
    assert b"m-x" not in answer.body
    assert (answer.header("x-sluice-upstream"), answer.header("x-sluice-upstream-model")) == ("x", "up-x")
    assert answer.header("x-sluice-attempts") == "3"
    assert other.calls[0].json() == {**body, "model": "up-x"}
    await gateway.outcome("ok", model="m-small")
    await gateway.counted("sluice_fallbacks_total", 1, from_model="m-small", to_model="m-x")


@pytest.mark.parametrize(
    ("path", "body"), [(COMPLETIONS, {"model": "m-small", "prompt": "x"}), (EMBEDDINGS, {"input": "x"})]
)
async def test_on_every_endpoint(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, path: str, body: Any
) -> None:
    gateway = await start_gateway(routed(upstream.url, fallbacks=(other.url,)))
    upstream.always([RST])
    answer = await ask(gateway.port, {**body, "model": "m-small"}, path=path)
    assert answer.status == 200
    assert answer.json()["model"] == "m-small"


async def test_retry_05_each_fallback_is_called_once_and_the_last_error_is_told(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(upstream.url, fallbacks=(other.url, other.url)))
    upstream.always(replies.error(500))
    other.reply(replies.error(500))
    other.always(replies.error(429, "slow down", headers=[("retry-after", "7")]))
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.error["code"]) == (429, "upstream_rate_limited")
    assert answer.header("retry-after") == "7"
    assert answer.header("x-sluice-attempts") == "4"
    assert answer.header("x-sluice-upstream") == "y"
    assert len(upstream.calls) == 2
    assert [call.json()["model"] for call in other.calls] == ["up-x", "up-y"]
    await gateway.counted("sluice_fallbacks_total", 1, to_model="m-x")
    await gateway.counted("sluice_fallbacks_total", 1, to_model="m-y")


async def test_a_good_first_candidate_is_all_that_is_called(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url, fallbacks=(other.url,)))
    assert (await ask(gateway.port, C0)).header("x-sluice-upstream") == "a"
    assert other.calls == []


async def test_retry_10_a_clients_own_mistake_reaches_no_fallback(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url, fallbacks=(other.url,)))
    upstream.always(replies.error(400, "temperature"))
    assert (await ask(gateway.port, C0)).status == 400
    assert other.calls == []


async def test_a_stream_that_broke_in_the_middle_is_not_continued_by_another(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url, fallbacks=(other.url,)))
    upstream.always(stream(*replies.chat_events("one")[:2]))
    answer = await ask(gateway.port, S0)
    assert not answer.complete
    assert final_error(answer.body)["code"] == "upstream_error"
    assert other.calls == []


async def test_sse_16_a_stream_goes_elsewhere_before_its_first_event(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url))
    upstream.always([full(compact({"error": {"message": "full", "code": 503}}))])
    answer = await ask(gateway.port, S0)
    assert contents(answer.body) == "pong"
    assert (len(upstream.calls), len(other.calls)) == (1, 1)


async def test_what_no_candidate_can_do_goes_to_the_first_fallback_that_can(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = routed(upstream.url, fallbacks=(upstream.url, other.url, other.url))
    models = config["models"]
    for name, able in {"m-small": [], "m-x": ["vision"], "m-y": ["tools"], "m-z": None}.items():
        models[name]["candidates"][0]["capabilities"] = able
    gateway = await start_gateway(config)
    with_tools = {**C0, "tools": [{"type": "function", "function": {"name": "f"}}]}
    answer = await ask(gateway.port, with_tools)
    assert (answer.status, answer.header("x-sluice-upstream")) == (200, "y")
    assert answer.json()["model"] == "m-small"
    assert answer.header("x-sluice-routing") == "fallback; model=m-y"
    await gateway.counted("sluice_fallbacks_total", 1, from_model="m-small", to_model="m-y")
    other.reply(replies.error(500), replies.chat())
    answer = await ask(gateway.port, with_tools)
    assert (answer.status, answer.header("x-sluice-upstream")) == (200, "z")
    assert upstream.calls == []
    assert (await ask(gateway.port, C0)).header("x-sluice-upstream") == "a"


async def test_a_call_that_began_at_a_fallback_has_had_its_one_call_there(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = routed(upstream.url, fallbacks=(other.url, other.url), retry={"attempts": 5})
    config["models"]["m-small"]["candidates"][0]["capabilities"] = []
    config["models"]["m-x"]["candidates"].append({"upstream": "x", "model": "also-x"})
    gateway = await start_gateway(config)
    other.reply(replies.error(500))
    answer = await ask(gateway.port, {**C0, "tools": [{"type": "function", "function": {"name": "f"}}]})
    assert (answer.status, answer.header("x-sluice-attempts")) == (200, "2")
    assert [call.json()["model"] for call in other.calls] == ["up-x", "up-y"]
    assert upstream.calls == []


async def test_a_fallback_that_cannot_do_what_is_asked_is_not_asked(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = routed(upstream.url, fallbacks=(other.url,))
    config["models"]["m-x"]["candidates"][0]["capabilities"] = ["vision"]
    gateway = await start_gateway(config)
    upstream.always(replies.error(500))
    with_tools = {**C0, "tools": [{"type": "function", "function": {"name": "f"}}]}
    answer = await ask(gateway.port, with_tools)
    assert (answer.status, answer.header("x-sluice-upstream")) == (502, "a")
    assert other.calls == []
    assert (await ask(gateway.port, C0)).status == 200
    assert len(other.calls) == 1
