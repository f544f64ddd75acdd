"""`sluice init`: what it finds, asks and writes; the file passes `sluice check`."""

import argparse
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from doubles import replies
from doubles.script import compact, full
from doubles.threaded import ThreadedUpstream

from gateway.cli import init
from gateway.cli.main import main
from gateway.config.load import load
from gateway.config.model import Config


@pytest.fixture
def engine() -> Iterator[ThreadedUpstream]:
    with ThreadedUpstream() as one:
        models = [{"id": "qwen", "object": "model", "owned_by": "vllm"}, {"id": "a: b", "owned_by": "vllm"}]
        one.upstream.always([full(compact({"object": "list", "data": models}))])
        yield one


def port(engine: ThreadedUpstream) -> int:
    return int(engine.upstream.url.removesuffix("/v1").rpartition(":")[2])


def options(folder: Path, *arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    init.describe(parser)
    return parser.parse_args(["--config", str(folder / "sluice.yaml"), *arguments])


def written(folder: Path, environ: dict[str, str] | None = None) -> Config:
    loaded = load(folder / "sluice.yaml", environ or {})
    assert loaded.config is not None, loaded.problems
    assert loaded.warnings == []
    return loaded.config


Said = tuple[int, str, str]


def ran(folder: Path, *arguments: str, ports: tuple[int, ...] = (), answers: list[str] | None = None) -> Said:
    out, err = io.StringIO(), io.StringIO()
    given = iter(answers or [])
    ask = None if answers is None else lambda question: next(given)
    status = init.run(options(folder, *arguments), {}, out, err, ask, ports)
    return status, out.getvalue(), err.getvalue()


def test_an_engine_on_this_machine_is_found_and_configured(engine: ThreadedUpstream, tmp_path: Path) -> None:
    status, out, err = ran(tmp_path, ports=(1, port(engine)))
    assert (status, err) == (0, "")
    assert f"found: http://127.0.0.1:{port(engine)}/v1 (vllm): qwen, a: b" in out
    assert f"next: sluice check --connect --config {tmp_path}/sluice.yaml && sluice serve --config" in out
    config = written(tmp_path)
    assert config.upstreams["local"].kind == "vllm"
    assert list(config.models) == ["qwen", "a: b"]
    assert config.server.host == "127.0.0.1"
    assert "# " in (tmp_path / "sluice.yaml").read_text(encoding="utf-8")


def test_the_three_questions(engine: ThreadedUpstream, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{port(engine)}/v1"
    status, out, _ = ran(tmp_path, answers=[url, "qwen", "y"])
    assert status == 0
    config = written(tmp_path)
    assert list(config.models) == ["qwen"]
    assert config.server.host == "0.0.0.0"
    key = out.partition("key: ")[2].splitlines()[0]
    assert key not in (tmp_path / "sluice.yaml").read_text(encoding="utf-8")
    import hashlib

    assert config.keys[0].digest() == hashlib.sha256(key.encode()).digest()


def test_without_an_engine_it_is_openai_and_says_what_is_missing(tmp_path: Path) -> None:
    status, out, _ = ran(tmp_path)
    assert status == 0
    assert "Put OPENAI_API_KEY=... into" in out
    assert list(written(tmp_path, {"OPENAI_API_KEY": "k"}).models) == ["gpt-5-mini"]


def test_a_file_is_never_replaced_unasked(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text("mine", encoding="utf-8")
    status, out, err = ran(tmp_path)
    assert (status, out) == (2, "")
    assert err == f"sluice init: {file} exists; --force replaces it\n"
    assert file.read_text(encoding="utf-8") == "mine"
    assert ran(tmp_path, "--force")[0] == 0
    assert file.read_text(encoding="utf-8") != "mine"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--upstream", "http://127.0.0.1:1/v1"], "lists no models; name one with --model"),
        (["--upstream", "no address", "--model", "m"], "upstreams.provider.base_url: must be an address"),
        (["--upstream", "http://127.0.0.1:1/v1", "--model", " m"], "models"),
    ],
    ids=range(3),
)
def test_what_makes_no_config_writes_none(arguments: list[str], said: str, tmp_path: Path) -> None:
    status, _, err = ran(tmp_path, *arguments)
    assert status == 2
    assert said in err
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_engine_is_not_found(engine: ThreadedUpstream, tmp_path: Path) -> None:
    ours = {"object": "list", "data": [{"id": "m", "owned_by": "sluice"}]}
    for answer in ([full(b"<html>")], [full(compact({"data": []}))], [full(compact(ours))], replies.error(500)):
        engine.upstream.always(answer)
        assert "found" not in ran(tmp_path, "--force", ports=(port(engine),))[1]


def test_the_command_asks_nothing_where_nobody_can_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(init, "PORTS", ())
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--upstream", "http://127.0.0.1:1/v1", "--model", "m"]) == 0
    assert "next: sluice check --connect && sluice serve\n" in capsys.readouterr().out
    assert main(["check"]) == 0
