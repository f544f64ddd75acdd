"""Which engines have the batch endpoint: how often they are probed, and that the latest answer counts."""

import asyncio
from types import SimpleNamespace

import pytest
from doubles.virtual_time import run

from gateway.core.errors import CONNECT, UPSTREAM_UNAVAILABLE, UpstreamFailure
from gateway.http.client.batch_probe import BatchEndpointProbe


class Engine:
    """Answers a probe with `status`; None: it cannot be reached."""

    def __init__(self, status: int | None) -> None:
        self.status = status
        self.asked = 0

    async def probe(self, path: str, body: bytes, deadline: float) -> int:
        self.asked += 1
        if self.status is None:
            raise UpstreamFailure(UPSTREAM_UNAVAILABLE, "no", cause=CONNECT)
        return self.status


class Scene:
    """One engine and its probe."""

    def __init__(self, status: int | None) -> None:
        self.engine = Engine(status)
        server = SimpleNamespace(name="local", probe=self.engine.probe, transport=None)
        self.probe = BatchEndpointProbe({"local": server}, asyncio.get_running_loop().time)

    async def after(self, seconds: float) -> bool:
        """What is known so many seconds later, when a probe that may start now has been answered."""
        await asyncio.sleep(seconds)
        self.probe.batch_chat("local")
        for _ in range(5):
            await asyncio.sleep(0)
        return self.probe.batch_chat("local")

    async def close(self) -> None:
        await self.probe.close()
        assert not self.probe._probing


@pytest.mark.parametrize("status", [None, 404])
def test_who_offers_nothing_is_asked_again_after_a_minute(status: int | None) -> None:
    async def scenario() -> None:
        scene = Scene(status)
        assert not await scene.after(0.0)
        scene.engine.status = 400
        assert not await scene.after(59.0)
        assert await scene.after(2.0)
        assert scene.engine.asked == 2
        await scene.close()

    run(scenario())


def test_an_offer_stands_for_five_minutes_and_is_then_asked_for_again() -> None:
    async def scenario() -> None:
        scene = Scene(400)
        assert await scene.after(0.0)
        assert await scene.after(299.0)
        assert scene.engine.asked == 1
        assert await scene.after(2.0)
        assert scene.engine.asked == 2
        await scene.close()

    run(scenario())


def test_an_offer_that_is_gone_is_forgotten_and_one_of_an_engine_away_is_not() -> None:
    async def scenario() -> None:
        scene = Scene(422)
        assert await scene.after(0.0)
        scene.engine.status = None
        assert await scene.after(301.0)
        scene.engine.status = 404
        assert not await scene.after(61.0)
        assert scene.engine.asked == 3
        await scene.close()

    run(scenario())


def test_however_often_it_is_asked_one_probe_a_minute_is_sent() -> None:
    async def scenario() -> None:
        scene = Scene(404)
        for _ in range(600):  # ten minutes
            await scene.after(1.0)
        assert 9 <= scene.engine.asked <= 11
        await scene.close()

    run(scenario())
