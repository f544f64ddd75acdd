"""Names to addresses: one that hangs holds up nobody else, and what was known helps meanwhile."""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from doubles.upstream import FaultUpstream
from doubles.waiting import eventually

from gateway.core.clock import monotonic
from gateway.http.client import resolver as module
from gateway.http.client.h1_pool import H1Transport
from gateway.http.client.resolver import LAST_GOOD_S, MAX_THREADS, RETRY_S, AiohttpResolver, Resolver
from gateway.http.client.tcp_health import TcpHealthChecker
from gateway.http.ticker import Ticker

HANGING = 32
"""Names that hang at a time: more than any shared pool of threads has."""


class Names:
    """A name server under a test's control; a lookup of a name in `hanging` blocks until `free`."""

    def __init__(self) -> None:
        self.hanging: set[str] = set()
        self.errors: dict[str, Exception] = {}
        self.of: dict[str, list[str]] = {}
        self.asked: Counter[str] = Counter()
        self.free = threading.Event()
        self.now = 1000.0

    def __call__(self, host: str) -> Any:
        self.asked[host] += 1
        if host in self.hanging:
            assert self.free.wait(20)
        if host in self.errors:
            raise self.errors[host]
        numbers = self.of.get(host, ["127.0.0.1"])
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (one, 0)) for one in numbers]


@pytest.fixture
def names() -> Iterator[Names]:
    one = Names()
    yield one
    one.free.set()


@pytest.fixture
async def resolver(names: Names) -> Resolver:
    return Resolver(names, lambda: names.now, hangs_s=0.0)


async def hosts(resolver: Resolver, name: str) -> list[str]:
    return [address[4][0] for address in await resolver.addresses(name, 80)]


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", ("127.0.0.1", 8000)),
        ("10.20.30.40", ("10.20.30.40", 8000)),
        ("::1", ("::1", 8000, 0, 0)),
        ("2001:db8::7", ("2001:db8::7", 8000, 0, 0)),
        ("::ffff:10.1.2.3", ("::ffff:10.1.2.3", 8000, 0, 0)),
        ("fe80::1%lo", ("fe80::1", 8000, 0, 1)),
    ],
)
async def test_an_address_needs_no_lookup(
    resolver: Resolver, names: Names, host: str, address: tuple[object, ...]
) -> None:
    (found,) = await resolver.addresses(host, 8000)
    assert found[4][1:] == address[1:]
    assert found[4][0].partition("%")[0] == address[0]
    assert not names.asked


async def test_lookups_of_one_name_are_shared_whatever_the_port(resolver: Resolver, names: Names) -> None:
    names.hanging.add("slow.test")
    waiting = [asyncio.ensure_future(resolver.addresses("slow.test", port)) for port in range(50)]
    await eventually(lambda: names.asked["slow.test"] == 1, "it is asked")
    waiting[0].cancel()  # who leaves ends the lookup for nobody
    names.free.set()
    found = await asyncio.gather(*waiting[1:])
    assert [addresses[0][4] for addresses in found] == [("127.0.0.1", port) for port in range(1, 50)]
    assert names.asked["slow.test"] == 1


async def test_names_that_hang_hold_up_no_other_name(resolver: Resolver, names: Names) -> None:
    names.hanging = {f"slow-{number}.test" for number in range(HANGING)}
    stuck = [asyncio.ensure_future(resolver.addresses(name, 80)) for name in names.hanging]
    await eventually(lambda: len(names.asked) == HANGING, "all hang")
    assert await hosts(resolver, "fast.test") == ["127.0.0.1"]
    assert not any(one.done() for one in stuck)
    names.free.set()
    await asyncio.gather(*stuck)


async def test_threads_of_one_name_are_bounded(resolver: Resolver, names: Names) -> None:
    names.hanging.add("slow.test")
    stuck = []
    for _ in range(5):
        stuck.append(asyncio.ensure_future(resolver.addresses("slow.test", 80)))
        await asyncio.sleep(0)
        names.now += RETRY_S
    await eventually(lambda: names.asked["slow.test"] == MAX_THREADS, "it is asked again")
    names.free.set()
    await asyncio.gather(*stuck)
    assert names.asked["slow.test"] == MAX_THREADS


async def test_a_lookup_that_was_given_up_does_not_hold_up_a_later_one(resolver: Resolver, names: Names) -> None:
    names.hanging.add("slow.test")
    stuck = asyncio.ensure_future(resolver.addresses("slow.test", 80))
    await eventually(lambda: names.asked["slow.test"] == 1, "it hangs")
    names.hanging.clear()
    names.now += RETRY_S
    assert await hosts(resolver, "slow.test") == ["127.0.0.1"]
    names.free.set()
    await stuck


async def test_the_last_good_addresses_are_used_while_a_lookup_hangs(
    resolver: Resolver, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    names.of["engine.test"] = ["10.0.0.1", "10.0.0.2"]
    assert await hosts(resolver, "engine.test") == ["10.0.0.1", "10.0.0.2"]
    names.hanging.add("engine.test")
    for _ in range(3):
        assert await hosts(resolver, "engine.test") == ["10.0.0.1", "10.0.0.2"]
    assert names.asked["engine.test"] == 2
    assert [record.message for record in caplog.records] == ["name lookup hangs; using the last addresses"]
    names.of["engine.test"] = ["10.0.0.3"]
    names.hanging.clear()
    names.free.set()
    await eventually(lambda: resolver._names["engine.test"].lookup is None, "it has come back")
    assert await hosts(resolver, "engine.test") == ["10.0.0.3"]


@pytest.mark.parametrize("number", [socket.EAI_AGAIN, socket.EAI_SYSTEM])
async def test_the_last_good_addresses_outlive_a_name_server_that_is_away(
    resolver: Resolver, names: Names, number: int
) -> None:
    await resolver.addresses("engine.test", 80)
    names.errors["engine.test"] = socket.gaierror(number, "away")
    assert await hosts(resolver, "engine.test") == ["127.0.0.1"]
    names.now += LAST_GOOD_S + 1
    with pytest.raises(socket.gaierror):
        await resolver.addresses("engine.test", 80)


@pytest.mark.parametrize(
    "error",
    [
        socket.gaierror(socket.EAI_NONAME, "no such name"),
        OSError("something else"),
        UnicodeError("label too long"),
    ],
)
async def test_a_name_that_is_gone_is_gone(resolver: Resolver, names: Names, error: Exception) -> None:
    await resolver.addresses("engine.test", 80)
    names.errors["engine.test"] = error
    for _ in range(2):
        with pytest.raises(type(error)):
            await resolver.addresses("engine.test", 80)


async def test_a_lookup_that_finds_nothing_is_an_error(resolver: Resolver, names: Names) -> None:
    names.of["empty.test"] = []
    with pytest.raises(OSError, match="no address"):
        await resolver.addresses("empty.test", 80)


async def test_no_thread_for_a_lookup_is_an_error_of_that_call(
    resolver: Resolver, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(OSError, match="no thread"):
            await resolver.addresses("engine.test", 80)
    assert await hosts(resolver, "engine.test") == ["127.0.0.1"]


async def test_aiohttp_asks_it_too(names: Names, upstream: FaultUpstream) -> None:
    names.of["engine.test"] = ["127.0.0.1"]
    connector = aiohttp.TCPConnector(resolver=AiohttpResolver(Resolver(names)))
    async with aiohttp.ClientSession(connector=connector) as session:
        url = f"http://engine.test:{upstream.port}/v1/chat/completions"
        async with session.post(url, data=b'{"model":"m"}') as answer:
            assert answer.status == 200
    assert names.asked["engine.test"] == 1


async def test_an_upstream_is_found_while_another_ones_name_hangs(
    names: Names, upstream: FaultUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the loop's own resolver both would wait for the same few threads."""
    loop = asyncio.get_running_loop()

    async def never(*args: object, **hints: object) -> object:
        raise AssertionError("the pool of threads that all share")

    monkeypatch.setattr(loop, "getaddrinfo", never)
    names.hanging.add("slow.test")
    shared, sweep = Resolver(names, hangs_s=0.0), Ticker(0.01, monotonic)
    pools = [
        H1Transport("up", f"http://{host}:{upstream.port}/v1", [], sweep, monotonic, resolver=shared)
        for host in ("slow.test", "fast.test", "127.0.0.1")
    ]
    sends = [
        pool.send("/chat/completions", [], [b'{"model":"m"}'], 20.0, monotonic() + 20.0, "total") for pool in pools
    ]
    stuck = asyncio.ensure_future(sends[0])
    await eventually(lambda: names.asked["slow.test"] == 1, "it hangs")
    assert [(await send).status for send in sends[1:]] == [200, 200]
    names.free.set()
    assert (await stuck).status == 200
    for pool in pools:
        await pool.close()
    sweep.close()


async def test_the_health_of_others_is_known_while_a_name_hangs(names: Names, upstream: FaultUpstream) -> None:
    names.hanging.add("slow.test")
    urls = {"slow": "http://slow.test:1/v1", "fast": f"http://fast.test:{upstream.port}/v1"}
    checker = TcpHealthChecker(urls, Resolver(names), connect_s=20.0, retry_s=0.0)
    await eventually(lambda: checker.of("fast") is True, "it is up")
    checker.note("fast", reachable=False)
    await eventually(lambda: checker.of("fast") is True, "it is up again")
    assert checker.of("slow") is None
    await checker.close()


async def test_the_systems_lookup_is_asked_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "system_lookup", Names())
    assert await hosts(Resolver(), "engine.test") == ["127.0.0.1"]
