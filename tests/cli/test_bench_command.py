"""`sluice bench` against a fake upstream: what it sends, counts, prints and exits with."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from doubles import replies
from doubles.call import Call
from doubles.gateway import ROOT
from doubles.script import NEVER, RST, Script, compact, delta, frame, full, piece, sse_head, stop, stream
from doubles.threaded import ThreadedUpstream
from doubles.upstream import FaultUpstream
from planned import made
from rich.console import Console

from gateway.cli.bench.driver import LoadDriver
from gateway.cli.bench.output import show
from gateway.cli.bench.run import measured
from gateway.cli.bench.stats import RunStats, differences, figures
from gateway.cli.main import main
from gateway.core.clock import monotonic


@pytest.fixture
def engine() -> Iterator[ThreadedUpstream]:
    with ThreadedUpstream() as one:
        yield one


async def run(*words: str) -> list[RunStats]:
    """The figures of each URL."""
    plan = made(*words)
    return [figures(one) for one in await measured(plan, LoadDriver(plan, monotonic, lambda _: None))]


async def test_streams(upstream: FaultUpstream) -> None:
    (of,) = await run(upstream.url, "--requests", "30", "--key", "sk-1", "--prompt-tokens", "7")
    assert (of.good, of.failed, of.counted, of.input_tokens, of.output_tokens) == (30, 0, True, 5, 2)
    assert (of.first_token is None, of.between_tokens is None) == (False, False)
    assert len({call.json()["messages"][0]["content"] for call in upstream.calls}) == 30
    for call in upstream.calls:
        assert call.target == "/v1/chat/completions"
        assert call.header("authorization") == ["Bearer sk-1"]
        asked = call.json()
        assert len(asked["messages"][0]["content"].split()) == 7
        assert (asked["model"], asked["max_tokens"], asked["stream"]) == ("m", 64, True)
        assert asked["stream_options"] == {"include_usage": True}
    assert upstream.most_in_flight <= 8


@pytest.mark.parametrize(
    ("words", "path", "body"),
    [
        (["--no-stream"], "/v1/chat/completions", {"messages", "model", "max_tokens"}),
        (["--no-stream", "--endpoint", "completions"], "/v1/completions", {"prompt", "model", "max_tokens"}),
        (["--endpoint", "embeddings"], "/v1/embeddings", {"input", "model"}),
    ],
)
async def test_whole_answers(upstream: FaultUpstream, words: list[str], path: str, body: set[str]) -> None:
    (of,) = await run(upstream.url, "--requests", "9", "--concurrency", "2", *words)
    assert (of.good, of.failed, of.first_token, of.between_tokens) == (9, 0, None, None)
    assert {call.target for call in upstream.calls} == {path}
    assert {frozenset(call.json()) for call in upstream.calls} == {frozenset(body)}


async def test_without_usage_pieces_of_text_are_counted(upstream: FaultUpstream) -> None:
    upstream.always(replies.chat_stream("a", "b", "", "c"))
    (of,) = await run(upstream.url, "--requests", "4")
    assert (of.good, of.counted, of.output_tokens) == (4, False, 3)


async def test_thoughts_and_tool_calls_are_output_too(upstream: FaultUpstream) -> None:
    thought = delta({"reasoning_content": "hm"})
    called = delta({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]})
    upstream.always(stream(delta({"role": "assistant", "content": ""}), thought, called, stop()))
    (of,) = await run(upstream.url, "--requests", "2")
    assert (of.good, of.output_tokens) == (2, 2)


async def test_open_loop(upstream: FaultUpstream) -> None:
    (of,) = await run(upstream.url, "--rate", "2000", "--requests", "25")
    assert (of.good, of.failed, len(upstream.calls)) == (25, 0, 25)


FAILURES: dict[str, list[Any]] = {
    "status 429 rate_limit_exceeded": replies.error(429, "slow down", code="rate_limit_exceeded"),
    "status 500": [full(b"oops", 500)],
    "status 302": [full(b"", 302, headers=[("location", "/v1/elsewhere")])],
    "stream cut short": stream(piece("a")),
    "error in the answer busy": stream(b'data: {"error":{"message":"slow down","code":"busy"}}\n\n'),
    "not an answer in OpenAI's shape": stream(b"data: <html>\n\n"),
    "connection broken": [sse_head(), frame(piece("a")), RST],
}


@pytest.mark.parametrize("kind", FAILURES)
async def test_failures_by_kind(upstream: FaultUpstream, kind: str) -> None:
    upstream.reply(replies.chat_stream("a"), *[FAILURES[kind]] * 3)
    (of,) = await run(upstream.url, "--requests", "6", "--concurrency", "1")
    assert (of.good, of.errors) == (3, {kind: 3})
    assert of.messages[kind] in ("slow down", "")


async def test_an_answer_that_never_comes_is_a_timeout(upstream: FaultUpstream) -> None:
    upstream.reply([NEVER])
    (of,) = await run(upstream.url, "--requests", "2", "--concurrency", "1", "--timeout", "200ms")
    assert (of.good, of.errors) == (1, {"timeout": 1})


async def test_two_urls_are_run_in_turn(upstream: FaultUpstream) -> None:
    order: list[str] = []

    def noted(name: str) -> Any:
        def answer(call: Call) -> Script:
            order.append(name)
            return replies.ordinary(call)

        return answer

    async with FaultUpstream() as other:
        upstream.always(noted("A"))
        other.always(noted("B"))
        plan = made(upstream.url, other.url, "--requests", "20", "--concurrency", "1")
        first, second = await measured(plan, LoadDriver(plan, monotonic, lambda _: None))
    assert [len(one.samples) for one in first] == [3, 3, 3, 3, 2, 2, 2, 2]
    assert "".join(order) == "AAABBBBBBAAA" * 2 + "AABBBBAA" * 2
    both = differences(first, second)
    assert {len(one.ratios) for one in both if one.what.startswith("whole")} == {8}
    out = io.StringIO()
    show(Console(file=out, width=100), plan, [figures(first), figures(second)], both)
    assert "in the rounds" in out.getvalue()
    assert "too few rounds" not in out.getvalue()


def test_json(engine: ThreadedUpstream, capsys: pytest.CaptureFixture[str]) -> None:
    url = engine.upstream.url
    words = ["bench", url, url, "--model", "up-small", "--requests", "6", "--json", "--seed", "3"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert err == ""
    assert (told["endpoint"], told["stream"], told["seed"]) == ("chat", True, 3)
    assert (told["concurrency"], told["rate"]) == (8, None)
    for result in told["results"]:
        assert result["model"] == "up-small"
        assert (result["url"], result["good"], result["failed"], result["errors"]) == (url, 6, 0, {})
        assert result["total_ms"].keys() == result["first_token_ms"].keys() == {"p50", "p90", "p99"}
    assert {row["what"] for row in told["comparison"]} >= {"first token p50", "requests/s"}


def test_all_failed_is_status_1_with_a_message(engine: ThreadedUpstream, capsys: pytest.CaptureFixture[str]) -> None:
    engine.upstream.always(replies.error(401, "Incorrect API key", code="invalid_api_key"))
    assert main(["bench", engine.upstream.url, "--model", "m", "--concurrency", "1"]) == 1
    out, err = capsys.readouterr()
    assert "20 x status 401 invalid_api_key: Incorrect API key\n" in out
    assert err == "sluice bench: stopped, because the first calls all failed\n"


def test_an_endpoint_that_cannot_be_reached(capsys: pytest.CaptureFixture[str], engine: ThreadedUpstream) -> None:
    url = engine.upstream.url
    engine.wait(engine.upstream.stop())
    assert main(["bench", url, "--model", "m", "--requests", "3"]) == 1
    assert "3 x cannot connect\n" in capsys.readouterr().out


def test_ctrl_c_prints_what_there_is(engine: ThreadedUpstream) -> None:
    engine.upstream.reply(*[replies.chat_stream("a")] * 4)
    engine.upstream.always([NEVER])
    command = [sys.executable, "-m", "gateway", "bench", engine.upstream.url, "--model", "m"]
    running = subprocess.Popen(
        [*command, "--concurrency", "2"],
        cwd=ROOT,
        env={**os.environ, "OPENAI_API_KEY": "sk-1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        engine.wait(engine.upstream.received(6, within=20))
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=10)
        assert (running.returncode, err) == (130, b"")
        assert b"4 good calls, 0 failed" in out
    finally:
        running.kill()
        running.communicate()


async def test_what_an_endpoint_says_is_shown_on_one_line(upstream: FaultUpstream) -> None:
    message = "two\nlines \x1b[2J" + "x" * 500
    upstream.always([full(compact({"error": {"message": message, "code": "odd\n"}}), 400)])
    (of,) = await run(upstream.url, "--requests", "1")
    ((kind, said),) = of.messages.items()
    assert (kind, said.startswith("two\\nlines \\x1b")) == ("status 400 odd\\n", True)
    assert len(said) < 80
