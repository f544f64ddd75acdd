"""Codex, Claude Code and the SDKs for Node and LangChain, as their users run them, through the gateway.

`make node-clients` installs those of Node; without them their tests are skipped.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doubles.gateway import GatewayProcess
from doubles.rawclient import call
from doubles.settings import KEY, settings
from doubles.threaded import ThreadedUpstream
from doubles.wires import forms
from doubles.wires.engine import EveryWire
from doubles.wires.messages import MessagesEngine
from doubles.wires.responses import ResponsesEngine
from kit.pages import ROOT, blocks
from kit.recorded import Recorded, everything
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI

DOCS = ROOT / "docs"
TOLD = "http://127.0.0.1:8080"
NODE = ROOT / ".node-clients"
node = pytest.mark.skipif(not (NODE / "node_modules").exists(), reason="`make node-clients` installs these clients")
COMMAND = "echo written > made.txt"


class Scene:
    """A gateway process in front of an upstream that serves every wire."""

    def __init__(self, gateway: GatewayProcess, threaded: ThreadedUpstream, engine: EveryWire) -> None:
        self.gateway = gateway
        self.url = gateway.url
        self.upstream = threaded.upstream
        self.engine = engine

    def asked(self) -> list[str]:
        """The paths that the upstream was asked for, one after the other."""
        return [f"{one.method} {one.target}" for one in self.upstream.calls]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """The upstream's name of the model differs, so what names it would tell."""
    with ThreadedUpstream() as threaded:
        engine = EveryWire(threaded.upstream)
        config = settings(threaded.upstream.url, keys=True)
        config["models"] = dict.fromkeys(("small", "coder"), config["models"]["m-small"])
        with GatewayProcess(config, tmp_path) as gateway:
            yield Scene(gateway, threaded, engine)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home, with a git folder to work in."""
    folder = tmp_path / "home"
    (folder / "work").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", folder / "work"], check=True, env={"PATH": os.environ["PATH"]})
    return folder


def run(home: Path, *command: str | Path, **environ: str) -> str:
    """The output of a client that ends well within a minute."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), **environ}
    ran = subprocess.run(
        [str(word) for word in command],
        cwd=home / "work",
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def exported(scene: Scene, page: str) -> dict[str, str]:
    """The environment that a page of the docs sets, with this gateway's address and key."""
    lines = [line for block in blocks(DOCS / page, "text") for line in block.splitlines() if line.startswith("export ")]
    pairs = (line.removeprefix("export ").partition("#")[0].strip().partition("=") for line in lines)
    environ = {name: value.replace(TOLD, scene.url).replace("YOUR_SLUICE_KEY", KEY) for name, _, value in pairs}
    assert KEY in environ.values()
    return environ


def script(scene: Scene, code: str) -> Any:
    """What a script for Node prints as JSON; `base` is the gateway's URL."""
    whole = f"const base = {json.dumps(scene.url)}, key = {json.dumps(KEY)};\n{code}"
    command = ["node", "--input-type=module", "-e", whole]
    ran = subprocess.run(command, cwd=NODE, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@node
def test_claude_code_does_a_task_with_a_tool(scene: Scene, home: Path) -> None:
    scene.engine.messages = MessagesEngine(("Bash", {"command": COMMAND, "description": "write"}))
    told = run(
        home,
        *(NODE / "node_modules/.bin/claude", "-p", "write the file", "--model", "coder", "--allowedTools", "Bash"),
        **exported(scene, "claude-code.md"),
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )
    assert told.strip() == "pong"
    assert (home / "work/made.txt").read_text() == "written\n"
    messages = [one for one in scene.upstream.calls if one.target.startswith("/v1/messages")]
    assert len(messages) >= 2
    assert {one.json()["model"] for one in messages} == {"up-small"}
    assert messages[0].header("anthropic-beta")


@node
def test_codex_does_a_task_with_a_tool(scene: Scene, home: Path) -> None:
    scene.engine.responses = ResponsesEngine(("exec_command", json.dumps({"cmd": COMMAND})))
    (home / ".codex").mkdir()
    [settings] = blocks(DOCS / "codex.md", "toml")
    (home / ".codex/config.toml").write_text(settings.replace(TOLD, scene.url))
    command = ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "write the file")
    told = run(home, NODE / "node_modules/.bin/codex", *command, **exported(scene, "codex.md"))
    assert told.strip().endswith("pong")
    assert (home / "work/made.txt").read_text() == "written\n"
    assert scene.asked() == ["POST /v1/responses"] * 2


@node
def test_openais_sdk_for_node(scene: Scene) -> None:
    told = script(
        scene,
        """
        import OpenAI, { toFile } from "openai";
        const client = new OpenAI({ baseURL: base + "/v1", apiKey: key, maxRetries: 0 });
        const made = await client.responses.create({ model: "small", input: "ping" });
        const kinds = [];
        for await (const event of await client.responses.create({ model: "small", input: "ping", stream: true }))
          kinds.push(event.type);
        const final = await client.responses.stream({ model: "small", input: "ping" }).finalResponse();
        const again = await client.responses.retrieve(made.id);
        const cancelled = await client.responses.cancel(made.id);
        await client.responses.delete(made.id);
        const flagged = await client.moderations.create({ model: "small", input: "x" });
        const image = await client.images.edit({ model: "small", prompt: "x",
          image: await toFile(Buffer.from("PNG"), "a.png", { type: "image/png" }) });
        const heard = await client.audio.transcriptions.create({ model: "small",
          file: await toFile(Buffer.from("RIFF"), "a.wav", { type: "audio/wav" }) });
        const spoken = await client.audio.speech.create({ model: "small", voice: "alloy", input: "x" });
        console.log(JSON.stringify({ last: kinds.at(-1), final: final.output_text, model: again.model,
          cancelled: cancelled.status, flagged: flagged.results.length, images: image.data.length, heard: heard.text,
          bytes: (await spoken.arrayBuffer()).byteLength }));
        """,
    )
    assert told == {
        "last": "response.completed",
        "final": "pong",
        "model": "small",
        "cancelled": "cancelled",
        "flagged": 1,
        "images": 1,
        "heard": "pong",
        "bytes": 2048,
    }


@node
def test_vercels_ai_sdk_streams(scene: Scene) -> None:
    told = script(
        scene,
        """
        import { streamText } from "ai";
        import { createOpenAI } from "@ai-sdk/openai";
        const sluice = createOpenAI({ baseURL: base + "/v1", apiKey: key });
        const texts = [];
        for (const model of [sluice.responses("small"), sluice.chat("small")]) {
          let text = "";
          for await (const piece of streamText({ model, prompt: "ping" }).textStream) text += piece;
          texts.push(text);
        }
        console.log(JSON.stringify(texts));
        """,
    )
    assert told == ["pong", "pong"]


def test_langchain_streams(scene: Scene) -> None:
    openai = ChatOpenAI(base_url=f"{scene.url}/v1", api_key=KEY, model="small", use_responses_api=True)
    assert "".join(chunk.text for chunk in openai.stream("ping")) == "pong"
    anthropic = ChatAnthropic(base_url=scene.url, api_key=KEY, model="small")
    assert "".join(chunk.text for chunk in anthropic.stream("ping")) == "pong"
    assert scene.asked() == ["POST /v1/responses", "POST /v1/messages"]


RECORDED = [one for one in everything() if "/responses/resp_" not in one.target]


async def test_what_real_clients_have_sent_reaches_the_upstream_as_it_is(scene: Scene) -> None:
    for request in RECORDED:
        answer = await call(scene.gateway.port, request.method, request.target, request.body, _with_key(request))
        assert answer.status == 200, (request.client, request.target, answer.body)
        received = scene.upstream.calls[-1]
        assert received.target == request.target.partition("?")[0]
        if request.json is not None:
            assert received.json() == {**request.json, "model": "up-small"}
        elif request.body:
            assert received.body == request.body.replace(b"\r\nsmall\r\n", b"\r\nup-small\r\n")
            assert forms.fields_of(received)["model"] == "up-small"
        sent = {name for name, _ in received.headers}
        assert sent.isdisjoint({"x-api-key", "cookie", "originator", "x-app", "session-id"})
        assert KEY not in "".join(value for _, value in received.headers)


def _with_key(request: Recorded) -> list[tuple[str, str]]:
    return [(name, value.replace("KEY", KEY)) for name, value in request.headers]
