"""The connection to a healthy Redis: one pipeline a round, each reply to its own caller."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from random import Random

import pytest
from doubles.redis_server import RedisServer
from doubles.waiting import eventually
from kit.fake_resp import FakeResp, ordinary
from kit.linked import APPEND, ECHO, ask, link_to, post

from gateway.redis.command import Command, Head, RedisFailure, Script
from gateway.redis.pipelined import PipelinedRedis


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as one:
        yield one


@pytest.fixture
def counted() -> Counter[str]:
    return Counter()


@pytest.fixture
async def link(server: RedisServer, counted: Counter[str]) -> AsyncIterator[PipelinedRedis]:
    server.command("FLUSHALL")
    one = link_to(server.url, counted)
    await one.start()
    yield one
    await one.stop()


async def test_is_up_after_start_and_answers(link: PipelinedRedis, counted: Counter[str]):
    assert link.up
    assert await ask(link, b"hello") == b"hello"
    assert not counted


async def test_requests_made_together_travel_together(link: PipelinedRedis, server: RedisServer):
    before = _commands_read(server)
    texts = [b"%d" % number for number in range(60)]
    assert await asyncio.gather(*(ask(link, text) for text in texts)) == texts
    # Reads of the socket: one for this command itself, one or two for the pipeline.
    assert _commands_read(server) - before <= 4


def _commands_read(server: RedisServer) -> int:
    text = server.command("INFO", "stats").decode()
    return int(next(line for line in text.splitlines() if line.startswith("total_reads_processed")).partition(":")[2])


@pytest.mark.parametrize("seed", [1, 2])
async def test_row_60_no_reply_reaches_another_caller(link: PipelinedRedis, counted: Counter[str], seed: int):
    random = Random(seed)
    compared = 0

    async def one(number: int) -> None:
        nonlocal compared
        text = b"%d" % number
        assert await ask(link, text) == text
        compared += 1

    for start in range(0, 50_000, 500):
        tasks = [asyncio.create_task(one(number)) for number in range(start, start + 500)]
        for _ in range(random.randrange(4)):
            await asyncio.sleep(0)
        for task in random.sample(tasks, 150):
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, asyncio.CancelledError)
    assert 35_000 <= compared <= 50_000
    assert not counted


async def test_a_call_whose_caller_left_in_time_is_never_sent(link: PipelinedRedis):
    gone = asyncio.create_task(ask(link, b"gone", APPEND))
    stays = asyncio.create_task(ask(link, b"stays", APPEND))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == b"stays"
    assert gone.cancelled()
    assert await ask(link, b"", _LENGTH) == b"1"


async def test_an_enqueued_command_is_executed_before_later_requests(link: PipelinedRedis):
    done = post(link, b"a")
    assert await ask(link, b"b", APPEND) == b"b"
    assert await done == b"a"
    assert await ask(link, b"", _ITEMS) == b"a,b"


async def test_first_precedes_everything_that_waits(link: PipelinedRedis):
    later = post(link, b"later")
    first = post(link, b"first", first=True)
    assert await asyncio.gather(later, ask(link, b"asked", APPEND), first) == [b"later", b"asked", b"first"]
    assert await ask(link, b"", _ITEMS) == b"first,later,asked"


async def test_stop_sends_what_is_enqueued_and_fails_the_rest(
    server: RedisServer, link: PipelinedRedis, counted: Counter[str]
):
    second = link_to(server.url, counted)
    await second.start()
    posted = [post(second, b"%d" % number) for number in range(1000)]
    await second.stop()
    assert all(one.done() and one.exception() is None for one in posted)
    assert await ask(link, b"", _LENGTH) == b"1000"
    with pytest.raises(RedisFailure):
        await ask(second, b"too late")


async def test_a_connection_that_redis_closed_while_idle_costs_no_call(
    link: PipelinedRedis, server: RedisServer, counted: Counter[str]
):
    assert await ask(link, b"before") == b"before"
    server.command("CLIENT", "KILL", "TYPE", "normal")
    await eventually(lambda: server.command("CLIENT", "LIST").count(b"id=") == 1, "the kill is over")
    await asyncio.sleep(0)  # the loop reads the end of the connection
    await asyncio.sleep(0)
    assert await ask(link, b"after") == b"after"
    assert not counted


async def test_scripts_that_redis_lost_are_sent_again(link: PipelinedRedis, server: RedisServer, counted: Counter[str]):
    server.command("SCRIPT", "FLUSH", "SYNC")
    assert await asyncio.gather(*(ask(link, b"%d" % n) for n in range(5))) == [b"%d" % n for n in range(5)]
    assert await ask(link, b"x") == b"x"
    assert counted == {"noscript": 1}


async def test_the_probe_is_sent_at_each_beat(server: RedisServer, counted: Counter[str]):
    server.command("FLUSHALL")
    link = link_to(server.url, counted, heartbeat_s=0.01)
    await link.start()
    server.command("DEL", "probe")
    await eventually(lambda: server.command("EXISTS", "probe") == b":1\r\n", "the probe wrote its key again")
    await link.stop()


@pytest.mark.parametrize(("size", "fewest", "most"), [(0, 1, 3), (200_000, 10, 12), (5_000_000, 20, 22)])
async def test_a_round_is_bounded_in_bytes(counted: Counter[str], size: int, fewest: int, most: int):
    async with FakeResp(ordinary) as fake:
        link = link_to(fake.url, counted)
        await link.start()
        replies = [asyncio.get_running_loop().create_future() for _ in range(20)]
        before = fake.rounds
        for reply in replies:
            link.request(Command(ECHO, Head.of([b"list"]), [b"x"], reply.set_result, reply_size=size))
        assert await asyncio.gather(*replies) == [b"x"] * 20
        assert fewest <= fake.rounds - before <= most
        await link.stop()


async def test_a_large_reply_has_time_by_its_size(counted: Counter[str]):
    """The delay is beyond the timeout of a small command, and far from the time of this one."""
    async with FakeResp(ordinary) as fake:
        link = link_to(fake.url, counted, timeout=0.05)
        await link.start()
        fake.delay = 0.1
        reply = asyncio.get_running_loop().create_future()
        link.request(Command(ECHO, Head.of([b"list"]), [b"x"], reply.set_result, reply_size=100_000_000))
        assert await reply == b"x"
        with pytest.raises(RedisFailure):
            await ask(link, b"small")
        await link.stop()


_LENGTH = Script(b"return tostring(redis.call('LLEN', KEYS[1]))")
_ITEMS = Script(b"return table.concat(redis.call('LRANGE', KEYS[1], 0, -1), ',')")
