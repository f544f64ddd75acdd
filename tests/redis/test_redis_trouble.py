"""The connection while Redis fails (rows 55 to 59 of the provoked faults)."""

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
from tenacity import AsyncRetrying

from gateway.core.units import Secret
from gateway.limits.shared_limits import SharedLimits
from gateway.redis.command import Command, Head, RedisFailure
from gateway.redis.pipelined import PipelinedRedis

BACK = 2.0
"""Seconds within which a recovered Redis is used again."""


@pytest.fixture
def counted() -> Counter[str]:
    return Counter()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of this test alone."""
    with RedisServer(tmp_path) as one:
        yield one


@pytest.fixture
async def link(server: RedisServer, counted: Counter[str]) -> AsyncIterator[PipelinedRedis]:
    """A link with the default timeout."""
    one = link_to(server.url, counted, timeout=0.02)
    await one.start()
    await eventually(lambda: one.up, "the link is up")
    counted.clear()
    yield one
    await one.stop()


async def fails(link: PipelinedRedis) -> str:
    """The kind of failure of a request."""
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


async def test_row_55_killed_and_started_again(link: PipelinedRedis, server: RedisServer, counted: Counter[str]):
    server.kill()
    assert await fails(link) == "connection"
    assert await fails(link) == "down"
    server.start()
    await back(link)
    assert await ask(link, b"x") == b"x"
    assert counted["connection"] >= 1


async def test_row_55_its_death_is_noticed_without_any_call(server: RedisServer, counted: Counter[str]):
    link = link_to(server.url, counted, heartbeat_s=0.01)
    await link.start()
    server.kill()
    await eventually(lambda: not link.up, "the link is down")
    await link.stop()


async def test_row_56_while_redis_is_paused_only_one_round_waits(
    link: PipelinedRedis, server: RedisServer, counted: Counter[str]
):
    server.pause()
    outcomes = await asyncio.gather(*(ask(link, b"%d" % n) for n in range(100)), return_exceptions=True)
    assert all(isinstance(one, RedisFailure) and one.kind == "timeout" for one in outcomes)
    assert {one.sent for one in outcomes} == {True, False}  # those of the round, and those behind it
    assert counted == {"timeout": 1}
    # From now on no caller waits: all of these end without a turn of the loop.
    for _ in range(1000):
        with pytest.raises(RedisFailure):
            ask(link, b"x").send(None)
    server.resume()
    await back(link)
    # Replies to earlier requests are discarded with their connection.
    assert await ask(link, b"after") == b"after"


async def test_row_56_client_pause(link: PipelinedRedis, server: RedisServer):
    server.command("CLIENT", "PAUSE", "300")
    assert await fails(link) == "timeout"
    await back(link)
    assert await ask(link, b"x") == b"x"


async def test_row_56_what_is_enqueued_is_kept_and_goes_out_oldest_first(
    link: PipelinedRedis, server: RedisServer, counted: Counter[str]
):
    server.pause()
    await fails(link)
    counted.clear()
    posted = [post(link, b"%d" % number) for number in range(800)]
    server.resume()
    await back(link)
    await asyncio.gather(*posted)
    items = server.command("LRANGE", "list", "0", "-1").split(b"\r\n")[2::2]
    assert [item for item in items if item.isdigit()] == [b"%d" % number for number in range(800)]


async def test_a_stream_of_first_commands_does_not_hold_up_the_others(counted: Counter[str]):
    """Each reply to a first command enqueues the next one, as merges of busy keys do."""
    async with FakeResp(ordinary) as fake:
        link = link_to(fake.url, counted)
        await link.start()

        def again(_: bytes | RedisFailure) -> None:
            if not done.done():
                link.enqueue(Command(APPEND, Head.of([b"list"]), [b"merge"], again), first=True)

        done = post(link, b"settlement")
        for _ in range(100):
            again(b"")
        assert await asyncio.wait_for(done, 5.0) == b"settlement"
        await link.stop()


async def test_a_first_command_that_was_under_way_stays_first(
    link: PipelinedRedis, server: RedisServer, counted: Counter[str]
):
    server.pause()
    first = post(link, b"first", first=True)
    await fails(link)
    later = [post(link, b"later", first=True), post(link, b"last")]
    server.resume()
    await back(link)
    await asyncio.gather(first, *later)
    items = server.command("LRANGE", "list", "0", "-1").split(b"\r\n")[2::2]
    kept = [item for item in items if item in (b"first", b"later", b"last")]
    assert kept[-3:] == [b"first", b"later", b"last"]


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


async def test_row_59_a_key_of_the_wrong_type_fails_one_command(
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


@pytest.mark.parametrize("error", [b"WRONGTYPE Operation against a key", b"CROSSSLOT Keys in request don't hash"])
async def test_row_59_an_error_from_a_cluster_node_is_logged_with_its_code(
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


async def test_a_server_that_is_not_redis_is_an_error_and_no_crash(counted: Counter[str]):
    answers = iter([b"HTTP/1.1 400 Bad Request\r\n\r\n", b":x\r\n", b"*1\r\n$abc\r\n", b"$-5\r\nx\r\n", b"\r\n"])
    async with FakeResp(lambda words: next(answers, b"?\r\n")) as fake:
        link = link_to(fake.url, counted, retry_s=0.01)
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
        link = link_to(fake.url, counted, retry_s=0.01)
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


async def test_tenacity_makes_the_attempts_to_connect(
    server: RedisServer, counted: Counter[str], monkeypatch: pytest.MonkeyPatch
):
    loops: list[AsyncRetrying] = []

    class Recorded(AsyncRetrying):
        def begin(self) -> None:
            super().begin()
            loops.append(self)

    monkeypatch.setattr("gateway.redis.pipelined.AsyncRetrying", Recorded)
    link = link_to(server.url, counted, retry_s=0.05)
    await link.start()
    assert [loop.statistics["attempt_number"] for loop in loops] == [1]
    server.kill()
    assert await fails(link) == "connection"
    await eventually(lambda: len(loops) == 2 and loops[1].statistics["attempt_number"] >= 4, "it tries again")
    assert loops[1].statistics["idle_for"] == pytest.approx(
        0.05 * (loops[1].statistics["attempt_number"] - 1), abs=0.051
    )
    server.start()
    await back(link)
    await link.stop()
    assert len(loops) == 2


async def test_it_stops_at_once_while_it_waits_to_connect_again(tmp_path: Path, counted: Counter[str]):
    link = link_to(RedisServer(tmp_path).url, counted, retry_s=60.0)
    await link.start()
    async with asyncio.timeout(0.5):
        await link.stop()
    assert counted == {"connection": 1}


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Message and error of each line that the connection logged."""
    return [(one.message, getattr(one, "error", "")) for one in caplog.records if one.name == "sluice"]


async def test_tls_to_a_plain_port_says_what_it_is(
    server: RedisServer, counted: Counter[str], caplog: pytest.LogCaptureFixture
):
    link = link_to(server.url.replace("redis:", "rediss:"), counted, timeout=0.02)
    await link.start()
    await link.stop()
    ((message, error),) = said(caplog)
    assert message == "redis is down"
    assert f"127.0.0.1:{server.port}" in error
    assert "does it speak redis:// instead of rediss://?" in error
    assert "20 ms" not in error


@pytest.mark.parametrize(
    "answer",
    [b"\x15\x03\x01\x00\x02\x02\x46", b"HTTP/1.1 400 Bad Request\r\n\r\n", b""],
    ids=["alert", "http", "closed"],
)
async def test_plain_to_a_port_that_speaks_something_else_says_so(
    answer: bytes, counted: Counter[str], caplog: pytest.LogCaptureFixture
):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        writer.close()

    other = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with other:
        at = f"127.0.0.1:{other.sockets[0].getsockname()[1]}"
        link = link_to(f"redis://{at}/0", counted)
        await link.start()
        await link.stop()
    assert said(caplog) == [("redis is down", f"{at} does not answer as Redis does; does it speak rediss:// (TLS)?")]


async def test_a_refused_login_says_so_without_a_part_of_it(
    tmp_path: Path, counted: Counter[str], caplog: pytest.LogCaptureFixture
):
    with RedisServer(tmp_path, "--requirepass", "p@ss/w0rd") as guarded:
        link = link_to(f"redis://:p%40ss%2Fwrong@127.0.0.1:{guarded.port}/0", counted, retry_s=0.01)
        await link.start()
        await eventually(lambda: sum(counted.values()) >= 3, "it has been tried again and again")
        await link.stop()
    rejected = f"127.0.0.1:{guarded.port} rejected the login; check user and password in redis.url"
    assert said(caplog) == [("redis is down", rejected)]
    assert "ss/" not in "".join(repr(vars(one)) for one in caplog.records)


@pytest.mark.parametrize("error", [b"OOM command not allowed", b"BUSY script", b"MISCONF disk", b"TRYAGAIN keys"])
async def test_a_redis_that_answers_probes_and_refuses_the_rest_is_logged_once(
    error: bytes, counted: Counter[str], caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    async with FakeResp(ordinary) as fake:
        link = link_to(fake.url, counted, retry_s=0.001)
        await link.start()

        def refuse(words: list[bytes]) -> bytes:
            return b"-%b\r\n" % error if words[-1] == b"x" else ordinary(words)

        fake.answer = refuse
        for _ in range(8):
            with pytest.raises(RedisFailure):
                await ask(link, b"x")
            await back(link)
        await link.stop()
    assert [message for message, _ in said(caplog)] == ["redis is up", "redis is down", "redis is up"]
    assert sum(counted.values()) == 8


async def test_limits_in_a_full_redis_are_down_until_there_is_memory(
    server: RedisServer, counted: Counter[str], caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)

    def count(kind: str) -> None:
        counted[kind] += 1

    shared = SharedLimits(Secret(server.url), 0.5, "test", "local", count)
    await shared.start()
    server.command("CONFIG", "SET", "maxmemory", "1")
    await eventually(lambda: counted["oom"] >= 4, "the heartbeat is refused, again and again", 10)
    assert not shared.link.up
    server.command("CONFIG", "SET", "maxmemory", "0")
    await back(shared.link)
    await shared.stop()
    assert [message for message, _ in said(caplog)] == ["redis is up", "redis is down", "redis is up"]


async def test_moved_is_followed_and_a_node_that_is_gone_is_left(counted: Counter[str]):
    async with FakeResp(ordinary) as first, FakeResp(ordinary) as second:
        port = second.url.rpartition(":")[2].partition("/")[0]
        link = link_to(first.url, counted, retry_s=0.01)
        await link.start()
        first.answer = lambda words: b"-MOVED 3999 127.0.0.1:%b\r\n" % port.encode()
        with pytest.raises(RedisFailure):
            await ask(link, b"x")
        await back(link)
        rounds = second.rounds
        assert await ask(link, b"y") == b"y"
        assert second.rounds == rounds + 1
        second.answer = lambda words: b"-MOVED 3999 :%b\r\n" % port.encode()  # the host is the one asked
        with pytest.raises(RedisFailure):
            await ask(link, b"x")
        second.answer = lambda words: b"-CLUSTERDOWN Hash slot not served\r\n"
        await eventually(lambda: not link.up, "it is down")
        second.answer = ordinary
        await back(link)
        await link.stop()


async def test_nodes_that_name_one_another_end_no_loop(counted: Counter[str]):
    async with FakeResp(ordinary) as first, FakeResp(ordinary) as second:
        for one, other in ((first, second), (second, first)):
            port = other.url.rpartition(":")[2].partition("/")[0].encode()
            one.answer = lambda words, port=port: (
                ordinary(words) if words[0] != b"EVALSHA" else b"-MOVED 1 127.0.0.1:%b\r\n" % port
            )
        link = link_to(first.url, counted, retry_s=60.0)
        await link.start()
        assert not link.up
        assert counted == {"other": 1}
        await link.stop()
