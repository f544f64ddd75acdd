"""Accounts in Redis have the arithmetic of accounts in memory, exact over any number of processes."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from random import Random

import pytest
from doubles.redis_server import RedisServer
from doubles.waiting import eventually
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from limits.accounts import DAY, Clocks, Process

from gateway.core.caller import KeyLimits, LimitStatus
from gateway.limits.account import Account, Denial, Reservation, ReservationRequest
from gateway.limits.shared_limits import SharedAccount

Start = Callable[..., "asyncio.Future[Process]"]
_NAMES = count()


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
async def processes(redis_server: RedisServer, clocks: Clocks) -> AsyncIterator[list[Process]]:
    """Three processes with the same Redis."""
    three = [Process(redis_server.url, clocks) for _ in range(3)]
    for process in three:
        await process.limits.start()
    yield three
    for process in three:
        await process.limits.stop()
        assert not process.counted


def everywhere(processes: list[Process], limits: KeyLimits, name: str = "team") -> list[SharedAccount]:
    """The same key's account in every process."""
    return [process.limits.account(name, limits) for process in processes]


async def reserve(account: SharedAccount, now: float, *wanted: int) -> Reservation | Denial:
    outcome = await account.reserve(ReservationRequest(*wanted), DAY, now)
    assert isinstance(outcome, Reservation | Denial)
    return outcome


async def test_rate_01_of_200_calls_at_once_exactly_the_limit_passes(processes, clocks):
    account = processes[0].limits.account("team", KeyLimits(rpm=10))
    outcomes = await asyncio.gather(*(reserve(account, clocks.now) for _ in range(200)))
    assert sum(isinstance(outcome, Reservation) for outcome in outcomes) == 10
    denied = [outcome for outcome in outcomes if isinstance(outcome, Denial)]
    assert {denial.limit for denial in denied} == {"rpm"}
    assert {round(denial.wait, 6) for denial in denied} == {6.0}


async def test_rate_02_three_processes_share_one_limit(processes, clocks):
    accounts = everywhere(processes, KeyLimits(rpm=30, tpm=3000, concurrency=4))
    calls = [reserve(account, clocks.now, 100) for _ in range(30) for account in accounts]
    reservations = [outcome for outcome in await asyncio.gather(*calls) if isinstance(outcome, Reservation)]
    assert len(reservations) == 4
    admitted = 0
    while reservations:  # each end admits another call, until the requests or tokens are used up
        admitted += len(reservations)
        accounts[admitted % 3].settle(reservations.pop(), 100, 0, clocks.now)
        for reservation in reservations:
            accounts[0].settle(reservation, 100, 0, clocks.now)
        for process in processes:
            await process.sent()
        calls = [reserve(account, clocks.now, 100) for account in accounts for _ in range(2)]
        reservations = [outcome for outcome in await asyncio.gather(*calls) if isinstance(outcome, Reservation)]
    assert admitted == 30


async def test_rate_11_in_sequence_as_many_calls_pass_as_the_limits_allow(processes, clocks):
    accounts = [processes[0].limits.account(f"key-{number}", KeyLimits(rpm=6)) for number in range(4)]
    outcomes = [await reserve(accounts[number % 4], clocks.now) for number in range(28)]
    assert [isinstance(outcome, Reservation) for outcome in outcomes] == [True] * 24 + [False] * 4


async def test_what_is_settled_by_one_process_is_free_for_another(processes, clocks):
    first, second, _ = everywhere(processes, KeyLimits(tpm=1000))
    reservation = await reserve(first, clocks.now, 900)
    assert isinstance(reservation, Reservation)
    assert await reserve(second, clocks.now, 900) == Denial("tpm", pytest.approx(48.0))
    first.settle(reservation, 100, 0, clocks.now)
    await processes[0].sent()
    assert isinstance(await reserve(second, clocks.now, 900), Reservation)


async def test_a_second_settle_does_nothing(processes, clocks):
    account = processes[0].limits.account("team", KeyLimits(tpm=1000))
    reservation = await reserve(account, clocks.now, 900)
    assert isinstance(reservation, Reservation)
    for _ in range(3):
        account.settle(reservation, 400, 0, clocks.now)
    await processes[0].sent()
    assert account.status(clocks.now).tokens_left == 600


async def test_concurrency_is_never_above_the_limit(processes, clocks):
    """RATE-02: three processes, calls of random length, some callers leave."""
    accounts = everywhere(processes, KeyLimits(concurrency=5))
    random = Random(7)
    inside = highest = served = 0

    async def call(account: SharedAccount) -> None:
        nonlocal inside, highest, served
        while isinstance(reservation := await reserve(account, clocks.now), Denial):
            await asyncio.sleep(0)
        inside += 1
        highest = max(highest, inside)
        try:
            for _ in range(random.randrange(5)):
                await asyncio.sleep(0)
        finally:
            inside -= 1
            served += 1
            account.settle(reservation, 0, 0, clocks.now)

    tasks = [asyncio.create_task(call(accounts[number % 3])) for number in range(300)]
    for number in range(0, 300, 3):
        await asyncio.sleep(0)
        tasks[random.randrange(number, number + 3)].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert highest == 5
    assert served >= 200
    for process in processes:
        await process.sent()
    outcomes = [await reserve(accounts[0], clocks.now) for _ in range(9)]
    assert [isinstance(outcome, Reservation) for outcome in outcomes] == [True] * 5 + [False] * 4


async def test_a_caller_that_leaves_while_it_waits_holds_nothing(processes, clocks):
    account = processes[0].limits.account("team", KeyLimits(tpm=1000, concurrency=1, usd_per_day=10))
    for turns in range(6):
        task = asyncio.create_task(account.reserve(ReservationRequest(900, 0, 10), DAY, clocks.now))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        if isinstance(outcome, Reservation):
            account.settle(outcome, 0, 0, clocks.now)
        else:
            assert isinstance(outcome, asyncio.CancelledError)
        reservation = await reserve(account, clocks.now, 1000, 0, 10)
        assert isinstance(reservation, Reservation), turns
        account.settle(reservation, 0, 0, clocks.now)


async def test_a_cancellation_in_the_same_turn_as_the_reply_holds_nothing(processes, clocks, monkeypatch):
    account = processes[0].limits.account("team", KeyLimits(concurrency=1))
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    waiter.add_done_callback(lambda _: task.cancel())  # before the task itself is woken
    monkeypatch.setattr(loop, "create_future", lambda: waiter)
    task = asyncio.create_task(account.reserve(ReservationRequest(), DAY, clocks.now))
    await asyncio.sleep(0)
    monkeypatch.undo()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert waiter.done()
    assert not waiter.cancelled()
    assert isinstance(await reserve(account, clocks.now), Reservation)


async def test_the_slots_of_a_killed_process_come_back_after_the_lease(redis_server, clocks):
    killed, other = (Process(redis_server.url, clocks, lease=30.0) for _ in range(2))
    await killed.limits.start()
    await other.limits.start()
    reservation = await reserve(killed.limits.account("team", KeyLimits(concurrency=1)), clocks.now)
    assert isinstance(reservation, Reservation)
    await killed.limits.stop()  # it never settles
    account = other.limits.account("team", KeyLimits(concurrency=1))
    clocks.now += 29.9
    assert isinstance(await reserve(account, clocks.now), Denial)
    clocks.now += 0.2
    assert isinstance(await reserve(account, clocks.now), Reservation)
    await other.limits.stop()


async def test_a_long_call_holds_its_slot_by_renewal(processes, clocks):
    first, second, _ = everywhere(processes, KeyLimits(concurrency=1))
    assert isinstance(await reserve(first, clocks.now), Reservation)
    for _ in range(10):
        clocks.now += 10.0
        first.renew(clocks.now)
        assert isinstance(await reserve(first, clocks.now), Denial)
        assert isinstance(await reserve(second, clocks.now), Denial)


async def test_a_call_settled_after_its_lease_still_returns_its_cost(processes, clocks):
    account = processes[0].limits.account("team", KeyLimits(usd_per_day=1000))
    reservation = await reserve(account, clocks.now, 0, 0, 900)
    assert isinstance(reservation, Reservation)
    clocks.now += 100.0
    assert isinstance(await reserve(account, clocks.now, 0, 0, 50), Reservation)
    account.settle(reservation, 0, 100, clocks.now)
    outcome = await reserve(account, clocks.now, 0, 0, 850)
    assert isinstance(outcome, Reservation)


async def test_a_thousand_calls_at_the_edge_of_a_budget_do_not_overspend_it(processes, clocks):
    accounts = everywhere(processes, KeyLimits(usd_per_day=10_000))
    calls = [reserve(accounts[number % 3], clocks.now, 0, 0, 333) for number in range(1000)]
    reservations = [outcome for outcome in await asyncio.gather(*calls) if isinstance(outcome, Reservation)]
    assert len(reservations) == 30
    denial = await reserve(accounts[0], clocks.now, 0, 0, 333)
    assert denial == Denial("usd_per_day", math.inf)


async def test_the_expected_cost_never_denies_on_a_stale_snapshot(processes, clocks):
    first, second, third = everywhere(processes, KeyLimits(usd_per_day=1000))
    seen = await reserve(second, clocks.now, 0, 0, 10)
    assert isinstance(seen, Reservation)
    assert isinstance(await reserve(first, clocks.now, 0, 0, 900), Reservation)
    guessed = await reserve(second, clocks.now, 0, 0, 10, 500)
    assert isinstance(guessed, Reservation)
    assert guessed.cost == 90  # all that is left
    assert await reserve(third, clocks.now, 0, 0, 1, 500) == Denial("usd_per_day", math.inf)
    second.settle(guessed, 0, 20, clocks.now)
    await processes[1].sent()
    assert isinstance(await reserve(third, clocks.now, 0, 0, 70), Reservation)


async def test_free_calls_pass_when_the_dollars_are_spent(processes, clocks):
    first, second = everywhere(processes, KeyLimits(rpm=3, usd_per_day=100))[:2]
    assert isinstance(await reserve(first, clocks.now, 0, 0, 100), Reservation)
    assert await reserve(second, clocks.now, 0, 0, 0, 5) == Denial("usd_per_day", math.inf)
    free = await reserve(second, clocks.now)
    assert isinstance(free, Reservation)
    assert free.cost == 0
    assert isinstance(await reserve(first, clocks.now), Reservation)
    assert (await reserve(first, clocks.now)).limit == "rpm"


async def test_what_this_process_s_calls_reserve_is_known(processes, clocks):
    first, second = everywhere(processes, KeyLimits(usd_per_day=100))[:2]
    held = await reserve(first, clocks.now, 0, 0, 60)
    assert isinstance(held, Reservation)
    assert (first.spent(DAY), first.reserved(DAY), second.reserved(DAY)) == (60, 60, 0)
    assert first.reserved("2026-11-28") == 0
    first.settle(held, 0, 20, clocks.now)
    await processes[0].sent()
    assert (first.spent(DAY), first.reserved(DAY)) == (20, 0)


async def test_each_day_has_its_own_dollars(processes, clocks):
    account = processes[0].limits.account("team", KeyLimits(usd_per_day=100))
    yesterday = await account.reserve(ReservationRequest(committed_cost=100), "2026-11-28", clocks.now)
    assert isinstance(yesterday, Reservation)
    assert isinstance(await account.reserve(ReservationRequest(committed_cost=1), "2026-11-28", clocks.now), Denial)
    assert isinstance(await account.reserve(ReservationRequest(committed_cost=60), DAY, clocks.now), Reservation)
    account.settle(yesterday, 0, 0, clocks.now)
    assert isinstance(await account.reserve(ReservationRequest(committed_cost=60), DAY, clocks.now), Denial)
    assert isinstance(await account.reserve(ReservationRequest(committed_cost=40), DAY, clocks.now), Reservation)


async def test_spending_known_to_the_process_counts_in_an_empty_redis(processes, clocks):
    account = processes[0].limits.account("team", KeyLimits(usd_per_day=100))
    account.remember(DAY, 70)
    assert isinstance(await reserve(account, clocks.now, 0, 0, 40), Denial)
    assert isinstance(await reserve(account, clocks.now, 0, 0, 30), Reservation)


async def test_five_calls_with_a_cap_spend_a_small_limit_once(processes, clocks):
    accounts = everywhere(processes, KeyLimits(tpm=100))
    calls = [reserve(accounts[number % 3], clocks.now, 90) for number in range(5)]
    outcomes = await asyncio.gather(*calls)
    assert sum(isinstance(outcome, Reservation) for outcome in outcomes) == 1
    assert await reserve(accounts[0], clocks.now, 101) == Denial("too_large", math.inf)


async def test_key_names_may_contain_anything_and_stay_distinct(processes, clocks):
    names = ["{team}", "team}", "팀:{a}", "{}", "a\n b", "team", "x" * 200]
    accounts = [processes[0].limits.account(name, KeyLimits(rpm=1)) for name in names]
    for account in accounts:
        assert isinstance(await reserve(account, clocks.now), Reservation)
    for account in accounts:
        assert isinstance(await reserve(account, clocks.now), Denial)


async def test_every_key_in_redis_expires(processes, clocks, redis_server):
    account = processes[0].limits.account("team", KeyLimits(5, 100, 2, 1000))
    assert isinstance(await reserve(account, clocks.now, 10, 10, 10), Reservation)
    keys = [word for word in redis_server.command("KEYS", "*").split(b"\r\n") if word.startswith(b"test:")]
    assert len(keys) == 4
    for key in keys:
        left = int(redis_server.command("TTL", key.decode()).strip()[1:])
        assert 0 < left <= 2 * 86400


async def test_a_clock_that_is_set_back_blocks_no_key(redis_server, clocks):
    process = Process(redis_server.url, clocks)
    await process.limits.start()
    account = process.limits.account("team", KeyLimits(rpm=2))
    for _ in range(2):
        assert isinstance(await reserve(account, clocks.now), Reservation)
    clocks.now -= 900.0
    assert await reserve(account, clocks.now) == Denial("rpm", pytest.approx(30.0))
    clocks.now += 30.0
    assert isinstance(await reserve(account, clocks.now), Reservation)
    await process.limits.stop()


async def test_without_a_test_clock_redis_uses_its_own(redis_server):
    process = Process(redis_server.url, Clocks(), redis_time=None)
    await process.limits.start()
    account = process.limits.account("team", KeyLimits(rpm=6000))
    reservations = [await reserve(account, 0.0) for _ in range(20)]
    assert all(isinstance(outcome, Reservation) for outcome in reservations)
    assert 5900 < account.status(1000.0).requests_left < 6000
    await process.limits.stop()


async def test_processes_count_each_other(processes):
    await eventually(lambda: processes[2].limits.processes == 3, "three were counted")


# The property: whatever is reserved and settled when, Redis replies as the account in memory does.

_STEPS = st.lists(
    st.tuples(
        st.floats(0, 40),
        st.one_of(
            st.tuples(st.integers(0, 330), st.integers(0, 400), st.integers(0, 900)),
            st.tuples(st.integers(0, 5), st.integers(0, 500), st.integers(0, 900)),
        ),
        st.booleans(),
    ),
    max_size=25,
)
_TERMS = st.builds(
    KeyLimits,
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 400),
    st.none() | st.integers(1, 5),
    st.none() | st.integers(0, 5000),
)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as one:
        yield one


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(limits=_TERMS, steps=_STEPS)
def test_redis_answers_as_memory_does(redis_server: RedisServer, runner: asyncio.Runner, limits, steps):
    runner.run(_compare(redis_server.url, limits, steps))


async def _compare(url: str, limits: KeyLimits, steps) -> None:
    clocks = Clocks()
    process = Process(url, clocks, lease=1e6)
    await process.limits.start()
    shared, memory = process.limits.account(f"key-{next(_NAMES)}", limits), Account(limits)
    held: list[tuple[Reservation, Reservation]] = []
    for seconds, numbers, arrives in steps:
        clocks.now += seconds
        now = clocks.now
        if arrives:
            wanted = ReservationRequest(*numbers)
            outcome, expected = await shared.reserve(wanted, DAY, now), memory.reserve(wanted, DAY, now)
            assert type(outcome) is type(expected)
            if isinstance(outcome, Reservation) and isinstance(expected, Reservation):
                assert (outcome.tokens, outcome.cost) == (expected.tokens, expected.cost)
                assert outcome.watermark == expected.watermark
                held.append((outcome, expected))
            else:
                assert outcome == expected
        elif held:
            mine, its = held.pop(numbers[0] % len(held))
            shared.settle(mine, numbers[1], numbers[2], now)
            memory.settle(its, numbers[1], numbers[2], now)
        else:
            continue
        await process.sent()
        assert shared.status(now) == _near(memory.status(now))
    await process.limits.stop()
    assert not process.counted


def _near(standing: LimitStatus) -> object:
    return pytest.approx(standing, abs=1e-6)
