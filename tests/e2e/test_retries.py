"""A failure that another try mends is not the client's; what may not be tried again is not."""

import asyncio
import email.utils
import time

import openai
import pytest
from doubles import replies
from doubles.call import Call
from doubles.gateway import StartGateway
from doubles.routed import routed
from doubles.script import (
    DONE,
    FIN,
    LAST_CHUNK,
    RST,
    Headers,
    Pause,
    Script,
    Step,
    event,
    frame,
    full,
    head,
    piece,
    sse_head,
    stream,
)
from doubles.sse import contents, data_of
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, E0, EMBEDDINGS, S0, ask

BUSY = {"message": "The request queue is full.", "type": "SERVICE_UNAVAILABLE", "param": None, "code": 503}

UNBEGUN: dict[str, list[Step]] = {
    "retry_09 row 34 the end after the head": [sse_head(), LAST_CHUNK],
    "retry_09 row 34 fin after the head": [sse_head(), FIN],
    "row 34 a reset after the head": [sse_head(), Pause(0.02), RST],
    "row 15 a reset before the head": [RST],
    "the end before the head": [FIN],
    "only comments, then the end": [*stream(b": one\n\n", b": two\n\n", end=False), FIN],
    "half an event": [sse_head(), frame(piece("never whole")[:40]), RST],
    "sse_16 an error, then [DONE]": stream(event({"error": BUSY}), DONE),
    "sse_16 an error, then the end": stream(event({"error": BUSY})),
    "a malformed event": [sse_head(), frame(b'data: {"choi\n\n'), FIN],
    "row 22 a page": [full(b"<html>", content_type="text/html")],
    "a 500": replies.error(500),
}


@pytest.mark.parametrize("name", UNBEGUN)
async def test_a_stream_that_breaks_before_its_first_event_is_tried_again_unseen(
    upstream: FaultUpstream, start_gateway: StartGateway, name: str
) -> None:
    gateway = await start_gateway(routed(upstream.url))
    upstream.reply(UNBEGUN[name])
    answer = await ask(gateway.port, S0)
    assert (answer.status, answer.complete) == (200, True)
    assert contents(answer.body) == "pong"
    assert data_of(answer.body)[-1] == "[DONE]"
    assert b"error" not in answer.body
    assert answer.header("x-sluice-attempts") == "2"
    assert upstream.calls[0].body == upstream.calls[1].body
    await gateway.outcome("ok")
    await gateway.counted("sluice_retries_total", 1, upstream="a")
    await gateway.counted("sluice_upstream_attempts_total", 1, upstream="a", result="retryable")
    await gateway.counted("sluice_upstream_attempts_total", 1, upstream="a", result="success")


WHOLE: dict[str, list[Step]] = {
    "row 15 a reset before the head": [RST],
    "retry_07 read, then the end": [Pause(0.02), FIN],
    "row 27 a short body": [head(200, [("content-length", "50")]) + b'{"id":', FIN],
    "row 27 a reset in the body": [head(200, [("transfer-encoding", "chunked")]), frame(b"{"), RST],
    "row 21 a page": [full(b"<html>", content_type="text/html")],
    "row 28 no JSON": [full(b'{"id":')],
    "row 26 two framings": [head(200, [("content-length", "2"), ("transfer-encoding", "chunked")]), FIN],
    "an error in a 200": [full(b'{"error":{"message":"no","code":500}}')],
    "a 500": replies.error(500),
    "a 502": replies.error(502),
    "a 504": replies.error(504),
    "a 408": replies.error(408),
    "route_08 a 503": replies.error(503),
    "route_08 a 529": replies.error(529),
    "a 429 without a time": replies.error(429),
}


@pytest.mark.parametrize("name", WHOLE)
async def test_an_answer_that_is_none_is_tried_again(
    upstream: FaultUpstream, start_gateway: StartGateway, name: str
) -> None:
    gateway = await start_gateway(routed(upstream.url))
    upstream.reply(WHOLE[name])
    answer = await ask(gateway.port, E0 | {"model": "m-small"}, path=EMBEDDINGS)
    assert answer.status == 200
    assert answer.header("x-sluice-attempts") == "2"
    assert upstream.calls[0].body == upstream.calls[1].body
    assert upstream.calls[0].header("x-request-id") == upstream.calls[1].header("x-request-id")
    await gateway.outcome("ok")


async def test_a_large_body_arrives_whole_the_second_time(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(routed(upstream.url))
    upstream.reply([RST])
    text = "안녕🙂" * 100_000
    answer = await ask(gateway.port, {**C0, "user": text})
    assert answer.status == 200
    assert upstream.calls[1].json() == {**C0, "model": "up-a", "user": text}


@pytest.mark.parametrize("end", [FIN, RST, LAST_CHUNK])
async def test_sse_14_nothing_is_tried_again_once_a_byte_has_gone(
    upstream: FaultUpstream, start_gateway: StartGateway, end: Step
) -> None:
    gateway = await start_gateway(routed(upstream.url))
    upstream.reply([*stream(piece("one"), end=False), Pause(0.02), end])
    answer = await ask(gateway.port, S0)
    assert not answer.complete
    assert contents(answer.body) == "one"
    await gateway.outcome("truncated")
    assert len(upstream.calls) == 1


async def test_what_a_retry_cannot_mend_is_told_after_both(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(upstream.url))
    upstream.always(replies.error(500, "boom"))
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.error["code"]) == (502, "upstream_error")
    assert "boom" in answer.error["message"]
    assert answer.header("x-should-retry") == "false"
    assert answer.header("retry-after") is None
    assert answer.header("x-sluice-attempts") == "2"
    assert len(upstream.calls) == 2


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_retry_10_a_clients_own_mistake_is_one_call(
    upstream: FaultUpstream, start_gateway: StartGateway, status: int
) -> None:
    gateway = await start_gateway(routed(upstream.url, upstream.url))
    upstream.always(replies.error(status, "temperature", kind="invalid_request_error", code="bad"))
    for _ in range(10):
        answer = await ask(gateway.port, C0)
        assert answer.status == status
        assert answer.error == {
            "message": "temperature",
            "type": "invalid_request_error",
            "param": None,
            "code": "bad",
        }
    assert len(upstream.calls) == 10
    assert {call.json()["model"] for call in upstream.calls} == {"up-a"}
    await gateway.counted("sluice_upstream_breaker_state", 0)
    await gateway.counted("sluice_upstream_attempts_total", 10, upstream="a", result="ignore")


# Retry-After.


class Timed:
    """An upstream that refuses one call, and when each call came."""

    def __init__(self, upstream: FaultUpstream, headers: Headers, status: int = 429) -> None:
        self.at: list[float] = []
        self._refusal = replies.error(status, headers=headers)
        upstream.always(self._answer)

    def _answer(self, call: Call) -> Script:
        self.at.append(asyncio.get_running_loop().time())
        return self._refusal if len(self.at) == 1 else replies.ordinary(call)

    @property
    def gap(self) -> float:
        """Seconds between the first and the second call."""
        first, second = self.at
        return second - first


def http_date(unix: float) -> str:
    return email.utils.formatdate(unix, usegmt=True)


ASKED = {
    "milliseconds": ([("retry-after-ms", "200")], 0.2),
    "ms wins": ([("retry-after-ms", "200"), ("retry-after", "5")], 0.2),
    "a fraction": ([("retry-after", "0.25")], 0.25),
    "a date": ([("retry-after", http_date(1_000_001)), ("date", http_date(1_000_000))], 1.0),
    "seconds": ([("retry-after", "1")], 1.0),
}


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("name", ASKED)
async def test_retry_02_never_earlier_than_asked(
    upstream: FaultUpstream, start_gateway: StartGateway, name: str, status: int
) -> None:
    headers, seconds = ASKED[name]
    gateway = await start_gateway(routed(upstream.url))
    timed = Timed(upstream, headers, status)
    assert (await ask(gateway.port, C0)).status == 200
    assert timed.gap >= seconds


NONSENSE = ["0", "-3", "NaN", "soon", "inf", "", http_date(time.time() - 100), "1, 2"]


@pytest.mark.parametrize("told", NONSENSE)
async def test_retry_02_nonsense_is_the_normal_pause(
    upstream: FaultUpstream, start_gateway: StartGateway, told: str
) -> None:
    gateway = await start_gateway(routed(upstream.url))
    timed = Timed(upstream, [("retry-after", told)])
    assert (await ask(gateway.port, C0)).status == 200
    assert len(timed.at) == 2


@pytest.mark.parametrize(("told", "passed"), [("3", "3"), ("1e9", "86400"), ("2.5", "3")])
async def test_retry_02_retry_04_a_longer_time_is_the_clients(
    upstream: FaultUpstream, start_gateway: StartGateway, told: str, passed: str
) -> None:
    gateway = await start_gateway(routed(upstream.url, retry={"attempts": 5}))
    upstream.always(replies.error(429, headers=[("retry-after", told)]))
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.error["code"]) == (429, "upstream_rate_limited")
    assert answer.header("retry-after") == passed
    assert answer.header("x-should-retry") is None
    assert len(upstream.calls) == 1


# Advice.


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_x_should_retry_false_is_obeyed(
    upstream: FaultUpstream, start_gateway: StartGateway, status: int
) -> None:
    gateway = await start_gateway(routed(upstream.url))
    upstream.always(replies.error(status, headers=[("x-should-retry", "false")]))
    assert (await ask(gateway.port, C0)).header("x-should-retry") == "false"
    assert len(upstream.calls) == 1


@pytest.mark.parametrize("status", [400, 404, 409, 422])
async def test_x_should_retry_true_is_obeyed(upstream: FaultUpstream, start_gateway: StartGateway, status: int) -> None:
    gateway = await start_gateway(routed(upstream.url))
    upstream.reply(replies.error(status, headers=[("x-should-retry", "true")]))
    assert (await ask(gateway.port, C0)).status == 200
    assert len(upstream.calls) == 2


@pytest.mark.parametrize(("told", "calls"), [("0", 3), ("1", 2), ("2", 1), ("7", 1), ("x", 3)])
async def test_retry_05_a_clients_own_retries_are_counted_in(
    upstream: FaultUpstream, start_gateway: StartGateway, told: str, calls: int
) -> None:
    gateway = await start_gateway(routed(upstream.url, retry={"attempts": 3}))
    upstream.always(replies.error(500))
    await ask(gateway.port, C0, [("x-stainless-retry-count", told)])
    assert len(upstream.calls) == calls


async def test_retry_05_the_sdk_and_the_gateway_together_make_two_calls(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    """The SDK alone would make three, both without knowing of each other nine and more."""
    gateway = await start_gateway(routed(upstream.url))
    upstream.always(replies.error(500))
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(**C0)
    assert len(upstream.calls) == 2


async def test_row_13_a_stale_connection_is_not_an_attempt(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(upstream.url, retry={"attempts": 1}))
    assert (await ask(gateway.port, C0)).status == 200
    upstream.always(lambda call: [RST] if call.nth_on_connection > 1 else replies.ordinary(call))
    answer = await ask(gateway.port, C0)
    assert answer.status == 200
    assert answer.header("x-sluice-attempts") == "1"
    await gateway.counted("sluice_retries_total", 0)
