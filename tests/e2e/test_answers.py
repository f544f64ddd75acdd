"""What an upstream answers is checked before it is committed; whatever is no answer is a 502."""

import gzip

import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.script import FIN, NEVER, RST, Step, compact, event, full, head, stream
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, ask

CUT = compact({"id": "c1", "choices": []})[:-5]
NO_ANSWERS: dict[str, tuple[list[Step], int, str]] = {
    "compat_12 page": (
        [full(b"<html>login</html>", content_type="text/html")],
        502,
        "upstream_invalid_response",
    ),
    "compat_12 error": (replies.error(200, "no"), 502, "upstream_error"),
    "compat_12 error with a status": (replies.error(200, "no", code=429), 429, "upstream_rate_limited"),
    "compat_12 empty": ([full(b"")], 502, "upstream_invalid_response"),
    "compat_12 cut JSON": ([full(CUT)], 502, "upstream_invalid_response"),
    "list": ([full(b"[]")], 502, "upstream_invalid_response"),
    "null": ([full(b"null")], 502, "upstream_invalid_response"),
    "no UTF-8": ([full(b'{"id":"\xff"}')], 502, "upstream_invalid_response"),
    "short of its length": ([head(200, [("content-length", "50")]), CUT, FIN], 502, "upstream_error"),
    "reset in the body": ([head(200, [("content-length", "50")]), CUT, RST], 502, "upstream_error"),
    "no status line": ([b"nonsense\r\n\r\n", FIN], 502, "upstream_invalid_response"),
    "end before the head": ([FIN], 502, "upstream_error"),
    "two lengths": (
        [head(200, [("content-length", "2"), ("content-length", "3")]) + b"{} "],
        502,
        "upstream_invalid_response",
    ),
    "a stream that nobody asked for": (stream(event({"choices": []})), 502, "upstream_invalid_response"),
    "no content": ([head(204)], 502, "upstream_invalid_response"),
    "redirect": ([full(b"", 307, headers=[("location", "/v1/other")])], 502, "upstream_error"),
}


@pytest.mark.parametrize("name", NO_ANSWERS)
async def test_compat_12_a_200_that_is_no_answer(gateway: InProcessGateway, upstream: FaultUpstream, name: str) -> None:
    script, status, code = NO_ANSWERS[name]
    upstream.reply(script)
    answer = await ask(gateway.port, C0)
    assert answer.status == status
    assert answer.error["code"] == code
    assert b"127.0.0.1" not in answer.body
    assert str(upstream.port).encode() not in answer.body
    assert len(upstream.calls) == 1
    await gateway.counted("sluice_requests_total", 0, outcome="ok")
    await gateway.counted("sluice_upstream_inflight", 0)


async def test_an_answer_larger_than_max_body_is_refused(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, server={"max_answer": "64KiB"}))
    big = compact({"x": "y" * 70_000})
    upstream.reply([full(big)], [head(200), big, big, NEVER])
    for _ in range(2):
        answer = await ask(gateway.port, C0)
        assert answer.status == 502
        assert answer.error["code"] == "upstream_invalid_response"


@pytest.mark.parametrize("status", [200, 400])
async def test_sse_25_a_compressed_answer_can_be_read(
    gateway: InProcessGateway, upstream: FaultUpstream, status: int
) -> None:
    plain = replies.chat()[0] if status == 200 else replies.error(400, "too hot")[0]
    assert isinstance(plain, bytes)
    body = plain.partition(b"\r\n\r\n")[2]
    upstream.reply([full(gzip.compress(body), status, headers=[("content-encoding", "gzip")])])
    answer = await ask(gateway.port, C0, [("accept-encoding", "gzip, br, zstd")])
    assert answer.status == status
    assert answer.header("content-encoding") is None
    if status == 200:
        assert answer.body == body.replace(b"up-small", b"m-small")
    else:
        assert answer.error["message"] == "too hot"


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b"no gzip"),
        ("gzip", gzip.compress(b'{"id":1}')[:-4]),
        ("br", b"\x1b\x00\xf8"),
        ("gzip", gzip.compress(b'{"x":"' + b"y" * 130 * 2**20 + b'"}', 1)),
    ],
    ids=["damaged", "cut", "unknown", "bomb"],
)
async def test_sse_25_a_compressed_answer_that_cannot_is_refused(
    gateway: InProcessGateway, upstream: FaultUpstream, coding: str, body: bytes
) -> None:
    upstream.reply([full(body, headers=[("content-encoding", coding)])])
    answer = await ask(gateway.port, C0)
    assert answer.status == 502
    assert answer.error["code"] == "upstream_invalid_response"
