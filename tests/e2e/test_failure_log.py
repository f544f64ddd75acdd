"""The log says why: one line for each failed request, with what the client got and why each attempt failed."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from doubles import replies
from doubles.flights import joined
from doubles.gateway import GatewayProcess, InProcessGateway, StartGateway
from doubles.listing_engine import ListingEngine, gathering, refusal
from doubles.rawclient import Answer, call
from doubles.script import RST, Step, Until, frame, full, piece, sse_head
from doubles.settings import AUTH, KEY, OTHER_KEY, UPSTREAM_KEY, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, E0, EMBEDDINGS, S0

from gateway.telemetry import logging as log
from gateway.telemetry.access_log import as_json
from gateway.telemetry.nonblocking_output import NonBlockingStream

PROMPT = "the-prompt-of-a-client"
ASKED = {**C0, "messages": [{"role": "user", "content": PROMPT}]}
QUOTED = f"bad words in {PROMPT!r}"
DEAD = "http://127.0.0.1:1/v1"
PLAIN = "https at a port that speaks plain HTTP"


@dataclass(frozen=True)
class Failure:
    """A request that fails, and what its line says."""

    says: str
    level: str
    code: str
    body: Any = field(default_factory=lambda: ASKED)
    steps: list[Step] | None = None
    path: str = CHAT
    method: str = "POST"
    key: str | None = KEY
    headers: tuple[tuple[str, str], ...] = ()
    failures: str = ""
    base_url: str | None = None


TABLE = {
    "upstream_key": Failure(
        "credentials or account (status 401): Incorrect API key provided: ***",
        "warning",
        "upstream_auth_failed",
        steps=replies.error(401, "Incorrect API key provided: sk-abcdef123456"),
        failures="account 401",
    ),
    "no_money": Failure(
        "account (status 402)", "warning", "upstream_auth_failed", steps=replies.error(402), failures="account 402"
    ),
    "no_right": Failure(
        "account (status 403)", "warning", "upstream_auth_failed", steps=replies.error(403), failures="account 403"
    ),
    "crash": Failure(
        "answered with status 500", "warning", "upstream_error", steps=replies.error(500, QUOTED), failures="error 500"
    ),
    "busy": Failure(
        "answered with status 503", "warning", "upstream_unavailable", steps=replies.error(503), failures="loaded 503"
    ),
    "too_many": Failure(
        "answered with status 429", "warning", "upstream_rate_limited", steps=replies.error(429), failures="ited 429"
    ),
    "timeout_there": Failure(
        "answered with status 504", "warning", "upstream_timeout", steps=replies.error(504), failures="timeout 504"
    ),
    "refused_input": Failure(
        "answered with status 400",
        "info",
        "bad_x",
        steps=replies.error(400, QUOTED, code="bad_x"),
        failures="error 400",
    ),
    "wrong_path": Failure(
        "does not know the path; see its base_url",
        "warning",
        "upstream_error",
        steps=replies.error(404, "Not Found"),
        failures="path 404",
    ),
    "redirect": Failure(
        "answered with status 302",
        "warning",
        "upstream_error",
        steps=[full(b"", 302, headers=[("location", "http://elsewhere/")])],
        failures="server_error 502",
    ),
    "garbage": Failure(
        "not a JSON object",
        "warning",
        "upstream_invalid_response",
        steps=[full(f"<html>{PROMPT}".encode())],
        failures="invalid",
    ),
    "error_in_200": Failure(
        "answered with an error",
        "warning",
        "upstream_error",
        steps=[full(json.dumps({"error": {"message": QUOTED}}).encode())],
        failures="server_error 502",
    ),
    "reset": Failure("Upstream `local`", "warning", "upstream_error", steps=[RST], failures="reset"),
    "refused": Failure("connection refused", "warning", "upstream_unavailable", base_url=DEAD, failures="connect"),
    "no_tls": Failure("does not speak TLS", "warning", "upstream_error", base_url=PLAIN, failures="tls"),
    "cut_stream": Failure(
        "Upstream `local`",
        "warning",
        "upstream_error",
        body={**ASKED, "stream": True},
        steps=[sse_head(), frame(piece("a")), RST],
        failures="truncated",
    ),
    "bad_json": Failure("not valid JSON", "info", "invalid_json", body=b'{"model": '),
    "unknown_model": Failure("does not exist", "info", "model_not_found", body={**ASKED, "model": "no-such"}),
    "forbidden_model": Failure("may not use the model", "info", "model_not_allowed", key=OTHER_KEY),
    "wrong_key": Failure("incorrect API key", "info", "invalid_api_key", key="gw-wrong-key-12345"),
    "no_key": Failure("Missing", "info", "invalid_api_key", key=None),
    "wrong_url": Failure("/v1/nothing", "info", "unknown_url", path="/v1/nothing"),
    "wrong_method": Failure("", "info", "method_not_allowed", method="GET"),
    "failed_embedding": Failure(
        "answered with status 500",
        "warning",
        "upstream_error",
        body={**E0, "input": PROMPT},
        path=EMBEDDINGS,
        steps=replies.error(500, QUOTED),
        failures="server_error 500",
    ),
}


SEES = {
    "upstream_key": "upstreams.local.api_key",
    "no_money": "upstreams.local.api_key",
    "no_right": "upstreams.local.api_key",
    "too_many": "upstreams.local.rate",
    "wrong_path": "upstreams.local.base_url",
    "garbage": "upstreams.local.base_url",
    "refused": "upstreams.local.base_url",
    "no_tls": "upstreams.local.base_url, upstreams.local.ca_file",
    "unknown_model": "models",
    "forbidden_model": "keys.team-b.models",
}
"""The settings that the lines point at."""


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """The lines of the access log."""
    seen: list[dict[str, Any]] = []

    def write(data: bytes) -> int:
        seen.extend(json.loads(line) for line in bytes(data).splitlines())
        return len(data)

    stream = NonBlockingStream(write, lambda dropped: None)
    monkeypatch.setattr(log, "output", lambda: stream)
    monkeypatch.setattr(log, "_render", as_json)
    before = log.logger.level
    log.logger.setLevel("INFO")
    yield seen
    log.logger.setLevel(before)


@pytest.fixture
async def plain_port() -> AsyncIterator[int]:
    """The port of a server that greets every connection in plain HTTP."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def fail(gateway: InProcessGateway, failure: Failure) -> Answer:
    """Send the request; it fails."""
    keys = (("authorization", f"Bearer {failure.key}"),) if failure.key else ()
    body = None if failure.method == "GET" else failure.body
    return await call(gateway.port, failure.method, failure.path, body, (*keys, *failure.headers))


@pytest.mark.parametrize("name", TABLE)
async def test_the_log_says_why(
    name: str, upstream: FaultUpstream, start_gateway: StartGateway, lines: list[dict[str, Any]], plain_port: int
) -> None:
    failure = TABLE[name]
    if failure.steps is not None:
        upstream.always(failure.steps)
    url = failure.base_url or upstream.url
    if url == PLAIN:
        url = f"https://127.0.0.1:{plain_port}/v1"
    gateway = await start_gateway(settings(url, keys=True, upstream={"api_key": UPSTREAM_KEY}))
    await fail(gateway, failure)
    await gateway.counted("sluice_requests_total", 1)
    (line,) = lines
    assert (line["level"], line["code"]) == (failure.level, failure.code)
    assert failure.says in line["error"]
    assert line.get("failures", []) == [] if not failure.failures else failure.failures in line["failures"][-1]
    assert line.get("see", "") == SEES.get(name, "")
    text = json.dumps(line)
    for secret in (PROMPT, KEY, OTHER_KEY, UPSTREAM_KEY, "sk-abcdef", "gw-wrong", "127.0.0.1"):
        assert secret not in text


async def test_each_attempt_is_named_and_success_after_one_too(
    upstream: FaultUpstream, start_gateway: StartGateway, lines: list[dict[str, Any]]
) -> None:
    gateway = await start_gateway(settings(upstream.url, retry={"attempts": 2, "backoff_base": "1ms"}))
    upstream.reply(replies.error(500), replies.error(502))
    await call(gateway.port, "POST", CHAT, C0)
    await gateway.counted("sluice_requests_total", 1)
    assert lines[0]["failures"] == ["local/up-small server_error 500", "local/up-small server_error 502"]
    upstream.reply(replies.error(500))
    assert (await call(gateway.port, "POST", CHAT, S0)).status == 200
    await gateway.counted("sluice_requests_total", 2)
    assert (lines[1]["level"], lines[1]["failures"]) == ("info", ["local/up-small server_error 500"])


async def test_while_a_breaker_is_open_the_lines_say_what_opened_it(
    start_gateway: StartGateway, lines: list[dict[str, Any]]
) -> None:
    gateway = await start_gateway(settings(DEAD, upstream={"breaker": {"failures": 1}}))
    for _ in range(2):
        await call(gateway.port, "POST", CHAT, C0)
    await gateway.counted("sluice_requests_total", 2)
    assert lines[1]["error"] == (
        "Upstream `local` has failed repeatedly and is left alone for a moment. "
        "Its last failure: Upstream `local` cannot be reached: connection refused."
    )


async def test_an_upstream_s_wait_is_in_the_line(
    upstream: FaultUpstream, start_gateway: StartGateway, lines: list[dict[str, Any]]
) -> None:
    gateway = await start_gateway(settings(upstream.url))
    upstream.always(replies.error(429, headers=[("retry-after", "20")]))
    await call(gateway.port, "POST", CHAT, C0)
    await gateway.counted("sluice_requests_total", 1)
    assert lines[0]["error"] == "Upstream `local` answered with status 429 and asks to wait 20 s."


FAILED = ["local/up-embed server_error 500"]


def of_requests(lines: list[dict[str, Any]], outcome: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["outcome"] == outcome]


async def test_a_merged_call_that_fails_is_in_the_line_of_each_caller(
    engine: ListingEngine, start_gateway: StartGateway, lines: list[dict[str, Any]]
) -> None:
    batch = await gathering(["a", "b", "c"], engine, start_gateway)
    engine.upstream.always(refusal(500, PROMPT))
    assert [answer.status for answer in await batch.ends()] == [502] * 3
    await batch.gateway.counted("sluice_requests_total", 4)
    failed = of_requests(lines, "upstream_error")
    assert [line["failures"] for line in failed] == [FAILED] * 3
    assert {line["error"] for line in failed} == {"Upstream `local` answered with status 500."}
    assert {line["level"] for line in failed} == {"warning"}
    assert PROMPT not in json.dumps(lines)


async def test_a_merged_call_that_is_refused_is_in_the_lines_of_all_and_only_one_of_them_failed(
    engine: ListingEngine, start_gateway: StartGateway, lines: list[dict[str, Any]]
) -> None:
    batch = await gathering(["a", "poison", "c"], engine, start_gateway)
    assert [answer.status for answer in await batch.ends()] == [200, 400, 200]
    await batch.gateway.counted("sluice_requests_total", 4)
    refused = "local/up-embed client_error 400"
    assert [line.get("failures", []) for line in of_requests(lines, "ok")] == [[], [refused], [refused]]
    (failed,) = of_requests(lines, "client_error")
    assert (failed["level"], failed["failures"]) == ("info", [refused, refused])


async def test_a_part_of_a_list_that_fails_is_in_the_line_of_its_caller(
    upstream: FaultUpstream, start_gateway: StartGateway, lines: list[dict[str, Any]]
) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream={"max_inputs": 2}))
    upstream.always(
        lambda call: replies.error(500, PROMPT) if "c" in call.json()["input"] else replies.embeddings(inputs=2)
    )
    answer = await call(gateway.port, "POST", EMBEDDINGS, {**E0, "input": ["a", "b", "c", "d"]})
    assert answer.status == 502
    await gateway.counted("sluice_requests_total", 1)
    assert (lines[0]["failures"], lines[0]["error"]) == (FAILED, "Upstream `local` answered with status 500.")


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_a_shared_call_that_fails_is_in_the_line_of_each_caller(
    upstream: FaultUpstream, start_gateway: StartGateway, lines: list[dict[str, Any]], body: dict[str, Any]
) -> None:
    gateway = await start_gateway(settings(upstream.url, cache={"enabled": True}))
    answer_now = asyncio.Event()
    upstream.always([Until(answer_now), *replies.error(500, PROMPT)])
    same = {**body, "temperature": 0}
    tasks = [asyncio.create_task(call(gateway.port, "POST", CHAT, same)) for _ in range(3)]
    await joined(gateway, 2)
    answer_now.set()
    assert [answer.status for answer in await asyncio.gather(*tasks)] == [502] * 3
    await gateway.counted("sluice_requests_total", 3)
    assert len(upstream.calls) == 1
    assert [line["failures"] for line in lines] == [["local/up-small server_error 500"]] * 3
    assert {line["error"] for line in lines} == {"Upstream `local` answered with status 500."}


@pytest.mark.parametrize(("name", "kept"), [("crash", 1), ("wrong_key", 0)])
async def test_at_level_warning_only_faults_of_upstreams_and_ours_are_left(
    name: str, kept: int, upstream: FaultUpstream, start_gateway: StartGateway, lines: list[dict[str, Any]]
) -> None:
    upstream.always(replies.error(500))
    gateway = await start_gateway(settings(upstream.url, keys=True))
    log.logger.setLevel("WARNING")
    await fail(gateway, TABLE[name])
    await gateway.counted("sluice_requests_total", 1)
    assert len(lines) == kept


async def test_wrong_keys_are_logged_with_their_address_and_sampled(
    upstream: FaultUpstream, start_gateway: StartGateway, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = await start_gateway(settings(upstream.url, keys=True))
    with caplog.at_level("INFO", "sluice"):
        for _ in range(5):
            await fail(gateway, TABLE["wrong_key"])
    refused = [record for record in caplog.records if record.message == "API key refused"]
    assert [(vars(one)["remote"], vars(one)["requests"]) for one in refused] == [("127.0.0.1", 1)]


async def test_an_upstream_whose_calls_all_fail_is_failing_until_one_is_answered(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, keys=True))

    async def shown() -> dict[str, Any]:
        answer = await call(gateway.admin_port, "GET", "/admin/upstreams")
        return dict(answer.json()["local"])

    assert (await shown())["last_error"] is None
    for steps in (replies.error(401, f"for {UPSTREAM_KEY}"), replies.error(500, PROMPT)):
        upstream.reply(steps)
        await call(gateway.port, "POST", CHAT, C0, [AUTH])
        assert (await shown())["state"] == "failing"
    error = (await shown())["last_error"]
    assert error["message"] == "Upstream `local` answered with status 500."
    assert error["at"].endswith("+00:00")
    assert (await call(gateway.port, "POST", EMBEDDINGS, E0, [AUTH])).status == 200
    assert (await shown())["state"] == "up"
    assert (await shown())["last_error"] == error
    for failed in range(1, 4):
        upstream.reply(replies.error(500))
        await call(gateway.port, "POST", CHAT, C0, [AUTH])
        assert (await shown())["state"] == ("failing" if failed == 3 else "up")


async def test_a_client_s_mistakes_make_no_upstream_failing(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url))
    upstream.always(replies.error(400))
    for _ in range(3):
        await call(gateway.port, "POST", CHAT, C0)
    shown = (await call(gateway.admin_port, "GET", "/admin/upstreams")).json()["local"]
    assert (shown["state"], shown["last_error"]) == ("up", None)


async def test_with_several_workers_the_state_and_the_last_error_are_shown_too(
    upstream: FaultUpstream, tmp_path: Path
) -> None:
    upstream.always(replies.error(500, PROMPT))
    with GatewayProcess(settings(upstream.url, server={"workers": 2}), tmp_path) as gateway:
        await call(gateway.port, "POST", CHAT, C0)
        shown = (await call(gateway.admin_port, "GET", "/admin/upstreams")).json()["local"]
        assert shown["state"] == "failing"
        assert shown["last_error"]["message"] == "Upstream `local` answered with status 500."
        assert (await asyncio.to_thread(gateway.metrics)).value("sluice_upstream_up") == 1
        assert '"level":"warning","msg":"request"' in gateway.log
        upstream.always(replies.chat())
        for _ in range(4):  # whichever worker answers, the failure of the other one is over
            assert (await call(gateway.port, "POST", CHAT, C0)).status == 200
            shown = (await call(gateway.admin_port, "GET", "/admin/upstreams")).json()["local"]
            assert (shown["state"], shown["failures"]["count"]) == ("up", 0)
