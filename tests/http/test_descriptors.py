"""Which descriptors clients may take, and who gives way when few are left."""

import asyncio

import pytest

from gateway.http.descriptors import Descriptors

LIMIT = 1000


class Crowd:
    """Idle clients."""

    def __init__(self, idle: int) -> None:
        self.idle = idle
        self.closed = 0

    def close(self, count: int) -> int:
        closed = min(count, self.idle)
        self.idle -= closed
        self.closed += closed
        return closed


def made(idle: int, limit: int = LIMIT) -> tuple[Descriptors, Crowd]:
    descriptors, crowd = Descriptors(lambda: limit, lambda: 0.0), Crowd(idle)
    descriptors.on_shortage(crowd.close)
    return descriptors, crowd


async def turns() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


async def test_nobody_gives_way_while_there_are_enough() -> None:
    descriptors, crowd = made(10)
    assert descriptors.admit_client(LIMIT // 2)
    descriptors.note_upstream(LIMIT - LIMIT // 4)
    await turns()
    assert crowd.closed == 0


async def test_a_new_client_takes_the_place_of_an_idle_one(caplog: pytest.LogCaptureFixture) -> None:
    descriptors, crowd = made(500)
    for number in range(LIMIT - LIMIT // 4, LIMIT - LIMIT // 4 + 40):
        assert descriptors.admit_client(number)
    await turns()
    assert 30 <= crowd.closed <= 80
    assert [record.message.partition(":")[0] for record in caplog.records] == ["out of file descriptors"]


async def test_upstreams_may_take_half_of_what_is_kept_before_anybody_gives_way() -> None:
    descriptors, crowd = made(500)
    descriptors.note_upstream(LIMIT - LIMIT // 4 + 50)
    await turns()
    assert crowd.closed == 0
    descriptors.note_upstream(LIMIT - 5)
    await turns()
    assert crowd.closed > 0


async def test_a_new_client_is_refused_where_all_others_are_busy() -> None:
    descriptors, _ = made(0)
    assert descriptors.admit_client(LIMIT - LIMIT // 4 + 10)
    assert not descriptors.admit_client(LIMIT - 5)


async def test_those_that_found_none_share_what_is_closed_for_them() -> None:
    descriptors, crowd = made(5)
    tried = await asyncio.gather(*(descriptors.relieve() for _ in range(8)))
    assert tried.count(True) == 5
    assert crowd.closed == 5
    assert not await descriptors.relieve()


async def test_without_a_limit_nobody_is_refused() -> None:
    descriptors, crowd = made(10, limit=0)
    assert descriptors.admit_client(1_000_000)
    descriptors.note_upstream(1_000_000)
    assert crowd.closed == 0
