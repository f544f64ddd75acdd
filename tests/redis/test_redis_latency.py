"""A Redis slower than its timeout counts as down: no caller waits, and the log says it once."""

import asyncio
import logging
from collections import Counter

import pytest
from doubles.waiting import eventually
from kit.fake_resp import FakeResp, ordinary
from kit.linked import ask, link_to

from gateway.redis.command import RedisFailure


async def test_ops_10_100_ms_of_latency_delay_no_caller_and_fill_no_log(caplog: pytest.LogCaptureFixture):
    counted: Counter[str] = Counter()
    caplog.set_level(logging.DEBUG, "sluice")
    async with FakeResp(ordinary) as slow:
        link = link_to(slow.url, counted, timeout=0.02, retry_s=0.01)
        await link.start()
        slow.delay = 0.1
        with pytest.raises(RedisFailure):
            await ask(link, b"x")
        # It is retried again and again without a caller waiting: a rejection takes no turn of the loop.
        before = counted["timeout"]
        for tries in range(1, 4):
            await eventually(lambda tries=tries: counted["timeout"] >= before + tries, "another try")
            for _ in range(300):
                with pytest.raises(RedisFailure) as found:
                    ask(link, b"x").send(None)
                assert found.value.kind == "down"
        assert not link.up
        assert [one.message for one in caplog.records] == ["redis is up", "redis is down"]
        slow.delay = 0.0
        await eventually(lambda: link.up, "it is used again", 2.0)
        texts = [b"%d" % number for number in range(300)]
        assert await asyncio.gather(*(ask(link, text) for text in texts)) == texts
        assert [one.message for one in caplog.records] == ["redis is up", "redis is down", "redis is up"]
        await link.stop()
