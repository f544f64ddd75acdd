"""The machine itself in trouble: a full disk, a log that nobody reads, more bodies than memory can hold."""

import asyncio
import contextlib
import json
import resource
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from doubles import replies
from doubles.gateway import ROOT, GatewayProcess, Metrics, StartGateway
from doubles.rawclient import RawClient, call
from doubles.script import NEVER, Until, compact, frame
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, ask
from doubles.waiting import eventually

from gateway.telemetry.nonblocking_output import MAX_BUFFERED

PIPE = 64 * 1024
SHORTEST_LINE = 200
LARGE = 256 * 1024
PIECE = 16 * 1024
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
HEAD_CHUNKED = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


def large(size: int = LARGE) -> bytes:
    """A body of just so many bytes."""
    return compact(C0) + b" " * (size - len(compact(C0)))


class Unread:
    """`sluice serve` whose stderr is a pipe, read only when a test reads it."""

    def __init__(self, config: dict[str, object], folder: Path) -> None:
        file = folder / "sluice.yaml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(file)]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
        while (line := self.line())["msg"] != "listening":
            pass
        self.port, self.admin_port = (int(line[name].rpartition(":")[2]) for name in ("url", "admin"))

    def line(self) -> dict[str, str]:
        """The next one that was logged."""
        assert self.process.stderr
        line = self.process.stderr.readline()
        assert line, "it ended"
        return dict(json.loads(line))

    def read_on(self) -> list[dict[str, str]]:
        """All lines up to the one that tells of dropped ones."""
        lines = [self.line()]
        while not lines[-1]["msg"].startswith("log lines were dropped"):
            lines.append(self.line())
        return lines

    async def dropped(self) -> int:
        """Lines, as the metric has them."""
        answer = await call(self.admin_port, "GET", "/metrics")
        return int(Metrics(answer.body.decode()).value("sluice_log_lines_dropped_total"))


@pytest.fixture
def unread(upstream: FaultUpstream, tmp_path: Path) -> Iterator[Unread]:
    one = Unread(settings(upstream.url), tmp_path)
    yield one
    one.process.kill()
    one.process.wait()
    assert one.process.stderr
    one.process.stderr.close()


async def test_row_63_a_log_that_nobody_reads_holds_no_call_up(unread: Unread) -> None:
    async with await RawClient.open(unread.port) as client:
        for _ in range(2 * (MAX_BUFFERED + PIPE) // SHORTEST_LINE):
            await client.request("GET", "/nowhere")
            assert (await client.response()).status == 404
        dropped = await unread.dropped()
        assert dropped > 0
        await client.request("POST", CHAT, C0)
        assert (await client.response()).status == 200
    lines = await asyncio.to_thread(unread.read_on)
    assert {line["msg"] for line in lines[:-1]} == {"request"}
    assert int(lines[-1]["lines"]) == await unread.dropped() >= dropped
    # And it is as it was.
    assert (await ask(unread.port, C0)).status == 200
    assert (await asyncio.to_thread(unread.line))["msg"] == "request"


@contextlib.contextmanager
def full_disk(pid: int) -> Iterator[None]:
    """No file of this process may grow: its writes fail as on a full disk."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


def requests_in(usage: Path) -> int:
    with contextlib.closing(sqlite3.connect(usage)) as connection:
        return int(connection.execute("SELECT sum(requests) FROM usage").fetchone()[0] or 0)


def a_write_fails(gateway: GatewayProcess) -> None:
    """Waits for it."""
    until = time.monotonic() + 10
    while not gateway.metrics().value("sluice_usage_write_errors_total"):
        assert time.monotonic() < until


async def test_row_63_on_a_full_disk_calls_are_served_and_nothing_is_lost(
    upstream: FaultUpstream, tmp_path: Path
) -> None:
    """Neither usage nor, up to what is kept, a line of the log."""
    usage = tmp_path / "usage.db"
    config = settings(upstream.url, usage={"store": "sqlite", "path": str(usage)})
    with GatewayProcess(config, tmp_path) as gateway:
        assert (await ask(gateway.port, C0)).status == 200
        await eventually(lambda: requests_in(usage) == 1, "the first one written")
        with full_disk(gateway.process.pid):
            before = gateway.log
            for _ in range(20):
                assert (await ask(gateway.port, C0)).status == 200
            report = await call(gateway.admin_port, "GET", "/admin/usage")
            assert report.json()[0]["requests"] == 21
            await asyncio.to_thread(a_write_fails, gateway)
            assert requests_in(usage) == 1
            assert gateway.log == before
        await eventually(lambda: requests_in(usage) == 21, "all of them written")
        await eventually(lambda: gateway.log.count('"msg":"request"') == 21, "and logged")
        assert gateway.log.count('"msg":"usage cannot be written') == 1
        assert gateway.metrics().value("sluice_log_lines_dropped_total") == 0


# Memory.


async def test_row_62_bodies_beyond_what_may_be_held_are_refused_before_they_are_read(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = settings(upstream.url, server={"max_body": LARGE, "max_body_memory": 3 * LARGE})
    gateway = await start_gateway(config)
    go_on = asyncio.Event()
    upstream.always(lambda call: [Until(go_on), *replies.ordinary(call)])
    held = [asyncio.create_task(ask(gateway.port, large())) for _ in range(3)]
    await upstream.holding(3)
    async with await RawClient.open(gateway.port) as client:
        await client.send(HEAD % LARGE + b"{")
        refused = await client.response()
    assert (refused.status, refused.error["code"]) == (503, "memory_full")
    assert refused.header("retry-after") == "1"
    # Who needs next to nothing is served, and so are all when there is room again.
    small = asyncio.create_task(ask(gateway.port, C0))
    await upstream.holding(4)
    go_on.set()
    assert {answer.status for answer in await asyncio.gather(*held, small)} == {200}
    assert (await ask(gateway.port, large())).status == 200
    await gateway.counted("sluice_requests_total", 1, outcome="shed", status="503")


async def test_row_62_what_has_come_counts_and_not_what_was_promised(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = settings(upstream.url, server={"max_body": LARGE, "max_body_memory": LARGE + PIECE})
    gateway = await start_gateway(config)
    async with await RawClient.open(gateway.port) as promising, await RawClient.open(gateway.port) as keeping:
        await promising.send(HEAD % LARGE + b"{")
        assert (await ask(gateway.port, large())).status == 200
        # And while half of it is here there is no room for a whole one, with or without a length.
        await promising.send(b" " * (LARGE // 2))
        await keeping.send(HEAD_CHUNKED)
        for _ in range(LARGE // PIECE):
            keeping.writer.write(frame(b" " * PIECE))
        assert (await keeping.response()).error["code"] == "memory_full"


@pytest.mark.parametrize("leaves", ["at once", "while it waits", "refused"])
async def test_row_62_whoever_is_gone_holds_nothing(
    upstream: FaultUpstream, start_gateway: StartGateway, leaves: str
) -> None:
    config = settings(upstream.url, server={"max_body": LARGE, "max_body_memory": LARGE})
    gateway = await start_gateway(config)
    async with await RawClient.open(gateway.port) as client:
        if leaves == "at once":
            await client.send(HEAD % LARGE + b"{" * (LARGE // 2))
        elif leaves == "while it waits":
            upstream.reply([NEVER])
            await client.request("POST", CHAT, large())
            await upstream.received(1)
        else:
            await client.request("POST", CHAT, b"x" * LARGE)
            assert (await client.response()).status == 400
    await gateway.counted("sluice_requests_total", 1)
    assert (await ask(gateway.port, large())).status == 200


async def test_row_62_memory_stays_bounded_whatever_is_sent(upstream: FaultUpstream, tmp_path: Path) -> None:
    """Eight times what may be held, all of it at once."""
    size, may = 2 * 2**20, 4
    config = settings(upstream.url, server={"max_body": size, "max_body_memory": may * size})
    go_on = asyncio.Event()
    upstream.always(lambda call: [Until(go_on), *replies.ordinary(call)])
    with GatewayProcess(config, tmp_path) as gateway:
        before = gateway.peak_rss()
        asking = [asyncio.create_task(ask(gateway.port, large(size))) for _ in range(8 * may)]
        await eventually(lambda: sum(not one.done() for one in asking) == upstream.in_flight, "all others refused", 10)
        grown = gateway.peak_rss() - before
        go_on.set()
        statuses = Counter([answer.status for answer in await asyncio.gather(*asking)])
        assert set(statuses) == {200, 503}
        assert 1 <= statuses[200] <= may
    assert grown <= 3 * may * size + 8 * may * 2**19  # and what aiohttp reads ahead on a connection
