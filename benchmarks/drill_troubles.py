"""The troubles of docs/runbooks.md: each is caused, ended as the page says, and seen to be over."""

import asyncio
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from typing import Any, NamedTuple

from benchmarks.contender import free_port
from benchmarks.drill_bug import BAIT
from benchmarks.drill_scene import PRICE, Scene

Steps = Callable[[Scene], AsyncIterator[None]]
OLD_S = 31.0


class Trouble(NamedTuple):
    """A trouble: `steps` causes it before its `yield` and ends it afterwards; it raises if that does not help."""

    alerts: tuple[str, ...]
    made: str
    ended: str
    steps: Steps


TROUBLES: list[Trouble] = []


def _trouble(*alerts: str, made: str, ended: str) -> Callable[[Steps], Steps]:
    def register(steps: Steps) -> Steps:
        TROUBLES.append(Trouble(alerts, made, ended, steps))
        return steps

    return register


def _expect(true: bool, what: str) -> None:
    if not true:
        raise RuntimeError(what)


async def _asked(scene: Scene, count: int, wanted: int, **call: Any) -> None:
    statuses = [await scene.ask(**call) for _ in range(count)]
    _expect(statuses == [wanted] * count, f"{call} got {statuses}, not {wanted}")


@_trouble(
    "SluiceFailingFast",
    "SluiceFailing",
    "SluiceFailingSlowly",
    made="a config with a wrong port in base_url",
    ended="the config before it",
)
async def failing(scene: Scene) -> AsyncIterator[None]:
    """A config change caused it."""
    well = scene.gateway.config["upstreams"]["local"]["base_url"]
    await _asked(scene, 3, 200)
    wrong = f"http://127.0.0.1:{free_port()}/v1"
    await scene.reload(lambda config: config["upstreams"]["local"].update(base_url=wrong))
    statuses = {await scene.ask() for _ in range(8)}
    await scene.scraped()
    statuses |= {await scene.ask() for _ in range(15)}
    _expect(statuses <= {502, 503}, f"{statuses}")
    yield
    await scene.reload(lambda config: config["upstreams"]["local"].update(base_url=well))
    await _asked(scene, 3, 200)


@_trouble("SluiceDown", made="kill -9 of the gateway", ended="starting it")
async def down(scene: Scene) -> AsyncIterator[None]:
    """The gateway is gone without a log line."""
    scene.gateway.kill()
    yield
    await asyncio.to_thread(scene.gateway.start, 0)
    await scene.ready()
    await _asked(scene, 1, 200)


@_trouble("SluiceNoUpstream", made="all upstreams refuse connections", ended="the upstreams' return")
async def no_upstream(scene: Scene) -> AsyncIterator[None]:
    """The gateway finds them again by itself."""
    await asyncio.gather(scene.local.stop(), scene.spare.stop())
    for model in ("small", "large"):
        status = await scene.ask(model)
        _expect(status in (502, 503), f"{model} got {status}")
    await scene.until("sluice_upstream_up", lambda value: value == 0)
    yield
    await asyncio.gather(scene.local.start(), scene.spare.start())
    await scene.ready()
    await _until_served(scene)


@_trouble("SluiceBreakerOpen", made="an upstream that answers 500", ended="the upstream's recovery")
async def breaker_open(scene: Scene) -> AsyncIterator[None]:
    """It closes by itself, with the first probe that succeeds."""
    scene.local.mode = "failing"
    for _ in range(8):
        await scene.ask()
    yield
    scene.local.mode = "well"
    await _until_served(scene)


async def _until_served(scene: Scene) -> None:
    async with asyncio.timeout(20):
        while await scene.ask() != 200:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.2)
    await scene.until("sluice_upstream_breaker_state", lambda value: value == 0, upstream="local")


@_trouble("SluiceQueueOld", made="three calls for two places", ended="max_concurrency: 3")
async def queue_old(scene: Scene) -> AsyncIterator[None]:
    """The engine could take more."""
    scene.local.released.clear()
    scene.local.mode = "hanging"
    calls = [asyncio.create_task(scene.ask()) for _ in range(3)]
    await scene.until("sluice_upstream_queue_depth", lambda value: value == 1)
    yield
    await scene.reload(lambda config: config["upstreams"]["local"].update(max_concurrency=3))
    await scene.until("sluice_upstream_inflight", lambda value: value == 3, upstream="local")
    await scene.until("sluice_upstream_queue_oldest_wait_seconds", lambda value: value == 0)
    scene.local.mode = "well"
    scene.local.released.set()
    _expect(await asyncio.gather(*calls) == [200] * 3, "a call that had waited was lost")
    await scene.reload(lambda config: config["upstreams"]["local"].update(max_concurrency=2))


@_trouble("SluiceTruncated", made="an upstream that cuts streams off", ended="the upstream's recovery")
async def truncated(scene: Scene) -> AsyncIterator[None]:
    """Clients get an error event in the stream."""
    await _asked(scene, 1, 200, stream=True)
    for number in range(8):  # good ones in between, lest the breaker opens
        for mode, wanted in (("well", 200), ("cutting", 0)):
            scene.local.mode = mode
            await _asked(scene, 1, wanted, stream=True)
        if number == 0:
            await scene.scraped()
    yield
    scene.local.mode = "well"
    await _until_served(scene)
    before = await scene.value("sluice_requests_total", outcome="truncated")
    await _asked(scene, 3, 200, stream=True)
    _expect(await scene.value("sluice_requests_total", outcome="truncated") == before, "streams still break")


@_trouble("SluiceSlow", made="a Redis that answers nobody (SIGSTOP), and limited calls", ended="SIGCONT")
async def slow(scene: Scene) -> AsyncIterator[None]:
    """A limited call waits for `redis.timeout` where Redis is slow."""
    await _asked(scene, 1, 200, key="team-b", max_tokens=1)
    await scene.scraped()
    scene.redis.signal(signal.SIGSTOP)
    await _asked(scene, 2, 200, key="team-b", max_tokens=1)
    yield
    scene.redis.signal(signal.SIGCONT)
    await scene.ready()
    await _asked(scene, 2, 200)


@_trouble("SluiceInternalError", made="a gateway with a bug", ended="one without")
async def internal_error(scene: Scene) -> AsyncIterator[None]:
    """Other calls are unaffected."""
    await _restarted(scene, "benchmarks.drill_bug")
    await _asked(scene, 1, 500, text=BAIT)
    await _asked(scene, 1, 200)
    yield
    await _restarted(scene, "gateway")
    await _asked(scene, 1, 200, text=BAIT)


async def _restarted(scene: Scene, module: str) -> None:
    assert scene.gateway.process is not None
    scene.gateway.process.terminate()
    await asyncio.to_thread(scene.gateway.process.wait, 20)
    scene.gateway.module = module
    await asyncio.to_thread(scene.gateway.start, 0)
    await scene.ready()


@_trouble("SluiceRedisDown", made="kill -9 of Redis", ended="starting it")
async def redis_down(scene: Scene) -> AsyncIterator[None]:
    """Calls are served, and nothing need be done in the gateway."""
    scene.redis.kill()
    await _asked(scene, 1, 200, key="team-b", max_tokens=1)
    await scene.until("sluice_redis_up", lambda value: value == 0)
    await _asked(scene, 3, 200)
    yield
    await asyncio.to_thread(scene.redis.start, 0)
    await scene.until("sluice_redis_up", lambda value: value == 1)


@_trouble("SluiceReloadFailed", made="a config that names no upstream", ended="the config before it")
async def reload_failed(scene: Scene) -> AsyncIterator[None]:
    """The config before it stays in force."""
    well = scene.gateway.config
    wrong = well["models"] | {"small": {"candidates": [{"upstream": "locl", "price": PRICE}]}}
    scene.gateway.write({**well, "models": wrong})
    await scene.until("sluice_config_reload_success", lambda value: value == 0)
    await _asked(scene, 1, 200)
    yield
    scene.gateway.write(well)
    await scene.until("sluice_config_reload_success", lambda value: value == 1)


@_trouble("SluiceUsageNotWritten", made="usage.db locked by another", ended="letting go of the lock")
async def usage_not_written(scene: Scene) -> AsyncIterator[None]:
    """Unwritten usage is written later."""
    before = _written(scene)
    with closing(sqlite3.connect(scene.gateway.folder / "usage.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        await _asked(scene, 2, 200)
        await scene.until("sluice_usage_write_errors_total", lambda value: value > 0)
        yield
        other.execute("ROLLBACK")
    async with asyncio.timeout(20):
        while _written(scene) < before + 2:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.2)


def _written(scene: Scene) -> int:
    with closing(sqlite3.connect(scene.gateway.folder / "usage.db", timeout=5)) as file:
        return int(file.execute("SELECT coalesce(sum(requests), 0) FROM usage").fetchone()[0])


@_trouble("SluiceBudgetNear", made="a key that spends its day's dollars", ended="a higher usd_per_day")
async def budget_near(scene: Scene) -> AsyncIterator[None]:
    """The new budget includes the past spending."""
    await _asked(scene, 1, 200, key="team-b")
    await scene.scraped()
    statuses = [await scene.ask(key="team-b") for _ in range(6)]
    _expect(429 in statuses, f"the budget holds nothing back: {statuses}")
    yield
    await scene.reload(lambda config: config["keys"][1]["limits"].update(usd_per_day=10))
    await _asked(scene, 1, 200, key="team-b")
    left = await scene.value("sluice_budget_remaining_usd", key="team-b")
    _expect(9.9 < left < 10 - 0.005, f"{left} dollars left, as if nothing had been spent")


@_trouble("SluiceUnpriced", made="calls of a model without a price", ended="its price")
async def unpriced(scene: Scene) -> AsyncIterator[None]:
    """Past calls stay unpriced; new ones are priced."""
    await _asked(scene, 2, 200, model="large")
    yield
    await scene.reload(lambda config: config["models"]["large"]["candidates"][0].update(price=PRICE))
    before = await scene.value("sluice_unpriced_attempts_total")
    await _asked(scene, 2, 200, model="large")
    _expect(await scene.value("sluice_unpriced_attempts_total") == before, "calls are still not counted")


@_trouble("SluiceBatchLate", made="a batch, and an engine that hangs", ended="the engine's recovery")
async def batch_late(scene: Scene) -> AsyncIterator[None]:
    """Its lines go on by themselves."""
    scene.local.released.clear()
    scene.local.mode = "hanging"
    await scene.submit(3, window="20s")
    await scene.until("sluice_batch_jobs_late", lambda value: value == 1)
    yield
    scene.local.mode = "well"
    scene.local.released.set()
    await scene.until("sluice_batch_jobs_late", lambda value: value == 0)
    await scene.until("sluice_batch_job_lines", lambda value: value == 0)
