"""Shared limits while Redis is away, and when it is back or has forgotten (rows 55, 56, 58, 59)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from doubles.redis_server import RedisServer
from doubles.waiting import eventually
from limits.accounts import DAY, Clocks, Process

from gateway.core.caller import KeyLimits
from gateway.limits.account import Denial, Reservation, ReservationRequest
from gateway.limits.membership import HEARTBEAT
from gateway.limits.shared_account import UNAVAILABLE
from gateway.limits.shared_limits import SharedAccount
from gateway.redis.command import Command, Head

Start = Callable[..., Awaitable[list[Process]]]


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server for this test alone, which may stop or empty it."""
    with RedisServer(tmp_path) as running:
        yield running


@pytest.fixture
async def start(server: RedisServer, clocks: Clocks) -> AsyncIterator[Start]:
    """Starts processes that know their number; options apply to all."""
    started: list[Process] = []

    async def processes(number: int, on_failure: str = "local", **options: object) -> list[Process]:
        started.extend(Process(server.url, clocks, on_failure, processes=number, **options) for _ in range(number))
        for process in started:
            await process.limits.start()
        return started

    yield processes
    for process in started:
        await process.limits.stop()


async def count(accounts: list[SharedAccount], clocks: Clocks, tries: int, *wanted: int) -> int:
    """How many of `tries` calls per account are admitted now."""
    calls = [
        account.reserve(ReservationRequest(*wanted), DAY, clocks.now) for account in accounts for _ in range(tries)
    ]
    return sum(isinstance(outcome, Reservation) for outcome in await asyncio.gather(*calls))


async def reserved(account: SharedAccount, clocks: Clocks, *wanted: int) -> Reservation:
    outcome = await account.reserve(ReservationRequest(*wanted), DAY, clocks.now)
    assert isinstance(outcome, Reservation)
    return outcome


async def down(server: RedisServer, processes: list[Process]) -> None:
    server.kill()
    for process in processes:
        process.limits.link.enqueue(
            Command(HEARTBEAT, Head.of([b"test:nothing"], b"x", b"5"), (), lambda _: None)
        )  # a process notices when it sends
    await eventually(lambda: not any(process.limits.link.up for process in processes), "all know that it is down")


async def up(processes: list[Process]) -> None:
    await eventually(lambda: all(process.limits.link.up for process in processes), "all are back", 2.0)
    for process in processes:
        await process.sent()


async def test_without_redis_each_process_has_its_share(server, start, clocks):
    processes = await start(4)
    accounts = [process.limits.account("team", KeyLimits(rpm=40)) for process in processes]
    await down(server, processes)
    assert await count(accounts, clocks, 40) == 40
    clocks.now += 30.0
    assert await count(accounts, clocks, 40) == 20


async def test_the_fallback_starts_at_the_level_last_seen(server, start, clocks):
    processes = await start(4)
    accounts = [process.limits.account("team", KeyLimits(rpm=40, tpm=4000)) for process in processes]
    assert await count(accounts[:1], clocks, 30) == 30
    assert await count(accounts, clocks, 0) == 0
    for account in accounts[1:]:  # each sees the level, by a call that is denied
        assert await account.reserve(ReservationRequest(committed=4001), DAY, clocks.now) == Denial(
            "too_large", float("inf")
        )
    await down(server, processes)
    assert 8 <= await count(accounts, clocks, 40) <= 10


async def test_in_the_fallback_the_expected_cost_reserves_only_what_the_share_has_left(server, start, clocks):
    processes = await start(2)
    account = processes[0].limits.account("team", KeyLimits(usd_per_day=1000))
    await down(server, processes)
    assert (await reserved(account, clocks, 0, 0, 10, 900)).cost == 500
    assert await count([account], clocks, 1, 0, 0, 1, 900) == 0


async def test_a_share_is_at_least_one(server, start, clocks):
    processes = await start(3)
    accounts = [process.limits.account("team", KeyLimits(rpm=1, concurrency=2)) for process in processes]
    await down(server, processes)
    assert await count(accounts, clocks, 3) == 3


async def test_a_call_larger_than_the_share_goes_into_debt_once(server, start, clocks):
    processes = await start(4)
    account = processes[0].limits.account("team", KeyLimits(tpm=400))
    await down(server, processes)
    assert await account.reserve(ReservationRequest(committed=401), DAY, clocks.now) == Denial(
        "too_large", float("inf")
    )
    call = await reserved(account, clocks, 400)
    assert call.tokens == 400
    account.settle(call, 400, 0, clocks.now)
    clocks.now += 239.0  # at the share's rate of 100 a minute
    assert isinstance(await account.reserve(ReservationRequest(committed=100), DAY, clocks.now), Denial)
    clocks.now += 2.0
    assert isinstance(await account.reserve(ReservationRequest(committed=1), DAY, clocks.now), Reservation)


async def test_recovery_gives_no_second_burst(server, start, clocks):
    processes = await start(4)
    accounts = [process.limits.account("team", KeyLimits(rpm=40)) for process in processes]
    await down(server, processes)
    assert await count(accounts, clocks, 40) == 40
    server.start()
    await up(processes)
    assert await count(accounts, clocks, 40) == 0
    clocks.now += 15.0
    assert await count(accounts, clocks, 40) == 10


async def test_the_share_holds_until_all_processes_are_back(server, start, clocks):
    """The first process to reconnect does not know yet what the others admitted."""
    processes = await start(4, settling=0.5)
    accounts = [process.limits.account("team", KeyLimits(rpm=40)) for process in processes]
    await down(server, processes)
    server.start()
    await up(processes)
    assert await count(accounts[:1], clocks, 40) == 10
    clocks.now += 0.6
    assert await count(accounts[:1], clocks, 40) == 30
    assert await count(accounts, clocks, 40) == 0


async def test_no_window_over_an_outage_sees_more_than_the_limit(server, start, clocks):
    """An outage of a minute and a half under saturation, Redis empty afterwards."""
    processes = await start(4)
    accounts = [process.limits.account("team", KeyLimits(rpm=40)) for process in processes]
    admitted = [await count(accounts, clocks, 15)]
    assert await count(accounts, clocks, 1) == 0  # now each has seen what all have used
    await down(server, processes)
    for _ in range(9):
        clocks.now += 10.0
        admitted.append(await count(accounts, clocks, 5))
    server.start()
    await up(processes)
    for _ in range(9):
        clocks.now += 10.0
        admitted.append(await count(accounts, clocks, 15))
    assert admitted[0] == 40
    for first in range(len(admitted)):
        for last in range(first, len(admitted)):
            assert sum(admitted[first : last + 1]) <= 40 + 40 * 10 * (last - first) / 60 + 1e-6
    assert sum(admitted[1:]) >= 0.9 * 40 * 3


async def test_fallback_reservations_are_settled_in_redis_when_it_is_back(server, start, clocks):
    processes = await start(2)
    first, second = [process.limits.account("team", KeyLimits(None, 1000, 3, 10_000)) for process in processes]
    await down(server, processes)
    ended, open_ = await reserved(first, clocks, 100, 0, 1000), await reserved(second, clocks, 400, 0, 3000)
    first.settle(ended, 40, 100, clocks.now)
    server.start()
    await up(processes)
    assert await left(first, clocks) == (pytest.approx(1000 - 40 - 400, abs=1), 6900, 2)
    second.settle(open_, 250, 500, clocks.now)
    await processes[1].sent()
    assert await left(first, clocks) == (pytest.approx(1000 - 40 - 250, abs=1), 9400, 3)


async def left(account: SharedAccount, clocks: Clocks) -> tuple[int, int, int]:
    """Tokens left, as seen by a denied call; dollars and slots left, found by reserving them."""
    await account.reserve(ReservationRequest(committed=10**6), DAY, clocks.now)
    low, high = 0, 10_001
    while high - low > 1:
        middle = (low + high) // 2
        outcome = await account.reserve(ReservationRequest(committed_cost=middle), DAY, clocks.now)
        if isinstance(outcome, Reservation):
            account.settle(outcome, 0, 0, clocks.now)
            low = middle
        else:
            assert outcome.limit == "usd_per_day"
            high = middle
    places = []
    while isinstance(more := await account.reserve(ReservationRequest(), DAY, clocks.now), Reservation):
        places.append(more)
    for reservation in places:
        account.settle(reservation, 0, 0, clocks.now)
    return account.status(clocks.now).tokens_left, low, len(places)


async def test_slots_held_in_redis_count_in_the_fallback(server, start, clocks):
    processes = await start(1)
    account = processes[0].limits.account("team", KeyLimits(concurrency=2))
    before = [await reserved(account, clocks) for _ in range(2)]
    await down(server, processes)
    assert isinstance(await account.reserve(ReservationRequest(), DAY, clocks.now), Denial)
    account.settle(before[0], 0, 0, clocks.now)
    local = await reserved(account, clocks)
    assert isinstance(await account.reserve(ReservationRequest(), DAY, clocks.now), Denial)
    server.start()
    await up(processes)
    assert isinstance(await account.reserve(ReservationRequest(), DAY, clocks.now), Denial)
    account.settle(local, 0, 0, clocks.now)
    await processes[0].sent()
    assert await count([account], clocks, 5) == 1
    assert before[1].id


async def test_closed_rejects_and_open_admits(server, start, clocks):
    processes = await start(1, "closed")
    account = processes[0].limits.account("team", KeyLimits(rpm=1))
    await down(server, processes)
    assert await account.reserve(ReservationRequest(), DAY, clocks.now) is UNAVAILABLE
    server.start()
    await up(processes)
    assert await count([account], clocks, 5) == 1


async def test_open_admits_all_and_merges_the_dollars_afterwards(server, start, clocks):
    processes = await start(1, "open")
    account = processes[0].limits.account("team", KeyLimits(1, 10, 1, 1000))
    await down(server, processes)
    calls = [await reserved(account, clocks, 100, 0, 100) for _ in range(9)]
    for reservation in calls[1:]:
        account.settle(reservation, 100, 50, clocks.now)
    server.start()
    await up(processes)
    account.settle(calls[0], 0, 0, clocks.now)
    await processes[0].sent()
    clocks.now += 3600.0
    denial = await account.reserve(ReservationRequest(1, 0, 601), DAY, clocks.now)
    assert denial == Denial("usd_per_day", float("inf"))
    assert isinstance(await account.reserve(ReservationRequest(1, 0, 600), DAY, clocks.now), Reservation)


async def test_row_56_a_reservation_whose_reply_never_came_is_undone(server, start, clocks):
    """A stopped Redis has the command and runs it when it continues; nothing waits for its reply then."""
    processes = await start(1, "closed", timeout=0.05)
    account = processes[0].limits.account("team", KeyLimits(None, 1000, 1, 1000))
    await up(processes)
    server.pause()
    assert await account.reserve(ReservationRequest(1000, 0, 1000), DAY, clocks.now) is UNAVAILABLE
    assert not processes[0].limits.link.up
    server.resume()
    await up(processes)
    outcome = await account.reserve(ReservationRequest(1000, 0, 1000), DAY, clocks.now)
    assert isinstance(outcome, Reservation)


@pytest.mark.parametrize("how", ["FLUSHALL", "restart"])
async def test_row_59_an_emptied_redis_is_filled_from_what_was_seen(server, start, clocks, how):
    processes = await start(2)
    first, second = [process.limits.account("team", KeyLimits(10, 1000, None, 1000)) for process in processes]
    assert await count([first], clocks, 6, 100, 0, 100) == 6
    assert await count([second], clocks, 2, 50, 0, 50) == 2
    if how == "FLUSHALL":
        server.command("FLUSHALL")
    else:
        await down(server, processes)
        server.start()
        await up(processes)
    # The first process has not seen the second's two calls; the second restores them.
    assert await count([second], clocks, 9, 10, 0, 10) == 2
    assert await count([first], clocks, 9, 10, 0, 10) == 0
    clocks.now += 600.0
    assert isinstance(await first.reserve(ReservationRequest(0, 0, 281), DAY, clocks.now), Denial)
    assert isinstance(await first.reserve(ReservationRequest(0, 0, 280), DAY, clocks.now), Reservation)


async def test_row_58_a_fail_over_that_lost_the_last_writes_is_noticed(server, start, clocks):
    processes = await start(1)
    account = processes[0].limits.account("team", KeyLimits(rpm=10, usd_per_day=1000))
    assert await count([account], clocks, 3, 0, 0, 100) == 3
    copy(server, "", "old:")
    assert await count([account], clocks, 5, 0, 0, 100) == 5
    copy(server, "old:", "")
    assert await count([account], clocks, 9, 0, 0, 100) == 2
    assert isinstance(await account.reserve(ReservationRequest(0, 0, 1), DAY, clocks.now), Denial)


def copy(server: RedisServer, source: str, target: str) -> None:
    """Copy the account's keys over those of another prefix."""
    keys = [name.decode() for name in server.command("KEYS", f"{source}test:*").split(b"\r\n")[2::2] if name]
    for key in keys:
        server.command("COPY", key, target + key.removeprefix(source), "REPLACE")


async def test_row_59_slots_that_redis_lost_come_back_with_the_renewal(server, start, clocks):
    processes = await start(2)
    first, second = [process.limits.account("team", KeyLimits(concurrency=1)) for process in processes]
    call = await reserved(first, clocks)
    server.command("FLUSHALL")
    clocks.now += 10.0
    first.renew(clocks.now)
    await processes[0].sent()
    assert isinstance(await second.reserve(ReservationRequest(), DAY, clocks.now), Denial)
    first.settle(call, 0, 0, clocks.now)
    await processes[0].sent()
    assert isinstance(await second.reserve(ReservationRequest(), DAY, clocks.now), Reservation)


async def test_row_59_a_corrupt_key_falls_back_and_affects_no_other_key(server, start, clocks):
    processes = await start(1)
    account, other = (processes[0].limits.account(name, KeyLimits(rpm=10)) for name in ("team", "other"))
    assert await count([account], clocks, 4) == 4
    key = next(name for name in server.command("KEYS", "*").split(b"\r\n") if name.endswith(b":meters"))
    server.command("DEL", key.decode())
    server.command("LPUSH", key.decode(), "text")
    assert await count([account], clocks, 20) == 6
    for _ in range(6):
        clocks.now += 6.0
        assert await count([account], clocks, 5) == 1
    assert await count([other], clocks, 20) == 10
    server.command("DEL", key.decode())
    clocks.now += 6.0
    assert await count([account], clocks, 5) == 2  # one from the share, and the probe that found Redis healthy
    clocks.now += 12.0
    assert await count([account], clocks, 5) == 1
    assert processes[0].limits.link.up


async def test_row_59_a_malformed_value_counts_as_an_empty_redis(server, start, clocks):
    processes = await start(1)
    account = processes[0].limits.account("team", KeyLimits(rpm=10, usd_per_day=1000))
    assert await count([account], clocks, 4, 0, 0, 100) == 4
    for key in server.command("KEYS", "*").split(b"\r\n"):
        if key.endswith(b":meters") or b":usd:" in key:
            server.command("SET", key.decode(), "text")
    assert await count([account], clocks, 20, 0, 0, 100) == 6


async def test_row_59_scripts_flushed_under_load(server, start, clocks):
    processes = await start(2)
    accounts = [process.limits.account("team", KeyLimits(rpm=50)) for process in processes]
    admitted = 0
    for _ in range(20):
        server.command("SCRIPT", "FLUSH")
        admitted += await count(accounts, clocks, 3)
    assert admitted == 50


async def test_all_keys_of_a_script_are_in_one_slot_of_a_cluster(tmp_path, clocks):
    bus = str(RedisServer(tmp_path).port)
    with RedisServer(tmp_path, "--cluster-enabled", "yes", "--cluster-port", bus) as server:
        server.command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        await eventually(lambda: b"cluster_state:ok" in server.command("CLUSTER", "INFO"), "the cluster is complete")
        process = Process(server.url, clocks)
        await process.limits.start()
        account = process.limits.account("{odd} name", KeyLimits(10, 1000, 5, 1000))
        call = await reserved(account, clocks, 10, 10, 10)
        account.renew(clocks.now + 60)
        account.settle(call, 5, 5, clocks.now)
        await process.sent()
        server.command("CLIENT", "PAUSE", "700")  # longer than the timeout: fallback, then a merge
        assert isinstance(await account.reserve(ReservationRequest(10, 0, 10), DAY, clocks.now), Reservation)
        await up([process])
        assert account.status(clocks.now).requests_left == 8
        assert set(process.counted) <= {"timeout"}
        await process.limits.stop()


async def test_without_redis_what_is_spent_and_reserved_here_is_known(server, clocks, start):
    (process,) = await start(1)
    account = process.limits.account("team", KeyLimits(usd_per_day=100))
    held = await account.reserve(ReservationRequest(committed_cost=10), DAY, clocks.now)
    await down(server, [process])
    local = await account.reserve(ReservationRequest(committed_cost=30), DAY, clocks.now)
    assert (account.spent(DAY), account.reserved(DAY)) == (40, 40)
    account.settle(local, 0, 20, clocks.now)
    assert (account.spent(DAY), account.reserved(DAY)) == (30, 10)
    account.settle(held, 0, 10, clocks.now)
    assert account.reserved(DAY) == 0


def waiting(process: Process) -> int:
    """Commands that wait for Redis."""
    return process.limits.link.backlog


async def test_settlements_that_wait_are_one_command_and_none_is_lost(server, start, clocks):
    """However many calls of a key end while Redis is away."""
    [process] = await start(1)
    account = process.limits.account("team", KeyLimits(tpm=100_000, concurrency=200))
    calls = [await reserved(account, clocks, 100) for _ in range(100)]
    await down(server, [process])
    before = waiting(process)
    for call in calls:
        account.settle(call, 40, 0, clocks.now)
    assert waiting(process) == before + 1
    server.start()
    await up([process])
    await eventually(lambda: not waiting(process), "all have left")
    await process.sent()
    assert await count([account], clocks, 200) == 200  # all slots are free


async def test_a_settlement_sent_twice_around_a_renewal_counts_once(server, start, clocks):
    """A renewal that is sent again must not bring back a call that has been settled."""
    [process] = await start(1)
    account = process.limits.account("team", KeyLimits(usd_per_day=1000))
    call = await reserved(account, clocks, 0, 0, 500)
    await reserved(account, clocks, 0, 0, 500)
    link = process.limits.link
    server.pause()
    account.renew(clocks.now, all=True)
    account.settle(call, 0, 0, clocks.now)
    await eventually(lambda: not link.up, "the round has failed")
    # Redis has read both commands, and executes them before it gets them again.
    server.resume()
    await up([process])
    await process.sent()
    assert await count([account], clocks, 2, 0, 0, 500) == 1


async def test_a_local_call_that_ends_before_its_merge_is_settled_after_it(server, start, clocks):
    [process] = await start(1, settling=0.5)
    account = process.limits.account("team", KeyLimits(tpm=1000, concurrency=10))
    await down(server, [process])
    server.start()
    await eventually(lambda: process.limits.link.up, "it is back")
    call = await reserved(account, clocks, 600)  # locally: the share still holds; its merge is on the way
    account.settle(call, 100, 0, clocks.now)
    await process.sent()
    await process.sent()
    clocks.now += 0.6
    assert await count([account], clocks, 1, 900) == 1
    assert server.command("ZCARD", _key(server, "places")) == b":1\r\n"


async def test_one_merge_at_a_time_while_the_share_still_holds(server, start, clocks):
    [process] = await start(1, settling=0.5)
    account = process.limits.account("team", KeyLimits(rpm=1000))
    await down(server, [process])
    server.start()
    await eventually(lambda: process.limits.link.up, "it is back")
    before = waiting(process)
    assert await count([account], clocks, 100) == 100
    assert waiting(process) <= before + 1
    await process.sent()
    await process.sent()
    clocks.now += 0.6
    assert await count([account], clocks, 1000) == 910  # ten have drained


def _key(server: RedisServer, end: str) -> str:
    return server.command("KEYS", f"*:{end}").split(b"\r\n")[2].decode()
