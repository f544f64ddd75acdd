"""What can go wrong around a batch, and the state in which it ends."""

import asyncio
import errno
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from doubles import replies
from doubles.call import Call
from doubles.gateway import InProcessGateway, StartGateway
from doubles.identity_provider import AUDIENCE, ISSUER, IdentityProvider, SigningKey, claims
from doubles.limited import used
from doubles.rawclient import call
from doubles.script import RST, Until
from doubles.settings import AUTH, KEY, OTHER_KEY
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0
from doubles.waiting import eventually
from kit.batch_scene import CHAT, batching, client_of, jsonl, line, results, submitted, until

from gateway.config.load import load

CHANGES: dict[str, Any] = {"keys": [{"name": "team-b", "key": OTHER_KEY}]}


class WallClock:
    """The wall clock of gateways started after it, as far as it is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_800_000_000.0
        monkeypatch.setattr(InProcessGateway, "clocks", {"unix": lambda: self.now})


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are sent again at once."""
    monkeypatch.setattr("gateway.batch_jobs.verdict._BACKOFF_S", 0.01)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(monkeypatch)


def held(upstream: FaultUpstream) -> asyncio.Event:
    """The upstream answers nothing before this event."""
    go_on = asyncio.Event()
    upstream.always(lambda call: [Until(go_on), *replies.ordinary(call)])
    return go_on


async def reloaded(gateway: InProcessGateway, config: dict[str, Any], folder: Path) -> None:
    file = folder / "reloaded.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    loaded = load(file, {})
    assert loaded.config is not None, loaded.problems
    await gateway._gateway.reload(loaded.config)


async def paused(sdk: openai.AsyncOpenAI, id: str, says: str) -> Any:
    """Waits until the batch says why it pauses."""
    async with asyncio.timeout(20):
        while says not in getattr(batch := await sdk.batches.retrieve(id), "paused", ""):
            await asyncio.sleep(0.01)
    return batch


async def test_a_broken_line_in_the_middle_refuses_the_file(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path))
    async with client_of(gateway.url) as sdk:
        lines = [line(1), b'{"custom_id": "x"', line(1), {**line(4), "url": "/v1/embeddings"}, line(5, "nope")]
        batch = await until(sdk, (await submitted(sdk, *lines)).id, "failed")
    assert batch.failed_at is not None
    assert [(each.line, each.code) for each in batch.errors.data] == [
        (2, "invalid_json_line"),
        (3, "duplicate_custom_id"),
        (4, "invalid_url"),
        (5, "model_not_found"),
    ]
    assert upstream.calls == []


async def test_a_deleted_file_stays_until_its_batch_has_ended(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path, upstream={"max_concurrency": 1}))
    go_on = held(upstream)
    async with client_of(gateway.url) as sdk:
        batch = await submitted(sdk, *map(line, range(200)))
        await upstream.holding(1)
        await sdk.files.delete(batch.input_file_id)
        assert (tmp_path / "batches/files" / batch.input_file_id).exists()
        go_on.set()
        batch = await until(sdk, batch.id, "completed")
        assert len(await results(sdk, batch.output_file_id)) == 200
    gone = tmp_path / "batches/files" / batch.input_file_id
    await eventually(lambda: not gone.exists(), "the content is deleted")


async def test_a_file_that_vanishes_from_the_disk_fails_the_batch_and_keeps_its_results(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path, upstream={"max_concurrency": 1}))
    go_on = held(upstream)
    async with client_of(gateway.url) as sdk:
        batch = await submitted(sdk, *map(line, range(200)))
        await upstream.holding(1)
        (tmp_path / "batches/files" / batch.input_file_id).unlink()
        go_on.set()
        batch = await until(sdk, batch.id, "failed")
        assert [each.code for each in batch.errors.data] == ["input_file_missing"]
        assert len(await results(sdk, batch.output_file_id)) == 64


async def test_a_key_removed_by_a_reload_pauses_the_batch_until_it_is_back(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    config = batching(upstream.url, tmp_path, upstream={"max_concurrency": 1})
    gateway = await start_gateway(config)
    go_on = held(upstream)
    async with client_of(gateway.url) as sdk, client_of(gateway.url, OTHER_KEY):
        batch = await submitted(sdk, *map(line, range(20)))
        await upstream.holding(1)
        await reloaded(gateway, {**config, **CHANGES}, tmp_path)
        go_on.set()
        await upstream.at_rest()
        assert (await call(gateway.port, "GET", f"/v1/batches/{batch.id}", None, [AUTH])).status == 401
        sent = len(upstream.calls)
        assert sent < 20
        await reloaded(gateway, config, tmp_path)
        batch = await until(sdk, batch.id, "completed")
        assert len(await results(sdk, batch.output_file_id)) == 20
        assert len(upstream.calls) == 20


async def test_lines_of_a_model_removed_by_a_reload_get_the_error_of_a_live_call(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    config = batching(upstream.url, tmp_path, upstream={"max_concurrency": 1})
    gateway = await start_gateway(config)
    go_on = held(upstream)
    async with client_of(gateway.url) as sdk:
        batch = await submitted(sdk, *map(line, range(10)))
        await upstream.holding(1)
        await reloaded(gateway, {**config, "models": {"m-embed": config["models"]["m-embed"]}}, tmp_path)
        go_on.set()
        batch = await until(sdk, batch.id, "completed")
        assert len(await results(sdk, batch.output_file_id)) == 1
        failed = await results(sdk, batch.error_file_id)
    assert len(failed) == 9
    assert {each["response"]["status_code"] for each in failed.values()} == {404}
    assert {each["response"]["body"]["error"]["code"] for each in failed.values()} == {"model_not_found"}


async def test_what_the_window_leaves_undone_expires(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path, wall: WallClock
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path, upstream={"max_concurrency": 2}))
    go_on = held(upstream)
    async with client_of(gateway.url) as sdk:
        batch = await submitted(sdk, *map(line, range(10)), window="1h")
        assert batch.expires_at == batch.created_at + 3600
        await upstream.holding(2)
        wall.now += 3601
        await until(sdk, batch.id, "in_progress", "finalizing")
        await eventually(lambda: gateway._gateway._batch_jobs._runner._runs[batch.id]._stopped.is_set(), "stopped")
        go_on.set()
        batch = await until(sdk, batch.id, "expired")
        assert (batch.request_counts.completed, batch.request_counts.failed) == (2, 8)
        undone = await results(sdk, batch.error_file_id)
    assert {each["error"]["code"] for each in undone.values()} == {"batch_expired"}
    assert len(upstream.calls) == 2


async def test_a_clock_that_is_set_back_harms_no_batch(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path, wall: WallClock
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path, upstream={"max_concurrency": 1}))
    go_on = held(upstream)
    async with client_of(gateway.url) as sdk:
        batch = await submitted(sdk, *map(line, range(10)))
        await upstream.holding(1)
        wall.now -= 86_400
        go_on.set()
        batch = await until(sdk, batch.id, "completed")
        assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at
        assert len(await results(sdk, batch.output_file_id)) == 10
        again = await until(sdk, (await submitted(sdk, line(1))).id, "completed")
        assert again.created_at < batch.created_at


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EROFS])
async def test_a_full_disk_pauses_the_batch_which_goes_on_by_itself(
    start_gateway: StartGateway,
    upstream: FaultUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reason: int,
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path))
    write, full = os.write, True

    def failing(file: int, data: Any) -> int:
        if full and sys._getframe(1).f_code.co_name == "_append":
            write(file, bytes(data[: len(data) // 2]))  # as a disk does that fills up in the middle
            raise OSError(reason, os.strerror(reason))
        return write(file, data)

    monkeypatch.setattr(os, "write", failing)
    async with client_of(gateway.url) as sdk:
        batch = await submitted(sdk, *map(line, range(30)))
        shown = await paused(sdk, batch.id, "disk is full" if reason == errno.ENOSPC else "read-only")
        assert (shown.status, shown.request_counts.completed) == ("in_progress", 0)
        full = False
        batch = await until(sdk, batch.id, "completed")
        assert not getattr(batch, "paused", "")
        assert len(await results(sdk, batch.output_file_id)) == 30
    assert len(upstream.calls) == 30


async def test_an_upload_without_room_is_a_507(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path, {"max_disk": "200KiB"}))
    async with client_of(gateway.url) as sdk:
        file = await sdk.files.create(file=("a", b"x" * 50_000), purpose="user_data")
        with pytest.raises(openai.InternalServerError, match="max_disk") as refused:
            await sdk.files.create(file=("b", b"x" * 200_000), purpose="user_data")
        assert (refused.value.status_code, refused.value.code) == (507, "storage_full")
        assert [each.id async for each in sdk.files.list()] == [file.id]


async def test_a_folder_that_may_not_be_written_to_is_a_507(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path))

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "open", refused)
    async with client_of(gateway.url) as sdk:
        with pytest.raises(openai.InternalServerError, match="read-only") as error:
            await sdk.files.create(file=("b", b"x"), purpose="user_data")
        assert error.value.status_code == 507


async def test_disk_space_used_up_stops_lines_until_there_is_room(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path, {"max_disk": "300KiB"}))
    async with client_of(gateway.url) as sdk:
        ballast = tmp_path / "batches/files/ballast"
        file = await sdk.files.create(file=("in.jsonl", jsonl(*map(line, range(5)))), purpose="batch")
        ballast.write_bytes(b"x" * 400_000)
        batch = await sdk.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
        await paused(sdk, batch.id, "max_disk")
        ballast.unlink()
        assert upstream.calls == []
        await until(sdk, batch.id, "completed")


async def test_a_spent_budget_pauses_the_batch_and_says_so(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    config = batching(upstream.url, tmp_path)
    config["models"]["m-small"]["candidates"][0]["price"] = {"input": 1000, "output": 1000}
    config["keys"] = [{"name": "team-a", "key": KEY, "limits": {"usd_per_day": 0.05}}]
    upstream.always(used(10, 10))  # two cents
    gateway = await start_gateway(config)
    async with client_of(gateway.url) as sdk:
        batch = await submitted(sdk, *(line(number, max_tokens=1) for number in range(20)))
        batch = await paused(sdk, batch.id, "of this key's 0.0500 USD for today")
        assert 0 < len(upstream.calls) < 20
        assert (await sdk.batches.cancel(batch.id)).status == "cancelling"
        await until(sdk, batch.id, "cancelled")


async def test_a_line_beyond_the_whole_budget_fails_and_the_others_go_on(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    config = batching(upstream.url, tmp_path)
    config["models"]["m-small"]["candidates"][0]["price"] = {"input": 1, "output": 1000}
    config["keys"] = [{"name": "team-a", "key": KEY, "limits": {"usd_per_day": 1}}]
    gateway = await start_gateway(config)
    async with client_of(gateway.url) as sdk:
        lines = [line(1, max_tokens=5000), line(2, max_tokens=2)]
        batch = await until(sdk, (await submitted(sdk, *lines)).id, "completed")
        failed = await results(sdk, batch.error_file_id)
        assert failed["line-1"]["response"]["body"]["error"]["code"] == "insufficient_quota"
        assert [*await results(sdk, batch.output_file_id)] == ["line-2"]


async def test_lines_wait_while_a_limit_is_full(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    config = batching(upstream.url, tmp_path)
    config["keys"] = [{"name": "team-a", "key": KEY, "limits": {"concurrency": 2}}]
    gateway = await start_gateway(config)
    async with client_of(gateway.url) as sdk:
        batch = await until(sdk, (await submitted(sdk, *map(line, range(30)))).id, "completed")
        assert (batch.request_counts.completed, batch.request_counts.failed) == (30, 0)
    assert upstream.most_in_flight <= 2


async def test_beside_live_calls_lines_take_a_part_of_the_free_slots(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path, upstream={"max_concurrency": 13}))
    go_on = held(upstream)
    async with client_of(gateway.url) as sdk:
        live = asyncio.create_task(call(gateway.port, "POST", CHAT, C0, [AUTH]))
        await upstream.holding(1)
        batch = await submitted(sdk, *map(line, range(30)))
        await upstream.holding(4)
        go_on.set()
        assert (await live).status == 200
        await until(sdk, batch.id, "completed")
    assert upstream.most_in_flight == 4


def failing_first(times: int, script: Any) -> Callable[[Call], Any]:
    """Answers so to the first calls, and well to the others."""
    return lambda call: script if call.number <= times else replies.ordinary(call)


async def test_an_upstream_that_is_busy_or_away_costs_no_line(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path, upstream={"max_concurrency": 1}))
    upstream.always(failing_first(4, replies.error(503)))
    async with client_of(gateway.url) as sdk:
        batch = await until(sdk, (await submitted(sdk, *map(line, range(3)))).id, "completed")
        assert (batch.request_counts.completed, batch.request_counts.failed) == (3, 0)


async def test_a_line_that_an_upstream_fails_on_gets_three_tries(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path, upstream={"breaker": {"failures": 100}}))
    upstream.always(lambda call: replies.error(500) if b"ping 1" in call.body else replies.ordinary(call))
    async with client_of(gateway.url) as sdk:
        batch = await until(sdk, (await submitted(sdk, line(1), line(2))).id, "completed")
        failed = await results(sdk, batch.error_file_id)
    assert failed["line-1"]["response"]["status_code"] == 502
    assert sum(b"ping 1" in each.body for each in upstream.calls) == 3


async def test_a_line_that_kills_engines_is_given_up(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path, upstream={"breaker": {"failures": 100}}))
    upstream.always(lambda call: [RST] if b"ping 1" in call.body else replies.ordinary(call))
    async with client_of(gateway.url) as sdk:
        batch = await until(sdk, (await submitted(sdk, line(1), line(2))).id, "completed")
        failed = await results(sdk, batch.error_file_id)
    assert failed["line-1"]["response"]["body"]["error"]["code"] in ("request_suspended", "upstream_error")
    assert sum(b"ping 1" in each.body for each in upstream.calls) <= 6  # three tries, each on two connections


async def test_a_restart_goes_on_where_the_batch_was(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    config = batching(upstream.url, tmp_path, upstream={"max_concurrency": 1})
    config["server"]["drain"] = {"timeout": "10s"}
    gateway = await start_gateway(config)
    go_on = held(upstream)
    async with client_of(gateway.url) as sdk:
        batch = await submitted(sdk, *map(line, range(20)))
        await upstream.holding(1)
        stopping = asyncio.create_task(gateway.stop())
        await eventually(lambda: gateway._gateway._serve.closed, "it drains")
        go_on.set()
        await stopping
    assert len(upstream.calls) == 1
    second = await start_gateway(config)
    async with client_of(second.url) as sdk:
        batch = await until(sdk, batch.id, "completed")
        assert len(await results(sdk, batch.output_file_id)) == 20
    assert len(upstream.calls) == 20


async def test_a_batch_of_someone_an_identity_provider_vouches_for(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    signing = SigningKey("k")
    async with IdentityProvider(signing) as provider:
        jwt = {"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": provider.url, "map": {"eng": "team-a"}}
        gateway = await start_gateway(batching(upstream.url, tmp_path, auth={"jwt": [jwt]}))
        alice, bob = (signing.sign(claims(time.time(), sub=name)) for name in ("alice", "bob"))
        async with client_of(gateway.url, alice) as sdk, client_of(gateway.url, bob) as other:
            batch = await until(sdk, (await submitted(sdk, *map(line, range(3)))).id, "completed")
            assert batch.request_counts.completed == 3
            with pytest.raises(openai.NotFoundError):
                await other.batches.retrieve(batch.id)


async def test_old_files_and_batches_are_deleted(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path, wall: WallClock
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path, {"keep": "1d"}))
    async with client_of(gateway.url) as sdk:
        batch = await until(sdk, (await submitted(sdk, line(1))).id, "completed")
        wall.now += 86_399
        await gateway._gateway._batch_jobs._library.sweep()
        assert len((await sdk.files.list()).data) == 2
        wall.now += 2
        assert (await sdk.files.list()).data == []
        await gateway._gateway._batch_jobs._library.sweep()
        with pytest.raises(openai.NotFoundError):
            await sdk.batches.retrieve(batch.id)
        orphan = tmp_path / "batches/files/file-orphan"
        orphan.write_bytes(b"x")
        os.utime(orphan, (wall.now - 90_000, wall.now - 90_000))
        await gateway._gateway._batch_jobs._library.sweep()
    assert [*(tmp_path / "batches/files").iterdir()] == []
