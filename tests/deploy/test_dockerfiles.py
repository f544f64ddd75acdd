"""The two Dockerfiles: what they copy is there, they run what the code runs, healthchecks tell the truth."""

import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from deployed import DEPLOY, ROOT, Dockerfile
from doubles.gateway import GatewayProcess
from doubles.settings import settings

from backend import engine, install, prepare

GATEWAY = Dockerfile(DEPLOY / "Dockerfile")
ENGINE = Dockerfile(DEPLOY / "Dockerfile.engine")
BOTH = pytest.mark.parametrize("image", [GATEWAY, ENGINE], ids=["gateway", "engine"])


def health(port: int, of: int, image: Dockerfile = GATEWAY) -> int:
    """The exit status of an image's healthcheck, asked of another port than `of`."""
    python, *words = image.command("HEALTHCHECK")
    assert python == "python"
    asked = [re.sub("timeout=[0-9]", "timeout=1", word.replace(f" {of},", f" {port},")) for word in words]
    command = [sys.executable, *asked]
    return subprocess.run(command, stderr=subprocess.DEVNULL, timeout=30, check=False).returncode


@BOTH
def test_what_is_copied_exists_and_passes_the_ignore_file(image: Dockerfile) -> None:
    everything, *others = [
        line
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    assert everything == "*"
    allowed = {line[1:] for line in others if line.startswith("!")}
    sources = [word for line in image.all("COPY") if "--from" not in line for word in line.split()[:-1]]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source in allowed


def test_the_ignore_file_lets_in_nothing_that_no_dockerfile_copies() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = {word for image in (GATEWAY, ENGINE) for line in image.all("COPY") for word in line.split()[:-1]}
    assert {line[1:] for line in lines if line.startswith("!")} <= copied


@BOTH
def test_it_runs_as_a_user_without_rights_and_without_a_shell(image: Dockerfile) -> None:
    user, _, group = image.last("USER").partition(":")
    assert user == group == "10001"
    assert image.command("CMD")
    assert "--from=build" in image.last("COPY")
    # COPY keeps root as the owner unless told otherwise.
    assert not any("--chown" in line for line in image.all("COPY"))


@BOTH
def test_stages_begin_with_one_image(image: Dockerfile) -> None:
    assert len(image.bases) == 2
    assert len({*GATEWAY.bases, *ENGINE.bases}) == 1


@BOTH
def test_it_holds_no_secret(image: Dockerfile) -> None:
    assert image.all("ARG") == []
    assert not re.search(r"KEY|TOKEN|SECRET|PASSWORD", " ".join(image.all("ENV")))


def test_the_wheel_is_built_by_what_the_lock_file_names() -> None:
    (needed,) = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert needed in (DEPLOY / "build.in").read_text(encoding="utf-8").splitlines()
    pinned = (DEPLOY / "build.txt").read_text(encoding="utf-8")
    version = re.match(r"setuptools==(\d+)", pinned)
    assert version is not None
    assert int(version[1]) >= int(needed.partition(">=")[2])
    assert "--hash=sha256:" in pinned
    installs = [line for line in " && ".join(GATEWAY.all("RUN")).split(" && ") if " install " in line and "pip" in line]
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)


def pins(file: Path) -> set[tuple[str, str]]:
    """The names and versions of a lock file."""
    return set(re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", file.read_text(encoding="utf-8")))


def test_the_image_holds_what_the_gateway_and_its_traces_need_as_it_was_tested() -> None:
    file = DEPLOY / "image.txt"
    assert any(line.endswith(f"-r {file.name}") for one in GATEWAY.all("RUN") for line in one.split(" && "))
    held = pins(file)
    assert pins(ROOT / "requirements.lock") < held < pins(ROOT / "requirements-test.lock")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    traces = {re.split("[<>=]", one)[0] for one in extras["optional-dependencies"]["otlp"]}
    assert traces <= {name for name, _ in held}
    entries = re.split(r"(?m)^(?=\S)", file.read_text(encoding="utf-8"))[1:]
    assert all("--hash=sha256:" in entry and "://" not in entry for entry in entries)


def test_the_gateway_starts_with_the_command_of_the_package() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    (command,) = GATEWAY.command("ENTRYPOINT")
    assert command in scripts
    assert GATEWAY.command("CMD") == ["serve"]


def test_the_gateways_healthcheck_tells_a_live_gateway_from_none(tmp_path: Path) -> None:
    with GatewayProcess(settings("http://127.0.0.1:1/v1"), tmp_path) as gateway:
        assert health(gateway.admin_port, of=9464) == 0
        assert health(gateway.port, of=9464) != 0  # a 404 is no health
        gone = gateway.admin_port
    assert health(gone, of=9464) != 0


@BOTH
def test_a_port_that_says_nothing_is_no_health(image: Dockerfile) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert health(port, of=9464 if image is GATEWAY else 8000, image=image) != 0


def test_the_engine_is_started_as_sluice_up_starts_it() -> None:
    cache = Path("/app/sluice")
    python = cache / "venv-engine/bin/python"
    chat = cache / "models" / prepare._CHAT_FOLDER
    prepared = prepare.Prepared(python, install.CPU, chat, Path())
    expected = engine.command(prepared, engine.CHAT, 8000)
    command = ENGINE.command("CMD")
    assert command[:3] == expected[:3]
    assert sorted(command) == sorted("0.0.0.0" if word == "127.0.0.1" else word for word in expected)
    own = {"HOME": "/tmp"}
    assert ENGINE.environment() == engine.environment(prepared) | own
