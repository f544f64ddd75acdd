"""The link to Redis while Redis is not well (rows 55 to 59 of the faults that are provoked)."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from doubles.redis_server import RedisServer
from doubles.waiting import eventually
from kit.fake_resp import FakeResp, ordinary
from kit.linked import APPEND, ask, link_to, post

from gateway.redis.command import RedisFailure
from gateway.redis.pipelined import PipelinedRedis

BACK = 2.0
"""Seconds within which a Redis that is back is used again."""


@pytest.fixture
def counted() -> Counter[str]:
    return Counter()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """One for this test, which may do to it what it likes."""
    with RedisServer(tmp_path) as one:
        yield one


@pytest.fixture
async def link(server: RedisServer, counted: Counter[str]) -> AsyncIterator[PipelinedRedis]:
    """A link with the time-out that is the default."""
    one = link_to(server.url, counted, timeout=0.02)
    await one.start()
    await eventually(lambda: one.up, "the link is up")
    counted.clear()
    yield one
    await one.stop()


async def fails(link: PipelinedRedis) -> str:
    """The kind of trouble that a call has."""
    with pytest.raises(RedisFailure) as found:
        await ask(link, b"x", APPEND)
    return found.value.kind


async def back(link: PipelinedRedis) -> None:
    await eventually(lambda: link.up, "the link is up again", BACK)


async def test_row_55_down_at_start_is_as_down_later(tmp_path: Path, counted: Counter[str]):
    server = RedisServer(tmp_path)
    link = link_to(server.url, counted)
    await link.start()
    assert not link.up
    assert await fails(link) == "down"
    done = post(link, b"kept")
    server.start()
    await back(link)
    assert await done == b"kept"
    assert await ask(link, b"x") == b"x"
    assert set(counted) <= {"connection", "noscript"}
    await link.stop()
    server.stop()


async def test_row_55_killed_and_started_again(
    link: PipelinedRedis, server: RedisServer, counted: Counter[str]
):
    server.kill()
    assert await fails(link) == "connection"
    assert await fails(link) == "down"
    server.start()
    await back(link)
    assert await ask(link, b"x") == b"x"
    assert counted["connection"] >= 1


async def test_row_55_its_death_is_noticed_without_any_call(server: RedisServer, counted: Counter[str]):
    link = link_to(server.url, counted, beat=0.01)
    await link.start()
    server.kill()
    await eventually(lambda: not link.up, "the link is down")
    await link.stop()


async def test_row_56_paused_only_one_round_waits(
    link: PipelinedRedis, server: RedisServer, counted: Counter[str]
):
    server.pause()
    outcomes = await asyncio.gather(*(ask(link, b"%d" % n) for n in range(100)), return_exceptions=True)
    assert all(isinstance(one, RedisFailure) and one.kind == "timeout" for one in outcomes)
    assert {one.sent for one in outcomes} == {True, False}  # those of the round, and those behind it
    assert counted == {"timeout": 1}
    # From now on nobody waits: all of these end without a turn of the loop.
    for _ in range(1000):
        with pytest.raises(RedisFailure):
            ask(link, b"x").send(None)
    server.resume()
    await back(link)
    # What was asked before is answered to nobody: a new connection asks anew.
    assert await ask(link, b"after") == b"after"


async def test_row_56_client_pause(link: PipelinedRedis, server: RedisServer):
    server.command("CLIENT", "PAUSE", "300")
    assert await fails(link) == "timeout"
    await back(link)
    assert await ask(link, b"x") == b"x"


async def test_row_56_the_backlog_is_bounded_and_goes_out_oldest_first(
    server: RedisServer, counted: Counter[str]
):
    link = link_to(server.url, counted, timeout=0.02, room=500)
    await link.start()
    await eventually(lambda: link.up, "the link is up")
    server.pause()
    await fails(link)
    counted.clear()
    posted = [post(link, b"%d" % number) for number in range(800)]
    assert link.backlog == 500
    assert counted == {"backlog": 300}
    for one in posted[500:]:
        assert isinstance(one.exception(), RedisFailure)
    server.resume()
    await back(link)
    await asyncio.gather(*posted[:500])
    items = server.command("LRANGE", "list", "0", "-1").split(b"\r\n")[2::2]
    assert [item for item in items if item.isdigit()] == [b"%d" % number for number in range(500)]
    await link.stop()


async def test_row_57_a_slow_redis_is_asked_in_few_rounds(counted: Counter[str]):
    async with FakeResp(ordinary, delay=0.02) as slow:
        link = link_to(slow.url, counted)
        await link.start()
        before = slow.rounds
        texts = [b"%d" % number for number in range(500)]
        assert await asyncio.gather(*(ask(link, text) for text in texts)) == texts
        assert slow.rounds - before <= 10
        await link.stop()
    assert not counted


async def test_row_59_readonly_the_connection_is_given_up(
    link: PipelinedRedis, server: RedisServer, counted: Counter[str]
):
    server.command("REPLICAOF", "127.0.0.1", "1")
    assert await fails(link) == "readonly"
    assert counted["readonly"] == 1
    assert not link.up
    await eventually(lambda: counted["readonly"] >= 2, "the probe found it still read-only")
    assert not link.up
    server.command("REPLICAOF", "NO", "ONE")
    await back(link)
    assert await ask(link, b"x", APPEND) == b"x"


async def test_row_59_out_of_memory(link: PipelinedRedis, server: RedisServer, counted: Counter[str]):
    done = post(link, b"kept")
    await done
    server.command("CONFIG", "SET", "maxmemory", "1")
    kept = post(link, b"kept too")
    assert await fails(link) == "oom"
    assert counted["oom"] >= 1
    assert not link.up
    server.command("CONFIG", "SET", "maxmemory", "0")
    await back(link)
    assert await kept == b"kept too"


async def test_row_59_loading(counted: Counter[str]):
    loading = b"-LOADING Redis is loading the dataset in memory\r\n"
    async with FakeResp(lambda words: loading) as fake:
        link = link_to(fake.url, counted)
        await link.start()
        assert not link.up
        assert set(counted) == {"loading"}
        fake.answer = ordinary
        await back(link)
        fake.answer = lambda words: loading
        with pytest.raises(RedisFailure) as found:
            await ask(link, b"x")
        assert found.value.kind == "loading"
        await link.stop()


async def test_row_59_a_key_of_the_wrong_type_is_one_call_s_trouble(
    link: PipelinedRedis, server: RedisServer, counted: Counter[str], caplog: pytest.LogCaptureFixture
):
    server.command("SET", "list", "text")
    outcomes = await asyncio.gather(
        ask(link, b"a", APPEND), ask(link, b"b"), ask(link, b"c", APPEND), return_exceptions=True
    )
    assert outcomes[1] == b"b"
    assert all(isinstance(one, RedisFailure) and not one.sent for one in (outcomes[0], outcomes[2]))
    assert link.up
    assert counted["other"] == 2
    assert len([one for one in caplog.records if one.levelno >= logging.ERROR]) == 1


@pytest.mark.parametrize("error", [b"MOVED 3999 127.0.0.1:6381", b"CROSSSLOT Keys in request don't hash"])
async def test_row_59_another_node_of_a_cluster_is_told_of_in_words(
    error: bytes, counted: Counter[str], caplog: pytest.LogCaptureFixture
):
    async with FakeResp(ordinary) as fake:
        link = link_to(fake.url, counted)
        await link.start()
        fake.answer = lambda words: b"-%b\r\n" % error
        with pytest.raises(RedisFailure):
            await ask(link, b"x")
        assert counted["other"] == 1
        assert error.split()[0].decode() in [getattr(one, "code", "") for one in caplog.records]
        fake.answer = ordinary
        assert await ask(link, b"x") == b"x"
        await link.stop()


async def test_what_is_no_redis_is_trouble_and_no_crash(counted: Counter[str]):
    answers = iter(
        [b"HTTP/1.1 400 Bad Request\r\n\r\n", b":x\r\n", b"*1\r\n$abc\r\n", b"$-5\r\nx\r\n", b"\r\n"]
    )
    async with FakeResp(lambda words: next(answers, b"?\r\n")) as fake:
        link = link_to(fake.url, counted, rest=0.01)
        await link.start()
        await eventually(lambda: counted["connection"] >= 6, "it has been tried again and again")
        assert not link.up
        await link.stop()


async def test_states_are_logged_once_and_never_with_the_password(
    counted: Counter[str], caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    wrong = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
    async with FakeResp(lambda words: wrong) as fake:
        link = link_to(fake.url, counted, rest=0.01)
        await link.start()
        await eventually(lambda: counted["other"] >= 5, "it has been tried again and again")
        fake.answer = ordinary
        await back(link)
        await link.stop()
    messages = [one.message for one in caplog.records if one.name == "sluice"]
    assert messages == ["redis is down", "redis is up"]
    assert "hunter2" not in "".join(repr(vars(one)) for one in caplog.records)


async def test_it_stops_while_redis_is_paused(server: RedisServer, counted: Counter[str]):
    link = link_to(server.url, counted, timeout=0.02)
    await link.start()
    server.pause()
    asked = asyncio.create_task(ask(link, b"x"))
    posted = post(link, b"y")
    await asyncio.sleep(0)
    await link.stop()
    assert [type(one) for one in await asyncio.gather(asked, posted, return_exceptions=True)] == [
        RedisFailure,
        RedisFailure,
    ]
    server.resume()
