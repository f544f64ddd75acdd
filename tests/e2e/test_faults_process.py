"""A process that runs out of descriptors goes on with what it has, and takes new clients when it can."""

import asyncio
import resource
from contextlib import AsyncExitStack
from pathlib import Path

from doubles import replies
from doubles.gateway import GatewayProcess
from doubles.rawclient import RawClient
from doubles.routed import routed
from doubles.script import LAST_CHUNK, Until, frame, sse_head
from doubles.sse import contents
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0
from doubles.waiting import eventually

SPARE = 12


async def test_row_61_out_of_descriptors(upstream: FaultUpstream, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    events = replies.chat_events("one", "two")
    upstream.reply([sse_head(), frame(events[0]), Until(go_on), *map(frame, events[1:]), LAST_CHUNK])
    async with AsyncExitStack() as stack:
        gateway = stack.enter_context(GatewayProcess(routed(upstream.url), tmp_path))
        streaming = await stack.enter_async_context(await RawClient.open(gateway.port))
        await streaming.request("POST", CHAT, S0)
        answer = await streaming.head()
        await streaming.chunk(answer)
        limits = resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE)
        few = gateway.fds() + SPARE
        resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, (few, limits[1]))
        crowd = [await RawClient.open(gateway.port) for _ in range(3 * SPARE)]
        # Whoever is inside already is served to the end.
        go_on.set()
        await streaming.rest(answer)
        assert answer.complete
        assert contents(answer.body) == "onetwo"
        await streaming.request("GET", "/health")
        assert (await streaming.response()).status == 200
        assert gateway.process.poll() is None
        for one in crowd:
            await one.close()
        await eventually(lambda: gateway.fds() < few - SPARE // 2, "descriptors come back")
        new = await stack.enter_async_context(await RawClient.open(gateway.port))
        await new.request("POST", CHAT, C0)
        assert (await new.response()).status == 200
