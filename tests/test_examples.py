"""What users run, run: the examples, the README's code and config, and what the pages show of real output."""

import asyncio
import hashlib
import io
import json
import os
import re
import runpy
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from doubles import replies
from doubles.gateway import GatewayProcess
from doubles.rawclient import RawClient, call
from doubles.script import RST, Until, frame, full, head, piece, sse_head
from doubles.settings import KEY, settings
from doubles.threaded import ThreadedUpstream
from kit.pages import EXAMPLES, READMES, ROOT, blocks, table
from prometheus_client.parser import text_string_to_metric_families

from gateway.cli import check
from gateway.pricing.catalogue import Catalogue
from gateway.telemetry.collectors import budget_gauge, upstream_gauges
from gateway.telemetry.metrics import Metrics

README = READMES[0]
DOCS = ROOT / "docs"
OPTIONAL = ("Tracing, AttemptTracing", "Bodies", "StoredResponses")  # off by default, or only for calls by id
MODELS = {
    "small": {"candidates": [{"upstream": "local", "model": "up-small"}]},
    "embed": {"candidates": [{"upstream": "local", "model": "up-embed"}]},
}
# Where `make llama-index` puts it: it does not fit the OpenAI SDK of the other tests.
LLAMA_INDEX = ROOT / ".venv-llama-index" / "bin" / "python"
TIMES = {"ts", "total_ms", "queue_ms", "overhead_ms", "ttft_ms"}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def engine() -> Iterator[ThreadedUpstream]:
    with ThreadedUpstream() as one:
        yield one


@pytest.fixture(scope="module")
def served(engine: ThreadedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway process as the examples and the pages expect it."""
    config = settings(engine.upstream.url, models=MODELS, log={"level": "info"})
    with GatewayProcess(config, tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


@pytest.fixture
def run(served, monkeypatch, capsys):
    """Runs an example; gives what it printed."""

    def run(example: str) -> str:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{served.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        monkeypatch.setattr("sys.argv", [example])
        runpy.run_path(str(ROOT / "examples" / example), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_the_drop_in_example(run):
    models, answer, error = run("drop_in_sdk.py").splitlines()
    assert (models, answer) == ("models: small, embed", "answer: pong")
    assert re.fullmatch(r"error: model_not_found under request id req-[0-9a-f]{32}", error)


def test_the_streaming_example(run):
    assert run("streaming.py") == "pong\n5 tokens in, 2 out\n"


def test_the_streaming_example_with_a_stream_that_breaks(run, engine):
    engine.upstream.reply([sse_head(), frame(piece("po")), RST])
    assert run("streaming.py") == "po\nbroken off: Upstream `local` broke off its answer.\n"


def test_the_embeddings_example(run):
    first, second = run("embeddings.py").splitlines()
    assert first.startswith("3 dimensions: A sluice")
    assert second.startswith("3 dimensions: As much")


def test_the_langchain_example(run):
    assert run("langchain_client.py").splitlines() == [
        "answer: pong from small",
        "pong",
        "5 tokens in, 2 out",
        "2 texts, 3 dimensions",
    ]


@pytest.mark.skipif(not LLAMA_INDEX.exists(), reason="`make llama-index` installs what this example needs")
def test_the_llama_index_example(served):
    done = subprocess.run(
        [LLAMA_INDEX, ROOT / "examples" / "llama_index_client.py"],
        env=os.environ | {"OPENAI_BASE_URL": f"{served.url}/v1", "OPENAI_API_KEY": "any"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.returncode) == ("answer: pong\npong\n2 texts, 3 dimensions\n", 0), done.stderr


def test_every_example_is_run_here():
    text = Path(__file__).read_text(encoding="utf-8")
    run_here = set(re.findall(r'(?:run\(|"examples" / )"(\w+\.py)"', text))
    assert run_here == {path.name for path in (ROOT / "examples").glob("*.py")}


@pytest.mark.parametrize("example", [one for one in EXAMPLES if one.suffix == ".yaml"], ids=lambda one: one.name)
def test_every_example_config_passes_its_check(example):
    named = re.findall(r"\$\{(\w+)\}", example.read_text(encoding="utf-8"))
    environ = {name: f"{number:064}" for number, name in enumerate(named)}
    out, err = io.StringIO(), io.StringIO()
    assert check.run(example, False, False, out=out, err=err, environ=environ) == 0, err.getvalue()
    # The smallest one does not say whose machine it is, so what a call costs is not known.
    assert re.findall(r"warning: (\S+):", err.getvalue()) == (
        ["models.small.candidates[0].price"] if example.name == "sluice.yaml" else []
    )


def test_the_code_of_the_readme(served, capsys):
    (code,) = blocks(README, "python")
    assert code.count("http://127.0.0.1:8080") == 1
    exec(compile(code.replace("http://127.0.0.1:8080", served.url), str(README), "exec"), {})
    assert capsys.readouterr().out == "pong\n"


def test_the_config_of_the_readme_passes_its_check(engine, tmp_path):
    (config,) = blocks(README, "yaml")
    assert "https://api.openai.com/v1" in config
    file = tmp_path / "sluice.yaml"
    file.write_text(config.replace("https://api.openai.com/v1", engine.upstream.url), encoding="utf-8")
    (model,) = yaml.safe_load(config)["models"]  # the application's own name for it, and the upstream's
    engine.upstream.reply(replies.models(model))
    out, err = io.StringIO(), io.StringIO()
    assert check.run(file, False, True, out=out, err=err, environ={"OPENAI_API_KEY": "sk-1"}) == 0
    assert out.getvalue() == "upstreams.openai: ok, 1 model\nok: 1 upstream, 1 model, 0 keys\n"
    # The double is no provider; at the address on the page the price is known.
    assert err.getvalue().startswith(f"warning: models.{model}.candidates[0].price")
    assert Catalogue().listed("https://api.openai.com/v1", model) is not None


async def test_the_pictures_show_the_pipeline(start_gateway, upstream):
    candidates = [{"upstream": "local", "model": name} for name in ("cheap", "strong")]
    model = {"candidates": candidates, "route": "complexity", "cascade": {"enabled": True}}
    key = {"name": "team-a", "key": KEY, "limits": {"rpm": 1}}
    everything = settings(upstream.url, models={"small": model}, cache={"enabled": True}) | {"keys": [key]}
    gateway = await start_gateway(everything)
    stack = json.loads((await call(gateway.admin_port, "GET", "/admin/stack")).body)
    rows = table(ROOT / "ARCHITECTURE.md", "entry | does | in")
    assert [row[0] for row in rows if row[0] not in OPTIONAL] == stack
    for page in READMES:
        (picture,) = blocks(page, "mermaid")
        assert ", ".join(re.findall(r"<b>(.*?)</b>", picture)).split(", ") == stack


def test_the_digest_of_a_key_as_the_security_page_makes_it():
    (command,) = blocks(DOCS / "security.md", "sh")
    done = subprocess.run(
        ["sh", "-c", command],
        env={"PATH": "/usr/bin:/bin", "TEAM_A_KEY": "k-1"},
        capture_output=True,
        check=True,
    )
    assert done.stdout.split()[0].decode() == hashlib.sha256(b"k-1").hexdigest()


def lines(text: str, message: str) -> list[dict[str, object]]:
    """Log lines with this message, as objects with their keys in order."""
    parsed = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [line for line in parsed if line["msg"] == message]


async def stream_once(port: int, request_id: str) -> None:
    """A stream with usage, settled when this returns."""
    body = {"model": "small", "messages": [], "stream": True, "stream_options": {"include_usage": True}}
    async with await RawClient.open(port) as client:
        await client.request("POST", CHAT, body, [("x-request-id", request_id)])
        assert (await client.response()).complete
        # A call is settled after its last byte, but before the next one on its connection begins.
        await client.request("GET", "/health")
        assert (await client.response()).status == 200


async def test_the_log_lines_of_the_operations_page(served):
    await stream_once(served.port, "docs-1")
    shown = "".join(blocks(DOCS / "operations.md", "json") + blocks(DOCS / "monitoring.md", "json"))
    (example,) = lines(shown, "request")
    (real,) = [line for line in lines(served.log, "request") if line["request_id"] == "docs-1"]
    assert list(real) == list(example)
    assert {key: real[key] for key in real.keys() - TIMES} == {key: example[key] for key in example.keys() - TIMES}
    for message in ("descriptor limit", "listening"):
        (example,), (real,) = lines(shown, message), lines(served.log, message)
        assert list(real) == list(example)


async def test_the_table_of_metrics_is_what_the_admin_port_gives(served):
    await stream_once(served.port, "docs-2")
    scraped = (await call(served.admin_port, "GET", "/metrics")).body.decode()
    real = {}
    declared = {family.name: set(family.labels) for family in Metrics().families.values()}
    declared |= {one.name: set(one.labels) for one in [budget_gauge([]), *upstream_gauges({})]}
    for family in text_string_to_metric_families(scraped):
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        labels = labels or declared.get(family.name) or {"none"}  # nothing has been counted yet
        metric = f"{family.name}_total" if family.type == "counter" else family.name
        real[metric] = (family.type, labels, family.documentation)
    rows = table(DOCS / "monitoring.md", "metric | type | labels | meaning")
    told = {row[0].strip("`"): (row[1], set(row[2].split(", ")), row[3]) for row in rows}
    metrics = Metrics()
    absent = [metrics.redis_up, metrics.batch_job_lines, metrics.batch_job_age, metrics.batch_jobs_late]
    for one in absent:  # without redis and without batches
        assert told.pop(one.name) == ("gauge", set(one.labels) or {"none"}, one.help_text)
    assert told == real


async def test_the_error_of_the_errors_page(served):
    (shown,) = blocks(DOCS / "errors.md", "json")
    answer = await call(served.port, "POST", CHAT, {"model": "nope", "messages": []})
    assert (answer.status, answer.body.decode()) == (404, shown.rstrip("\n"))


@pytest.mark.parametrize(
    ("reply", "status", "code", "retry"),
    [
        (replies.error(422, "no", code="odd"), 422, "odd", "false"),
        (replies.error(401), 502, "upstream_auth_failed", "false"),
        (replies.error(402), 502, "upstream_auth_failed", "false"),
        (
            [head(302, [("location", "/v1/elsewhere"), ("content-length", "0")])],
            502,
            "upstream_error",
            "false",
        ),
        (replies.error(429, headers=[("retry-after", "7")]), 429, "upstream_rate_limited", "7000"),
        (replies.error(503), 503, "upstream_unavailable", "1000"),
        ([full(b'{"error":{"message":"no","code":429}}')], 429, "upstream_rate_limited", "1000"),
        ([full(b'{"error":{"message":"no"}}')], 502, "upstream_error", "false"),
        ([full(b"[]")], 502, "upstream_invalid_response", "false"),
    ],
)
async def test_what_an_upstreams_answer_becomes(gateway, upstream, reply, status, code, retry):
    upstream.reply(reply)
    answer = await call(gateway.port, "POST", CHAT, {"model": "m-small", "messages": []})
    assert (answer.status, answer.error["code"]) == (status, code)
    advice = [answer.header("x-should-retry"), answer.header("retry-after-ms")]
    assert [one for one in advice if one is not None] == [retry]


async def test_the_broken_stream_of_the_streams_page(start_gateway, upstream):
    gateway = await start_gateway(settings(upstream.url, models=MODELS))
    seen = asyncio.Event()
    upstream.reply([sse_head(), frame(piece("Par")), Until(seen), RST])
    body = {"model": "small", "messages": [], "stream": True}
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, body, [("x-request-id", "docs-1")])
        async with asyncio.timeout(5):
            raw = await client.reader.readuntil(b"Par")
            seen.set()
            raw += await client.reader.read()  # ends with FIN; an RST would raise
    (shown,) = blocks(DOCS / "streams.md", "http")
    assert timeless(raw.replace(b"\r\n", b"\n").decode()) == timeless(shown)


def timeless(text: str) -> str:
    return re.sub(r"(?m)^(Date|x-sluice-overhead-ms): .*$", r"\1: -", text)
