"""However an upstream dies after its first byte, no client takes what it got for a whole answer.

The clients are those that people use: openai for Python, openai for Node, and curl.
"""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import openai
import pytest
from doubles.call import Call
from doubles.gateway import InProcessGateway, StartGateway
from doubles.script import (
    DONE,
    FIN,
    LAST_CHUNK,
    NEVER,
    RST,
    Pause,
    Script,
    Step,
    delta,
    event,
    frame,
    full,
    head,
    piece,
    sse_head,
    stop,
    stream,
    usage,
)
from doubles.settings import settings
from doubles.sse import contents
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0

ASKED: Any = C0["messages"]
WITHIN = 120.0
TOLD = "one two "
BEGUN = [sse_head(), frame(piece("one ")), frame(piece("two "))]
HALF = piece("never whole")[:40]
CLOSE_DELIMITED = head(200, [("content-type", "text/event-stream"), ("connection", "close")])
COUNTED = head(200, [("content-type", "text/event-stream"), ("content-length", "5000")])
ERROR = {"message": "boom", "type": "server_error", "param": None, "code": None}
VLLM_ERROR = {"object": "error", "message": "boom", "type": "InternalServerError", "code": 500}
ARGUMENTS = [
    delta({"tool_calls": [{"index": 0, "id": "t", "type": "function", "function": function}]})
    for function in ({"name": "rm", "arguments": '{"path"'}, {"arguments": ':"/tmp'})
]

DEATHS: dict[str, list[Step]] = {
    "row 37 a clean end": [*BEGUN, LAST_CHUNK],
    "row 35 fin between chunks": [*BEGUN, FIN],
    "row 35 fin in a chunk": [*BEGUN, b"80\r\ndata: {", FIN],
    "row 35 fin in a chunk's size": [*BEGUN, b"8", FIN],
    "row 36 a reset": [*BEGUN, Pause(0.02), RST],
    "row 36 a reset in a chunk": [*BEGUN, b"80\r\ndata: {", Pause(0.02), RST],
    "row 37 a clean end in an event": [*BEGUN, frame(HALF), LAST_CHUNK],
    "fin in an event": [*BEGUN, frame(HALF), FIN],
    "fin before an event's blank line": [*BEGUN, frame(piece("three")[:-1]), FIN],
    "row 38 a close-delimited body": [CLOSE_DELIMITED, piece("one "), piece("two "), FIN],
    "row 38 a reset of one": [CLOSE_DELIMITED, piece("one "), piece("two "), Pause(0.02), RST],
    "a short content-length": [COUNTED, piece("one "), piece("two "), FIN],
    "row 40 silence": [*BEGUN, NEVER],
    "row 40 nothing but comments, then the end": [*BEGUN, frame(b": wait\n\n"), LAST_CHUNK],
    "row 39 an error": [*BEGUN, frame(event({"error": ERROR})), LAST_CHUNK],
    "row 39 an error, then its DONE": [*BEGUN, frame(event({"error": ERROR})), frame(DONE), LAST_CHUNK],
    "row 39 a flat error, then its DONE": [*BEGUN, frame(event(VLLM_ERROR)), frame(DONE), LAST_CHUNK],
    "row 44 half a JSON object": [*BEGUN, frame(b'data: {"id":"c1","choi\n\n'), NEVER],
    "row 26 no chunk framing": [*BEGUN, b"zz\r\n", NEVER],
    "row 42 an event without end": [*BEGUN, frame(b"data: {"), *[frame(b"x" * 2**20)] * 20, NEVER],
    "sse_12 half a tool call": [sse_head(), *map(frame, ARGUMENTS), LAST_CHUNK],
    "usage, but no finish_reason": [*BEGUN, frame(usage(5, 2)), LAST_CHUNK],
    "an empty finish_reason": [*BEGUN, frame(delta({}, finish=None)), LAST_CHUNK],
    "a finish_reason that says nothing": [*BEGUN, frame(stop(finish="")), frame(stop(finish="")), LAST_CHUNK],
    "a finish_reason that says null": [*BEGUN, frame(stop(finish="null")), RST],
    "a choice that failed": [*BEGUN, frame(stop(finish="error")), frame(DONE), LAST_CHUNK],
    "a page after the head": [full(b"<html>", content_type="text/event-stream")],
}
WHOLE_DEATHS: dict[str, list[Step]] = {
    "row 27 a short body": [head(200, [("content-length", "500")]) + b'{"choices":[]}', FIN],
    "row 27 a reset in the body": [head(200, [("content-length", "500")]) + b"{}", Pause(0.02), RST],
    "row 27 fin between chunks": [head(200, [("transfer-encoding", "chunked")]), frame(b'{"id":1}'), FIN],
    "row 28 a close-delimited body cut": [head(200, [("connection", "close")]) + b'{"choices":[', FIN],
    "silence in the body": [head(200, [("content-length", "500")]) + b"{", NEVER],
}
GOOD: dict[str, list[Step]] = {
    "good: whole": stream(piece("one "), piece("two "), stop(), DONE),
    "good: without [DONE]": stream(piece("one "), piece("two "), stop()),
    "good: no end after [DONE]": [*BEGUN, frame(stop()), frame(DONE), FIN],
}
"""What must be seen as a good end: a client that calls all of them broken would prove nothing."""


ALL = DEATHS | WHOLE_DEATHS | GOOD


def as_named(call: Call) -> Script:
    """The script whose name is the model's."""
    return ALL[call.json()["model"]]


@pytest.fixture(params=["httptools", "aiohttp"])
async def gateway(
    request: pytest.FixtureRequest, upstream: FaultUpstream, start_gateway: StartGateway
) -> InProcessGateway:
    """With retries, as it is by default: they must not hide the end of a stream.

    Each script is a model with an upstream of its own, so that none opens the breaker of another.
    """
    upstream.always(as_named)
    timeouts = {"idle": "500ms", "total": "2s"}
    section = {"base_url": upstream.url, "transport": request.param, "timeouts": timeouts}
    config = settings(upstream.url, retry={"attempts": 2, "backoff_base": "1ms"})
    config["upstreams"] = {f"u{number}": section for number, _ in enumerate(ALL)}
    config["models"] = {name: {"candidates": [{"upstream": f"u{number}"}]} for number, name in enumerate(ALL)}
    return await start_gateway(config)


def dead_on_arrival(name: str) -> bool:
    """Whether no event of it is one, so that the answer can be a status."""
    return name == "a page after the head"


async def ends_cleanly(client: openai.AsyncOpenAI, name: str) -> tuple[bool, str]:
    """Whether the SDK takes the stream for whole, and what it got of it."""
    got = ""
    try:
        async for chunk in await client.chat.completions.create(model=name, messages=ASKED, stream=True):
            for choice in chunk.choices:
                got += choice.delta.content or ""
    except openai.OpenAIError:
        return False, got
    return True, got


async def test_openai_for_python(gateway: InProcessGateway) -> None:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:
        names = [*DEATHS, *GOOD]
        seen = dict(zip(names, await asyncio.gather(*(ends_cleanly(client, one) for one in names)), strict=True))
        assert [name for name in DEATHS if seen[name][0]] == []
        assert [name for name in GOOD if not seen[name][0]] == []
        for name in GOOD:
            assert seen[name][1] == TOLD, name
        for name in DEATHS:  # nothing is made up, and nothing is left out in between
            assert TOLD.startswith(seen[name][1]), name
        for name in WHOLE_DEATHS:
            with pytest.raises(openai.InternalServerError):
                await client.chat.completions.create(model=name, messages=ASKED)
    await gateway.counted("sluice_requests_total", len(GOOD), outcome="ok")


NODE = """
import OpenAI from "openai";
const [baseURL, names, whole] = [process.argv[2], JSON.parse(process.argv[3]), JSON.parse(process.argv[4])];
const client = new OpenAI({ baseURL, apiKey: "none" });
const ask = (name, stream) =>
  client.chat.completions.create({ model: name, messages: [{ role: "user", content: "ping" }], stream });
const streamed = async (name) => {
  let got = "";
  try {
    for await (const chunk of await ask(name, true)) got += chunk.choices[0]?.delta?.content ?? "";
  } catch (error) {
    return [name, { clean: false, got, error: error.constructor.name }];
  }
  return [name, { clean: true, got }];
};
const answered = async (name) => {
  try {
    await ask(name, false);
  } catch (error) {
    return [name, { clean: false, got: "", error: error.constructor.name }];
  }
  return [name, { clean: true, got: "" }];
};
const seen = await Promise.all([...names.map(streamed), ...whole.map(answered)]);
console.log(JSON.stringify(Object.fromEntries(seen)));
"""


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where Node finds the package openai. Skipped only where Node or npm is not there at all."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed: nothing of openai for Node has been tested")
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"type":"module"}', encoding="utf-8")
    (folder / "client.mjs").write_text(NODE, encoding="utf-8")
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "openai@6"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


async def output(*command: str, cwd: Path | None = None) -> tuple[int, bytes]:
    """Exit status and stdout."""
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(WITHIN):
            out, _ = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode, out


async def test_openai_for_node(gateway: InProcessGateway, node_folder: Path) -> None:
    streams, whole = [*DEATHS, *GOOD], [*WHOLE_DEATHS]
    status, out = await output(
        "node", "client.mjs", f"{gateway.url}/v1", json.dumps(streams), json.dumps(whole), cwd=node_folder
    )
    assert status == 0
    seen = json.loads(out)
    assert set(seen) == {*streams, *whole}
    assert [name for name in [*DEATHS, *WHOLE_DEATHS] if seen[name]["clean"]] == []
    assert [name for name in GOOD if not seen[name]["clean"]] == []
    # Errors of its own kind, not ones of the JSON parser or of the socket.
    assert {one["error"] for one in seen.values() if not one["clean"]} <= {"APIError", "InternalServerError"}


async def curl(gateway: InProcessGateway, name: str, body: dict[str, Any]) -> tuple[int, bytes]:
    """What curl says, with `--fail` so that an error status is none of its successes."""
    asked = json.dumps({**body, "model": name})
    header = "content-type: application/json"
    return await output("curl", "-sN", "--fail", "-H", header, "-d", asked, gateway.url + CHAT)


async def curls(gateway: InProcessGateway, names: list[str], body: dict[str, Any]) -> dict[str, tuple[int, bytes]]:
    """One curl for each name, all at once."""
    return dict(zip(names, await asyncio.gather(*(curl(gateway, name, body) for name in names)), strict=True))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_curl(gateway: InProcessGateway) -> None:
    streams = await curls(gateway, [*DEATHS, *GOOD], S0)
    answers = await curls(gateway, [*WHOLE_DEATHS], C0)
    for name in DEATHS:
        status, out = streams[name]
        assert status == (22 if dead_on_arrival(name) else 18), name  # 18: a part of the answer is missing
        assert b"[DONE]" not in out, name
        assert dead_on_arrival(name) or b'data: {"error":' in out, name
    assert {name for name, answer in answers.items() if answer != (22, b"")} == set()
    for name in GOOD:
        status, out = streams[name]
        assert status == 0, name
        assert contents(out) == TOLD
