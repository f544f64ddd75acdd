"""The parts of a reload that need no gateway: which files and fields have changed, and which may."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from doubles.settings import KEY, settings

from gateway.assembly.registry import KeyedRegistry
from gateway.assembly.reload import ConfigSource, Reloader, changes, immovable
from gateway.config.load import load
from gateway.config.model import Config
from gateway.process.supervisor import Supervisor
from gateway.telemetry.collectors import ReloadStatus

URL = "http://127.0.0.1:1/v1"
Make = Callable[..., Config]


@pytest.fixture(autouse=True)
def logging(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What the log was set to; this process's own log stays as it is."""
    shapes: list[tuple[str, str]] = []
    monkeypatch.setattr("gateway.telemetry.logging.setup", lambda level, shape: shapes.append((level, shape)))
    return shapes


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A config with these sections."""

    def make(**sections: Any) -> Config:
        file = tmp_path / "made.yaml"
        file.write_text(yaml.safe_dump({**settings(URL), **sections}), encoding="utf-8")
        loaded = load(file, {})
        assert loaded.config is not None, loaded.problems
        return loaded.config

    return make


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sluice.yaml").write_text(yaml.safe_dump(settings(URL)), encoding="utf-8")
    return tmp_path


@pytest.fixture
def source(folder: Path) -> ConfigSource:
    """The source of `folder`, read once."""
    source = ConfigSource(folder / "sluice.yaml", {}, {})
    assert source.read().config is not None
    return source


def checks(source: ConfigSource) -> list[bool]:
    """The results of the next three checks."""
    return [source.changed() for _ in range(3)]


def test_unchanged_files_are_not_a_change(source: ConfigSource) -> None:
    assert checks(source) == [False, False, False]


@pytest.mark.parametrize("name", ["sluice.yaml", ".env"])
def test_a_change_counts_once_the_file_is_stable_and_until_it_is_read(
    source: ConfigSource, folder: Path, name: str
) -> None:
    (folder / name).write_text("# half", encoding="utf-8")
    assert source.changed() is False
    (folder / name).write_text("# half of it", encoding="utf-8")
    assert checks(source) == [False, True, True]
    source.read()
    assert checks(source) == [False, False, False]


def test_a_file_that_disappears_and_returns_has_changed_twice(source: ConfigSource, folder: Path) -> None:
    text = (folder / "sluice.yaml").read_text(encoding="utf-8")
    (folder / "sluice.yaml").unlink()
    assert checks(source)[1:] == [True, True]
    assert source.read().config is None
    assert checks(source) == [False, False, False]
    (folder / "sluice.yaml").write_text(text, encoding="utf-8")
    assert checks(source)[1:] == [True, True]
    assert source.read().config is not None


def test_a_replaced_link_is_a_change(tmp_path: Path) -> None:
    """As Kubernetes does it with a ConfigMap: file -> ..data/file, and ..data -> another folder."""
    for number in (1, 2):
        (tmp_path / f"..{number}").mkdir()
        config = settings(f"http://127.0.0.1:{number}/v1")
        file = tmp_path / f"..{number}" / "sluice.yaml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        os.utime(file, ns=(1, 1))  # time and size are the same
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "sluice.yaml").symlink_to("..data/sluice.yaml")
    source = ConfigSource(tmp_path / "sluice.yaml", {}, {})
    assert source.read().config is not None
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").replace(tmp_path / "..data")
    assert checks(source) == [False, True, True]
    config = source.read().config
    assert config is not None
    assert config.upstreams["local"].base_url == "http://127.0.0.1:2/v1"


def test_options_of_the_command_line_stay_in_force(folder: Path) -> None:
    config = ConfigSource(folder / "sluice.yaml", {}, {"port": 9, "workers": 2}).read().config
    assert config is not None
    assert (config.server.port, config.server.workers) == (9, 2)


REDIS = {"url": "redis://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("before", "after", "places"),
    [
        ({}, {"server": {"port": 0, "heartbeat": "1s", "drain": {"timeout": "1s"}}}, []),
        ({}, {"server": {"port": 9, "host": "::1"}}, ["server.host", "server.port"]),
        ({}, {"server": {"port": 0, "max_queue": 9}}, ["server.max_queue"]),
        ({}, {"admin": {"port": 9}}, ["admin.port"]),
        ({}, {"usage": {"store": "sqlite", "path": "x.db"}}, ["usage.store", "usage.path"]),
        ({}, {"redis": REDIS}, ["redis"]),
        ({"redis": REDIS}, {"redis": {**REDIS, "prefix": "x"}}, ["redis.prefix"]),
        ({"redis": REDIS}, {"redis": {"url": "redis://127.0.0.1:2"}}, ["redis.url"]),
    ],
)
def test_fields_that_need_a_restart(
    make: Make, before: dict[str, Any], after: dict[str, Any], places: list[str]
) -> None:
    assert [problem.path for problem in immovable(make(**before), make(**after))] == places


def test_changes_are_listed_by_section_and_by_name(make: Make) -> None:
    old = make(keys=[{"name": "a", "key": KEY}, {"name": "b", "key": KEY + "b"}])
    assert changes(old, old) == []
    new = make(
        keys=[{"name": "a", "key": KEY + "a"}, {"name": "b", "key": KEY + "b"}],
        upstreams={"other": {"base_url": URL}, "local": {"base_url": URL}},
        log={"level": "error"},
    )
    assert changes(old, new) == ["keys.a", "upstreams.other", "log"]
    assert changes(old, make(keys=[{"name": "b", "key": KEY + "b"}])) == ["keys.a"]


def test_a_registered_object_is_replaced_only_for_other_settings() -> None:
    registry: KeyedRegistry[object] = KeyedRegistry()
    first = registry.get("a", 1, object)
    assert registry.get("a", 1, object) is first
    assert registry.get("b", 1, object) is not first
    assert registry.get("a", 2, object) is not first


def test_a_registered_object_of_a_removed_name_is_forgotten() -> None:
    registry: KeyedRegistry[object] = KeyedRegistry()
    first, other = registry.get("a", 1, object), registry.get("b", 1, object)
    registry.retain({"b"})
    assert registry.get("b", 1, object) is other
    assert registry.get("a", 1, object) is not first


async def test_after_a_rejected_reload_the_next_one_is_tried(source: ConfigSource, make: Make) -> None:
    answers: list[str | None] = ["not today", None]
    applied: list[Config] = []

    async def apply(config: Config) -> str | None:
        applied.append(config)
        return answers.pop(0)

    reloads = ReloadStatus()
    reloader = Reloader(source, make(), apply, reloads)
    await reloader.reload()
    assert (reloads.generation, reloads.succeeded) == (1, False)
    await reloader.reload()
    assert (reloads.generation, reloads.succeeded) == (2, True)
    assert len(applied) == 2


async def test_a_reload_requested_during_another_one_is_not_lost(source: ConfigSource, make: Make) -> None:
    requested = asyncio.Event()
    twice = asyncio.Event()
    applied: list[Config] = []

    async def apply(config: Config) -> None:
        applied.append(config)
        if len(applied) == 1:
            requested.set()
        else:
            twice.set()

    running = asyncio.create_task(Reloader(source, make(), apply, ReloadStatus()).run(requested))
    requested.set()
    async with asyncio.timeout(5):
        await twice.wait()
    running.cancel()
    await asyncio.wait([running])


class Worker:
    """Replaces a worker process."""

    def __init__(self, answer: str | None) -> None:
        self.answer = answer
        self.config: Config | None = None

    async def apply(self, config: Config) -> str | None:
        self.config = config
        return self.answer


async def test_a_config_that_one_worker_rejects_is_applied_by_none(
    source: ConfigSource, make: Make, logging: list[tuple[str, str]]
) -> None:
    old, new = make(server={"port": 7}), make(server={"port": 7, "heartbeat": "1s"})
    supervisor = Supervisor(old, source)
    workers = [Worker(None), Worker("it has died")]
    supervisor._workers = workers  # type: ignore[assignment]
    assert await supervisor.apply(new) == "worker 1: it has died"
    assert [worker.config for worker in workers] == [old, old]
    assert supervisor._config == old
    assert logging == []
    workers[1].answer = None
    assert await supervisor.apply(new) is None
    assert [worker.config for worker in workers] == [new, new]
    assert supervisor._config == new
    assert logging == [("info", "json")]
    supervisor._folder.rmdir()


async def test_an_upstream_removed_while_the_workers_answer_is_still_reported(source: ConfigSource, make: Make) -> None:
    upstream = {"base_url": URL, "gpu_hour_usd": 2}
    old, new = make(upstreams={"local": {"base_url": URL}, "gone": upstream}), make()
    supervisor = Supervisor(old, source)

    class Reporting(Worker):
        async def ask(self, path: str, method: str = "GET") -> tuple[int, bytes]:
            supervisor._config = new
            calm = {"state": "up", "in_flight": 0, "waiting": 0, "oldest_s": 0, "breaker": "closed"}
            done = {"tokens": 1, "seconds": 1.0, "hour_tokens": 1, "hour_seconds": 1.0, "best_minute": 1}
            return 200, json.dumps({"gone": calm | {"machine": {"done": done}}}).encode()

    supervisor._workers = [Reporting(None)]  # type: ignore[list-item]
    views = await supervisor._upstreams()
    assert views["gone"].state == "up"
    supervisor._folder.rmdir()
