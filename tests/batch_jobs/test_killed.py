"""`kill -9` at any moment: no line is lost or doubled, and only lines under way are sent again."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from doubles import replies
from doubles.gateway import GatewayProcess
from doubles.script import Until
from doubles.upstream import FaultUpstream
from kit.batch_scene import batching, client_of, line, results, submitted, until

LINES = 240
SLOTS = 8
KILLS = (1, 100, 220)


async def killed_after(upstream: FaultUpstream, calls: int, gateway: GatewayProcess) -> None:
    """Kills the gateway once so many calls have arrived."""
    await upstream.until(lambda: len(upstream.calls) >= calls, f"{calls} calls", 60.0)
    gateway.process.kill()
    await asyncio.to_thread(gateway.process.wait)


async def begun(stack: AsyncExitStack, config: dict[str, object], folder: Path) -> GatewayProcess:
    """A gateway process, ready."""
    gateway = GatewayProcess(config, folder)
    await asyncio.to_thread(gateway.__enter__)
    stack.callback(gateway.process.kill)
    return gateway


async def test_workers_add_up_their_lines(upstream: FaultUpstream, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    upstream.always(lambda call: [Until(go_on), *replies.ordinary(call)])
    config = batching(upstream.url, tmp_path, upstream={"max_concurrency": 4}, server={"workers": 2})
    async with AsyncExitStack() as stack:
        gateway = await begun(stack, config, tmp_path)
        async with client_of(gateway.url) as sdk:
            batch = await submitted(sdk, *map(line, range(200)))
            await upstream.holding(4)
            shown: dict[str, float] = {}
            async with asyncio.timeout(20):
                while shown != {"waiting": 196, "under_way": 4, "completed": 0, "failed": 0}:
                    metrics = await asyncio.to_thread(gateway.metrics)
                    states = ("waiting", "under_way", "completed", "failed")
                    shown = {state: metrics.value("sluice_batch_job_lines", state=state) for state in states}
            go_on.set()
            await until(sdk, batch.id, "completed")
        await asyncio.to_thread(gateway.stop)


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_batch_survives_kills(upstream: FaultUpstream, tmp_path: Path, workers: int) -> None:
    upstream.always(replies.ordinary)
    config = batching(upstream.url, tmp_path, upstream={"max_concurrency": SLOTS}, server={"workers": workers})
    async with AsyncExitStack() as stack:
        gateway = await begun(stack, config, tmp_path)
        async with client_of(gateway.url) as sdk:
            batch = await submitted(sdk, *map(line, range(LINES)))
        for part in KILLS:
            await killed_after(upstream, part, gateway)
            gateway = await begun(stack, config, tmp_path)
        async with client_of(gateway.url) as sdk:
            batch = await until(sdk, batch.id, "completed", within=60.0)
            assert (batch.request_counts.completed, batch.request_counts.failed) == (LINES, 0)
            assert set(await results(sdk, batch.output_file_id)) == {f"line-{number}" for number in range(LINES)}
            assert batch.usage.total_tokens == 7 * LINES
        await asyncio.to_thread(gateway.stop)
    assert len(upstream.calls) <= LINES + len(KILLS) * SLOTS  # each kill: the lines under way, one to a slot
    assert [*(tmp_path / "batches/logs").iterdir()] == []
