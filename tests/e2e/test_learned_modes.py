"""Merge modes that were found survive a restart, in the file that the config names."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import call
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import ask

from gateway.assembly.batching import learned_path
from gateway.batching.experiment import LOCKSTEP, OFF, Learned
from gateway.batching.learned_store import Entry, decode, encode
from gateway.batching.profile import BatchProfile
from gateway.config.load import load

BODY = {"model": "m-embed", "input": "one"}
FOUND = Learned(OFF, 0.0, 64.0, 120.0)


async def merge_mode(gateway: InProcessGateway) -> str:
    """What the admin port shows after one call."""
    assert (await ask(gateway.port, BODY, path="/v1/embeddings")).status in (200, 502)
    shown = (await call(gateway.admin_port, "GET", "/admin/upstreams")).json()
    return str(shown["local"]["batching"][0]["merge_mode"])


def config(upstream: FaultUpstream, path: Path | str, **sections: Any) -> Mapping[str, Any]:
    return settings(upstream.url, server={"learned_path": str(path)}, **sections)


@pytest.fixture
def finding(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """All experiments have found `FOUND`, until it is undone."""
    monkeypatch.setattr(BatchProfile, "learned", lambda self: FOUND)
    return monkeypatch


async def test_a_restart_begins_with_what_the_last_run_found(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path, finding: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "learned.json"
    first = await start_gateway(config(upstream, path))
    assert await merge_mode(first) == LOCKSTEP
    await first.stop()
    finding.undo()
    (entry,) = decode(path.read_bytes())
    assert (entry.model, entry.endpoint, entry.upstream, entry.found) == (
        "m-embed",
        "/v1/embeddings",
        "local",
        FOUND,
    )
    assert upstream.url.encode() not in path.read_bytes()
    assert await merge_mode(await start_gateway(config(upstream, path))) == OFF


@pytest.mark.parametrize(
    "change",
    [
        {"batching": {"max_size": 8}},
        {"models": {"m-embed": {"candidates": [{"upstream": "local", "model": "other"}]}}},
    ],
)
async def test_what_was_found_elsewhere_does_not_count(
    upstream: FaultUpstream,
    start_gateway: StartGateway,
    tmp_path: Path,
    finding: pytest.MonkeyPatch,
    change: dict[str, Any],
) -> None:
    path = tmp_path / "learned.json"
    first = await start_gateway(config(upstream, path))
    await merge_mode(first)
    await first.stop()
    finding.undo()
    assert await merge_mode(await start_gateway(config(upstream, path, **change))) == LOCKSTEP


@pytest.mark.parametrize("content", [b"", b"\0" * 100, encode([Entry("m-embed", "", 0, "", "", FOUND)])])
async def test_a_useless_file_changes_nothing(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "learned.json"
    path.write_bytes(content)
    assert await merge_mode(await start_gateway(config(upstream, path))) == LOCKSTEP


async def test_a_path_that_cannot_be_written_ends_nothing(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path, finding: pytest.MonkeyPatch
) -> None:
    gateway = await start_gateway(config(upstream, tmp_path / "none" / "learned.json"))
    assert await merge_mode(gateway) == LOCKSTEP
    await gateway.stop()
    assert not (tmp_path / "none").exists()


async def test_a_run_without_a_verdict_writes_nothing(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway = await start_gateway(config(upstream, tmp_path / "learned.json"))
    await merge_mode(gateway)
    await gateway.stop()
    assert not (tmp_path / "learned.json").exists()


@pytest.mark.parametrize(
    ("usage", "server", "path"),
    [
        ({"store": "off"}, {}, None),
        ({"store": "sqlite", "path": "/var/lib/sluice/usage.db"}, {}, "/var/lib/sluice/sluice-learned.json"),
        ({"store": "sqlite"}, {}, "sluice-learned.json"),
        ({"store": "sqlite"}, {"learned_path": "off"}, None),
        ({"store": "off"}, {"learned_path": "/tmp/here.json"}, "/tmp/here.json"),
    ],
)
def test_the_default_is_beside_the_ledger(
    tmp_path: Path, usage: dict[str, str], server: dict[str, str], path: str | None
) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text(json.dumps(settings("http://127.0.0.1:1/v1", server=server, usage=usage)))
    loaded = load(file, {}).config
    assert loaded is not None
    assert learned_path(loaded) == path
