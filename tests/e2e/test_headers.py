"""Headers cross by an allow-list, in both directions."""

import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import RawClient
from doubles.script import full, sse_head
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0, ask
from doubles.waiting import eventually


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_auth_06_hop_by_hop_headers_end_here(upstream: FaultUpstream, start_gateway: StartGateway, body) -> None:
    # Even a header that may travel does not, when the client names it a hop-by-hop one.
    forward = {"forward_headers": ["X-Secret", "x-fine"]}
    gateway = await start_gateway(settings(upstream.url, upstream=forward))
    given = [
        ("proxy-authorization", "Basic c2VjcmV0"),
        ("te", "trailers"),
        ("upgrade", "h2c"),
        ("connection", "close, X-Secret"),
        ("x-secret", "1"),
        ("x-fine", "2"),
        ("keep-alive", "timeout=5"),
    ]
    answered = [("connection", "X-Int"), ("x-int", "1"), ("keep-alive", "timeout=5"), ("set-cookie", "a=b")]
    answered += [("server", "engine/1"), ("x-powered-by", "x"), ("trailer", "x"), ("alt-svc", "h3")]
    stream = [sse_head(answered), *replies.chat_stream("x")[1:]]
    upstream.reply(replies.chat(headers=answered) if body is C0 else stream)
    answer = await ask(gateway.port, body, given)
    assert answer.status == 200
    sent = {name for name, _ in upstream.calls[0].headers}
    assert sent.isdisjoint({"proxy-authorization", "te", "upgrade", "connection", "x-secret", "keep-alive"})
    assert upstream.calls[0].header("x-fine") == ["2"]
    got = {name for name, _ in answer.headers}
    assert got.isdisjoint({"x-int", "keep-alive", "set-cookie", "server", "x-powered-by", "trailer", "alt-svc"})


async def test_auth_06_expect_is_handled_by_the_gateway(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    body = b'{"model":"m-small"}'
    async with await RawClient.open(gateway.port) as client:
        await client.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
            b"content-length: %d\r\n\r\n" % len(body)
        )
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(body)
        assert (await client.response()).status == 200
    assert upstream.calls[0].header("expect") == []


async def test_a_client_of_http_1_0_is_told_nothing_before_its_answer(gateway: InProcessGateway) -> None:
    """RFC 9110, section 10.1.1: its Expect is ignored, for it does not know interim answers."""
    body = b'{"model":"m-small"}'
    async with await RawClient.open(gateway.port) as client:
        await client.send(
            b"POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\nexpect: 100-continue\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        )
        await eventually(lambda: len(gateway._gateway._serve.open_calls) == 1, "its head has been read")
        await client.send(body)
        assert (await client.reader.readuntil(b"\r\n")).endswith(b" 200 OK\r\n")


async def test_auth_06_nobody_is_asked_to_go_on_for_a_refusal(gateway: InProcessGateway) -> None:
    async with await RawClient.open(gateway.port) as client:
        await client.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 99999999\r\n\r\n"
        )
        answer = await client.response()
    assert (answer.status, answer.interim) == (413, [])


async def test_auth_07_host_and_forwarding_headers(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    given = [
        ("host", "gw.example"),
        ("x-forwarded-for", "10.0.0.1"),
        ("via", "1.0 x"),
        ("forwarded", "for=1"),
    ]
    given += [
        ("x-real-ip", "10.0.0.1"),
        ("x-forwarded-host", "evil"),
        ("origin", "http://x"),
        ("referer", "y"),
    ]
    assert (await ask(gateway.port, C0, given)).status == 200
    sent = upstream.calls[0]
    assert sent.header("host") == [f"127.0.0.1:{upstream.port}"]
    for name, _ in given[1:]:
        assert sent.header(name) == [], name


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_auth_10_ids_and_useful_headers(gateway: InProcessGateway, upstream: FaultUpstream, body) -> None:
    told = [("x-request-id", "up-7"), ("openai-processing-ms", "12"), ("x-ratelimit-remaining-tokens", "99")]
    stream = [sse_head(told), *replies.chat_stream("x")[1:]]
    upstream.reply(replies.chat(headers=told) if body is C0 else stream)
    answer = await ask(gateway.port, body, [("x-request-id", "r1")])
    assert answer.header("x-request-id") == "r1"
    assert answer.header("x-upstream-request-id") == "up-7"
    assert answer.header("openai-processing-ms") == "12"
    assert upstream.calls[0].header("x-request-id") == ["r1"]
    assert float(answer.header("x-sluice-overhead-ms") or "") >= 0
    assert float(answer.header("x-sluice-queue-ms") or "") >= 0


@pytest.mark.parametrize("given", [None, "", "a b", "x" * 129, "ü", "a,b", "<script>"])
async def test_a_request_id_that_is_none_is_replaced(
    gateway: InProcessGateway, upstream: FaultUpstream, given: str | None
) -> None:
    seen = set()
    for _ in range(2):
        answer = await ask(gateway.port, C0, [] if given is None else [("x-request-id", given)])
        made = answer.header("x-request-id")
        assert made
        assert made != given
        assert upstream.calls[-1].header("x-request-id") == [made]
        seen.add(made)
    assert len(seen) == 2


async def test_trace_context_travels_on(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    trace = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    await ask(gateway.port, C0, [trace, ("tracestate", "a=b"), ("baggage", "secret=1")])
    sent = upstream.calls[0]
    assert sent.header("traceparent") == [trace[1]]
    assert sent.header("tracestate") == ["a=b"]
    assert sent.header("baggage") == []


async def test_the_configs_own_headers_are_sent(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    own = {"headers": {"HTTP-Referer": "https://app.example", "User-Agent": "ours/1"}}
    gateway = await start_gateway(settings(upstream.url, upstream=own))
    await ask(gateway.port, C0)
    assert upstream.calls[0].header("http-referer") == ["https://app.example"]
    assert upstream.calls[0].header("user-agent") == ["ours/1"]


@pytest.mark.parametrize("value", ["a\rb", "a\x00b", "a\nb", "x" * 10_000])
async def test_an_upstreams_header_cannot_forge_another(
    gateway: InProcessGateway, upstream: FaultUpstream, value: str
) -> None:
    upstream.reply(replies.chat(headers=[("x-request-id", value)]))
    answer = await ask(gateway.port, C0)
    assert answer.status in (200, 502)
    told = answer.header("x-upstream-request-id")
    assert told is None or (told.isprintable() and len(told) < 5000)


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
async def test_an_answers_length_is_its_own(gateway: InProcessGateway, upstream: FaultUpstream, path: str) -> None:
    """The name of the model changes the length."""
    upstream.reply([full(b'{"model":"a name that is much longer than the public one"}')])
    answer = await ask(gateway.port, C0, path=path)
    assert answer.body == b'{"model":"m-small"}'
    assert answer.header("content-type") == "application/json"
