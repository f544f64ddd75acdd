"""Batches of several gateways: claims in Redis Streams, files in a shared folder or an object store."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import GatewayProcess, StartGateway
from doubles.redis_server import RedisServer
from doubles.script import Until
from doubles.upstream import FaultUpstream
from kit.batch_scene import batching, client_of, line, results, submitted, until

from gateway.batch_jobs.input_lines import TaskRange
from gateway.batch_jobs.object_store import ObjectBlobStore
from gateway.batch_jobs.records import LineTally
from gateway.batch_jobs.redis_store import RedisJobStore
from gateway.batch_jobs.store import FINISH, BatchStoreUnavailable, BlobMissing, Progress
from gateway.core.units import Secret

RANGES = [(number, TaskRange(number * 10, number * 10 + 10, number)) for number in (0, 1, 2)]
RECORD = b'{"id":"a","key":"k"}'


@pytest.fixture
async def stores(redis_server: RedisServer) -> AsyncIterator[list[RedisJobStore]]:
    """Two processes; a task is free a moment after its process has shown no life."""
    both = [RedisJobStore(Secret(redis_server.url), "sluice", name, dead_s=0.001) for name in ("one", "two")]
    yield both
    for store in both:
        await store.close()


async def test_records(stores: list[RedisJobStore]) -> None:
    store, other = stores
    for id in ("a", "c", "b"):
        await store.put("file", "k", id, RECORD.replace(b'"a"', b'"%b"' % id.encode()))
    ids = [RECORD.replace(b'"a"', b'"%b"' % id) for id in (b"a", b"b", b"c")]
    assert await other.page("file", "k", None, 2) == [ids[2], ids[1]]
    assert await other.page("file", "k", "b", 5) == [ids[0]]
    assert await other.page("file", "k", "a", 5, ascending=True) == [ids[1], ids[2]]
    assert await other.page("file", "other", None, 5) == []
    assert sorted(await other.all("file")) == ids
    assert [await store.remove("file", "a") for _ in range(2)] == [True, False]
    assert await store.page("file", "k", None, 5) == [ids[2], ids[1]]
    await store.put("batch", "k", "b", b"1")
    assert [await store.swap("b", b"1", b"2"), await other.swap("b", b"1", b"3")] == [True, False]
    assert await other.get("batch", "b") == b"2"


async def test_tasks_are_claimed_once_and_counted(stores: list[RedisJobStore]) -> None:
    store, other = stores
    store._dead_ms = other._dead_ms = 60_000
    assert await store.progress("b") == Progress(LineTally(), 0, 0, 0)
    await store.add_tasks("b", RANGES)
    await other.add_tasks("b", RANGES)  # once more changes nothing
    claims = await asyncio.gather(*(each.claim("b") for each in (store, other, store, other)))
    assert sorted(claim.number for claim in claims if claim is not None) == [0, 1, 2]
    mine = next(claim for claim in claims[::2] if claim is not None)
    assert (mine.range, mine.resumed) == (RANGES[mine.number][1], False)
    await store.save("b", mine.number, LineTally(completed=7), finished=False)
    assert await other.progress("b") == Progress(LineTally(completed=7), 3, 0, 3)
    await store.save("b", mine.number, LineTally(completed=9), finished=True)
    assert await other.progress("b") == Progress(LineTally(completed=9), 3, 1, 2)
    await store.add_tasks("b", [(FINISH, TaskRange(0, 0, 0))])
    last = await other.claim("b")
    assert last is not None
    assert last.number == FINISH
    await other.give_back("b", FINISH)
    assert (await other.progress("b")).held == 2
    again = await store.claim("b")
    assert again is not None
    assert (again.number, again.resumed) == (FINISH, True)
    await store.drop_tasks("b")
    assert await other.claim("b") is None
    assert (await other.progress("b")).tasks == 0


async def test_tasks_of_a_silent_process_go_to_another(stores: list[RedisJobStore]) -> None:
    store, other = stores
    await store.add_tasks("b", RANGES[:1])
    await other.claim("b")
    taken = None
    async with asyncio.timeout(20):
        while taken is None:
            taken = await store.claim("b")
    assert (taken.number, taken.resumed) == (0, True)


async def test_a_process_that_shows_life_keeps_its_tasks(stores: list[RedisJobStore]) -> None:
    store, other = stores
    await store.add_tasks("b", RANGES[:1])
    await other.claim("b")
    store._dead_ms = 3_600_000
    await other.adopt()
    assert await store.claim("b") is None
    await store.adopt()  # has nothing, and takes nothing
    assert (await store.progress("b")).held == 1


async def test_redis_that_is_away_is_said(
    stores: list[RedisJobStore], redis_server: RedisServer, tmp_path: Path
) -> None:
    nobody = RedisJobStore(Secret("redis://127.0.0.1:9/0"), "sluice", "x")
    with pytest.raises(BatchStoreUnavailable, match="redis"):
        await nobody.get("batch", "b")
    await nobody.close()


@pytest.fixture
async def s3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[str]:
    """An S3 bucket of moto's server; returns its URL."""
    program = (
        "import sys\n"
        "from moto.server import ThreadedMotoServer\n"
        "server = ThreadedMotoServer(port=0, verbose=False)\n"
        "server.start()\n"
        "print(server.get_host_and_port()[1], flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    async with asyncio.timeout(20):
        receiving, sending = await asyncio.open_connection("127.0.0.1", port)
        sending.write(b"PUT /bucket HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n")
        await sending.drain()
        assert b"200" in await receiving.readline()
        sending.close()
    yield "s3://bucket/folder"
    process.kill()
    await process.wait()


async def test_contents_in_an_object_store(s3: str) -> None:
    now = 0.0
    blobs = ObjectBlobStore(s3, lambda: now)
    await blobs.open()
    writer = await blobs.writer("file-1")
    for _ in range(3):
        await writer.write(b"x" * 4_000_000)
    with pytest.raises(BlobMissing):
        await anext(blobs.read("file-1"))
    await writer.commit()
    assert sum([len(piece) async for piece in blobs.read("file-1")]) == 12_000_000
    assert b"".join([piece async for piece in blobs.read("file-1", 11_999_990, 13_000_000)]) == b"x" * 10
    assert [piece async for piece in blobs.read("file-1", 12_000_000)] == []
    for owner, record in (("one", b"1\n"), ("two", b"2\n"), ("one", b"3\n")):
        await blobs.append("b", owner, record)
    parts = await blobs.parts("b")
    assert [b"".join([piece async for piece in blobs.read(part)]) for part in parts] == [b"1\n", b"3\n", b"2\n"]
    assert await blobs.used() == 12_000_006
    await blobs.delete("file-1", *parts, "file-2")
    assert await blobs.parts("b") == []
    now = 61.0
    assert await blobs.used() == 0


def several(engine: FaultUpstream, folder: Path, redis: RedisServer, url: str) -> dict[str, Any]:
    """The config of each of several gateways, with two slots."""
    shared = {"url": redis.url, "timeout": "2s"}
    return batching(engine.url, folder, {"url": url}, redis=shared, upstream={"max_concurrency": 2})


async def test_two_gateways_share_a_batch_in_a_folder(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path, redis_server: RedisServer
) -> None:
    await shared_batch(start_gateway, upstream, several(upstream, tmp_path, redis_server, f"file://{tmp_path}/shared"))


async def test_two_gateways_share_a_batch_in_an_object_store(
    s3: str, start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path, redis_server: RedisServer
) -> None:
    await shared_batch(start_gateway, upstream, several(upstream, tmp_path, redis_server, s3))


async def shared_batch(start_gateway: StartGateway, upstream: FaultUpstream, config: dict[str, Any]) -> None:
    """Two gateways run one batch together."""
    go_on = asyncio.Event()
    upstream.always(lambda call: [Until(go_on), *replies.ordinary(call)])
    first, second = await start_gateway(config), await start_gateway(config)
    async with client_of(first.url) as sdk, client_of(second.url) as other:
        batch = await submitted(sdk, *map(line, range(200)))
        await upstream.holding(4)  # two of each gateway
        go_on.set()
        batch = await until(other, batch.id, "completed")
        assert (batch.request_counts.completed, batch.request_counts.failed) == (200, 0)
        assert set(await results(other, batch.output_file_id)) == {f"line-{number}" for number in range(200)}
    assert len(upstream.calls) == 200


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as one:
        yield one


async def test_the_lines_of_a_killed_gateway_are_taken_over(
    start_gateway: StartGateway,
    upstream: FaultUpstream,
    tmp_path: Path,
    kept: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RedisJobStore.__init__, "__kwdefaults__", {"dead_s": 1.0, "timeout": 5.0})
    monkeypatch.setattr("gateway.batch_jobs.runner._ADOPT_S", 0.2)
    config = several(upstream, tmp_path, kept, f"file://{tmp_path}/shared")
    go_on = asyncio.Event()
    upstream.always(lambda call: [Until(go_on), *replies.ordinary(call)])
    async with AsyncExitStack() as stack:
        doomed = GatewayProcess(config, tmp_path)
        await asyncio.to_thread(doomed.__enter__)
        stack.callback(doomed.process.kill)
        async with client_of(doomed.url) as sdk:
            batch = await submitted(sdk, *map(line, range(100)))
        await upstream.holding(2)
        doomed.process.kill()
        await asyncio.to_thread(doomed.process.wait)
    go_on.set()
    heir = await start_gateway(config)
    async with client_of(heir.url) as sdk:
        batch = await until(sdk, batch.id, "completed")
        assert set(await results(sdk, batch.output_file_id)) == {f"line-{number}" for number in range(100)}
    assert len(upstream.calls) == 102
