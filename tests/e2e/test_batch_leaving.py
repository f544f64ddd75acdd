"""Who comes, waits and leaves around a batch; drains and reloads while calls wait to be merged."""

import asyncio
from pathlib import Path

import pytest
import yaml
from doubles.gateway import StartGateway
from doubles.listing_engine import (
    Gathering,
    ListingEngine,
    asks,
    at_rest,
    gathered,
    gathering,
    merging,
    own,
    text,
)
from doubles.vocabulary import EMBEDDINGS, ask
from doubles.waiting import eventually

from gateway.assembly.reload import apply
from gateway.config.load import load

FEW = ("a", "b", "c")


async def test_batch_11_who_leaves_before_it_goes_is_not_in_it(
    start_gateway: StartGateway, engine: ListingEngine
) -> None:
    batch = await gathering(list(FEW), engine, start_gateway)
    clients = []
    for number in range(3):
        clients.append(await asks(batch.gateway, f"gone {number}"))
        await gathered(batch.gateway, 4 + number)
    for client in clients:
        await client.close()
    await gathered(batch.gateway, 3)
    for answer, one in zip(await batch.ends(), FEW, strict=True):
        own(answer, one)
    assert batch.sent() == [list(FEW)]
    await batch.gateway.counted("sluice_requests_total", 3, outcome="client_gone")
    assert (await batch.gateway.metrics()).value("sluice_batch_wasted_tokens_total") == 0


async def test_batch_11_who_leaves_after_it_has_gone_disturbs_nobody(
    start_gateway: StartGateway, engine: ListingEngine
) -> None:
    batch = await gathering(list(FEW), engine, start_gateway)
    client = await asks(batch.gateway, "gone too late")
    await gathered(batch.gateway, 4)
    engine.release()
    engine.hold()
    await batch.upstream.received(2)
    await client.close()
    await batch.gateway.counted("sluice_requests_total", 1, outcome="client_gone")
    for answer, one in zip(await batch.ends(), FEW, strict=True):
        own(answer, one)
        assert answer.header("x-sluice-batch-size") == "4"
    assert (await batch.gateway.metrics()).value("sluice_batch_wasted_tokens_total", model="m-embed") > 0


async def test_when_all_have_left_the_upstream_call_is_aborted(
    start_gateway: StartGateway, engine: ListingEngine
) -> None:
    batch = await gathering([], engine, start_gateway)
    clients = []
    for number, one in enumerate(FEW):
        clients.append(await asks(batch.gateway, one))
        await gathered(batch.gateway, number + 1)
    engine.release()
    engine.hold()
    await batch.upstream.received(2)
    for client in clients:
        await client.close()
    await batch.upstream.peer_closed(2)
    await at_rest(batch.gateway)
    await batch.gateway.counted("sluice_upstream_inflight", 0)
    engine.release()
    own(await ask(batch.gateway.port, text("next"), path=EMBEDDINGS), "next")


async def test_batch_11_rounds_of_callers_that_come_and_go(start_gateway: StartGateway, engine: ListingEngine) -> None:
    gateway = await start_gateway(merging(engine.upstream.url))
    for number in range(30):
        batch = Gathering(gateway, engine)
        await batch.gather([f"{number} {name}" for name in FEW])
        client = await asks(gateway, f"{number} gone")
        await gathered(gateway, 4)
        engine.release()
        await client.reset()
        for answer, name in zip(await asyncio.gather(*batch.tasks), FEW, strict=True):
            own(answer, f"{number} {name}")
        await batch.first
        await at_rest(gateway)
    await gateway.counted("sluice_upstream_inflight", 0)


async def test_whose_time_is_over_is_told_and_the_others_go_on(
    start_gateway: StartGateway, engine: ListingEngine
) -> None:
    batch = await gathering(list(FEW), engine, start_gateway)
    hurried = [("x-stainless-read-timeout", "0.2")]
    answer = await ask(batch.gateway.port, text("hurried"), hurried, EMBEDDINGS)
    assert answer.status in (503, 504)
    for one, given in zip(await batch.ends(), FEW, strict=True):
        own(one, given)
    assert batch.sent()[-1] == list(FEW)


async def test_a_drain_lets_pending_batches_go(start_gateway: StartGateway, engine: ListingEngine) -> None:
    batch = await gathering(list(FEW), engine, start_gateway)
    stopping = asyncio.create_task(batch.gateway.stop())
    await asyncio.sleep(0)
    engine.release()
    for answer, one in zip(await asyncio.gather(*batch.tasks), FEW, strict=True):
        own(answer, one)
    await stopping


async def test_a_drain_without_time_tells_pending_ones(start_gateway: StartGateway, engine: ListingEngine) -> None:
    config = merging(engine.upstream.url, server={"drain": {"timeout": "10ms"}})
    batch = await gathering(list(FEW), engine, start_gateway, config)
    await batch.gateway.stop()
    answers = await asyncio.gather(batch.first, *batch.tasks)
    assert {(one.status, one.error["code"]) for one in answers} == {(503, "draining")}
    assert not batch.gateway._gateway._pipeline.batching._tasks
    engine.release()


async def test_a_reload_loses_nobody_who_waits_to_be_merged(
    tmp_path: Path, start_gateway: StartGateway, engine: ListingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.telemetry.logging.setup", lambda level, shape: None)
    batch = await gathering(list(FEW), engine, start_gateway)
    file = tmp_path / "other.yaml"
    config = merging(engine.upstream.url, {"max_size": 2})
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    loaded = load(file, {})
    assert loaded.config is not None
    before = batch.gateway._gateway._pipeline.batching
    assert await apply(batch.gateway._gateway, loaded.config) is None
    new = asyncio.create_task(ask(batch.gateway.port, text("new"), path=EMBEDDINGS))
    await engine.upstream.received(2)
    for answer, one in zip(await batch.ends(), FEW, strict=True):
        own(answer, one)
        assert answer.header("x-sluice-batch-size") == "3"
    own(await new, "new")
    await eventually(lambda: not before._groups, "nobody is awaited any more")
    assert not before._tasks
