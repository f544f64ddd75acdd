"""What batching has found out and learned, through reloads."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from doubles import replies
from doubles.call import Call
from doubles.gateway import InProcessGateway, StartGateway
from doubles.listing_engine import BATCH_CHAT, ListingEngine, merging
from doubles.rawclient import call
from doubles.script import NEVER, Script
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, E0, EMBEDDINGS, ask
from doubles.waiting import eventually

from gateway.assembly.reload import apply
from gateway.config.load import load

Reload = Callable[[InProcessGateway, Mapping[str, Any]], Awaitable[None]]
SHORT = {**C0, "max_tokens": 4, "temperature": 0}


@pytest.fixture
def reload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reload:
    """Puts another config in force; this process's own log stays as it is."""
    monkeypatch.setattr("gateway.telemetry.logging.setup", lambda level, shape: None)

    async def reload(gateway: InProcessGateway, config: Mapping[str, Any]) -> None:
        file = tmp_path / "other.yaml"
        file.write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
        loaded = load(file, {})
        assert loaded.config is not None, loaded.problems
        assert await apply(gateway._gateway, loaded.config) is None

    return reload


async def learned(gateway: InProcessGateway) -> list[dict[str, Any]]:
    """What is shown of batching."""
    shown = (await call(gateway.admin_port, "GET", "/admin/upstreams")).json()
    found: list[dict[str, Any]] = shown["local"]["batching"]
    return found


async def taught(upstream: FaultUpstream, start_gateway: StartGateway) -> tuple[InProcessGateway, list[dict[str, Any]]]:
    """A gateway whose batching has learned something, and what."""
    ListingEngine(upstream)
    gateway = await start_gateway(merging(upstream.url))
    assert (await ask(gateway.port, E0, path=EMBEDDINGS)).status == 200
    found = await learned(gateway)
    assert found[0]["call_ms"] > 0
    return gateway, found


async def test_what_batching_has_learned_is_kept_while_upstream_and_bounds_are_the_same(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    gateway, before = await taught(upstream, start_gateway)
    await reload(gateway, merging(upstream.url, retry={"attempts": 3}))
    assert await learned(gateway) == before
    await reload(gateway, merging(upstream.url, batching={"max_size": 5}))
    assert await learned(gateway) == []
    assert (await ask(gateway.port, E0, path=EMBEDDINGS)).status == 200
    async with FaultUpstream() as other:
        await reload(gateway, merging(other.url, batching={"max_size": 5}))
        assert await learned(gateway) == []


async def test_what_was_learned_of_a_model_is_forgotten_when_it_goes_elsewhere(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    gateway, before = await taught(upstream, start_gateway)
    config = merging(upstream.url)
    config["models"]["m-small"]["candidates"][0]["model"] = "larger"
    await reload(gateway, config)
    assert await learned(gateway) == before, "that is another model"
    config["models"]["m-embed"]["candidates"][0]["model"] = "larger"
    await reload(gateway, config)
    assert await learned(gateway) == []


async def test_an_engine_that_offers_to_merge_is_not_asked_again(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    ListingEngine(upstream)
    gateway = await start_gateway(merging(upstream.url, upstream={"kind": "vllm"}))
    for attempts in (2, 3, 4):
        assert (await ask(gateway.port, SHORT)).status == 200
        await eventually(lambda: not gateway._gateway._pipeline.offers._probing, "it has been asked")
        config = merging(upstream.url, upstream={"kind": "vllm"}, retry={"attempts": attempts})
        await reload(gateway, config)
    assert [one.target for one in upstream.calls].count(BATCH_CHAT) == 1


async def test_a_question_of_a_config_that_is_gone_is_ended(
    upstream: FaultUpstream, start_gateway: StartGateway, reload: Reload
) -> None:
    def silent(one: Call) -> Script:
        return [NEVER] if one.target == BATCH_CHAT else replies.ordinary(one)

    upstream.always(silent)
    gateway = await start_gateway(merging(upstream.url, upstream={"kind": "vllm"}))
    assert (await ask(gateway.port, SHORT)).status == 200
    offers = gateway._gateway._pipeline.offers
    assert offers._probing
    await reload(gateway, merging(upstream.url, upstream={"kind": "vllm"}, retry={"attempts": 3}))
    await eventually(lambda: not offers._probing, "nobody waits for its answer", within=3)
