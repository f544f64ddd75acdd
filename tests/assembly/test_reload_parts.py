"""The parts of a reload that need no gateway: what has changed, and what may."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from doubles.settings import KEY, settings

from gateway.assembly.builder import KeyedRegistry
from gateway.assembly.reload import ConfigSource, Reloader, changes, immovable
from gateway.config.load import load
from gateway.config.model import Config
from gateway.process.supervisor import _Parent
from gateway.telemetry.collectors import ReloadCollector

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
    one = ConfigSource(folder / "sluice.yaml", {}, {})
    assert one.read().config is not None
    return one


def looks(source: ConfigSource) -> list[bool]:
    """What the next three looks find."""
    return [source.changed() for _ in range(3)]


def test_files_that_stay_have_not_changed(source: ConfigSource) -> None:
    assert looks(source) == [False, False, False]


@pytest.mark.parametrize("name", ["sluice.yaml", ".env"])
def test_a_change_counts_when_it_has_come_to_rest_and_until_it_is_read(
    source: ConfigSource, folder: Path, name: str
) -> None:
    (folder / name).write_text("# half", encoding="utf-8")
    assert source.changed() is False
    (folder / name).write_text("# half of it", encoding="utf-8")
    assert looks(source) == [False, True, True]
    source.read()
    assert looks(source) == [False, False, False]


def test_a_file_that_goes_and_comes_back_has_changed_twice(source: ConfigSource, folder: Path) -> None:
    text = (folder / "sluice.yaml").read_text(encoding="utf-8")
    (folder / "sluice.yaml").unlink()
    assert looks(source)[1:] == [True, True]
    assert source.read().config is None
    assert looks(source) == [False, False, False]
    (folder / "sluice.yaml").write_text(text, encoding="utf-8")
    assert looks(source)[1:] == [True, True]
    assert source.read().config is not None


def test_a_link_that_is_exchanged_is_a_change(tmp_path: Path) -> None:
    """As Kubernetes does it with a ConfigMap: file -> ..data/file, and ..data -> another folder."""
    for number in (1, 2):
        (tmp_path / f"..{number}").mkdir()
        config = settings(f"http://127.0.0.1:{number}/v1")
        file = tmp_path / f"..{number}" / "sluice.yaml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        os.utime(file, ns=(1, 1))  # the same time and size tell nothing
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "sluice.yaml").symlink_to("..data/sluice.yaml")
    source = ConfigSource(tmp_path / "sluice.yaml", {}, {})
    assert source.read().config is not None
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").replace(tmp_path / "..data")
    assert looks(source) == [False, True, True]
    config = source.read().config
    assert config is not None
    assert config.upstreams["local"].base_url == "http://127.0.0.1:2/v1"


def test_what_was_given_on_the_command_line_stays(folder: Path) -> None:
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
def test_what_takes_a_restart(
    make: Make, before: dict[str, Any], after: dict[str, Any], places: list[str]
) -> None:
    assert [problem.path for problem in immovable(make(**before), make(**after))] == places


def test_changes_are_told_by_section_and_by_name(make: Make) -> None:
    old = make(keys=[{"name": "a", "key": KEY}, {"name": "b", "key": KEY + "b"}])
    assert changes(old, old) == []
    new = make(
        keys=[{"name": "a", "key": KEY + "a"}, {"name": "b", "key": KEY + "b"}],
        upstreams={"other": {"base_url": URL}, "local": {"base_url": URL}},
        log={"level": "error"},
    )
    assert changes(old, new) == ["keys.a", "upstreams.other", "log"]
    assert changes(old, make(keys=[{"name": "b", "key": KEY + "b"}])) == ["keys.a"]


def test_what_is_kept_by_name_is_made_anew_for_other_settings_only() -> None:
    kept: KeyedRegistry[object] = KeyedRegistry()
    one = kept.get("a", 1, object)
    assert kept.get("a", 1, object) is one
    assert kept.get("b", 1, object) is not one
    assert kept.get("a", 2, object) is not one


async def test_a_reload_that_is_refused_is_tried_again_with_the_next(
    source: ConfigSource, make: Make
) -> None:
    answers: list[str | None] = ["not today", None]
    taken: list[Config] = []

    async def take(config: Config) -> str | None:
        taken.append(config)
        return answers.pop(0)

    reloads = ReloadCollector()
    reloader = Reloader(source, make(), take, reloads)
    await reloader.reload()
    assert (reloads.generation, reloads.succeeded) == (1, False)
    await reloader.reload()
    assert (reloads.generation, reloads.succeeded) == (2, True)
    assert len(taken) == 2


async def test_a_request_that_comes_during_a_reload_is_not_lost(source: ConfigSource, make: Make) -> None:
    asked = asyncio.Event()
    twice = asyncio.Event()
    taken: list[Config] = []

    async def take(config: Config) -> None:
        taken.append(config)
        if len(taken) == 1:
            asked.set()
        else:
            twice.set()

    running = asyncio.create_task(Reloader(source, make(), take, ReloadCollector()).run(asked))
    asked.set()
    async with asyncio.timeout(5):
        await twice.wait()
    running.cancel()
    await asyncio.wait([running])


class Worker:
    """Stands where a worker process would."""

    def __init__(self, answer: str | None) -> None:
        self.answer = answer
        self.config: Config | None = None

    async def take(self, config: Config) -> str | None:
        self.config = config
        return self.answer


async def test_what_one_worker_refuses_no_worker_keeps(
    source: ConfigSource, make: Make, logging: list[tuple[str, str]]
) -> None:
    old, new = make(server={"port": 7}), make(server={"port": 7, "heartbeat": "1s"})
    parent = _Parent(old, source)
    workers = [Worker(None), Worker("it has died")]
    parent._workers = workers  # type: ignore[assignment]
    assert await parent._take(new) == "worker 1: it has died"
    assert [worker.config for worker in workers] == [old, old]
    assert parent._config == old
    assert logging == []
    workers[1].answer = None
    assert await parent._take(new) is None
    assert [worker.config for worker in workers] == [new, new]
    assert parent._config == new
    assert logging == [("info", "json")]
    parent._folder.rmdir()


async def test_an_upstream_that_a_reload_takes_away_while_workers_are_asked_is_still_told_of(
    source: ConfigSource, make: Make
) -> None:
    upstream = {"base_url": URL, "gpu_hour_usd": 2}
    old, new = make(upstreams={"local": {"base_url": URL}, "gone": upstream}), make()
    parent = _Parent(old, source)

    class Asked(Worker):
        async def ask(self, path: str) -> tuple[int, bytes]:
            parent._config = new
            calm = {"state": "up", "in_flight": 0, "waiting": 0, "oldest_s": 0, "breaker": "closed"}
            done = {"tokens": 1, "seconds": 1.0, "hour_tokens": 1, "hour_seconds": 1.0, "best_minute": 1}
            return 200, json.dumps({"gone": calm | {"machine": {"done": done}}}).encode()

    parent._workers = [Asked(None)]  # type: ignore[list-item]
    told = await parent._upstreams()
    assert told["gone"].state == "up"
    parent._folder.rmdir()
