"""Counters of several workers are the clients' own count, though a worker is killed halfway."""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

from doubles import replies
from doubles.gateway import GatewayProcess, Metrics
from doubles.rawclient import RawClient
from doubles.script import Until
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT
from doubles.waiting import eventually

CLIENTS, CALLS = 24, 30


class Client:
    """Asks one call after the other on one connection, and anew where a call breaks."""

    def __init__(self, port: int, seen: Counter[str]) -> None:
        self._port = port
        self._seen = seen

    async def ask(self, answers: int) -> None:
        """Until it has so many answers; between them it counts what broke."""
        client = await RawClient.open(self._port)
        while answers:
            try:
                await client.request("POST", CHAT, C0)
                answer = await client.response()
                whole = answer.complete and answer.status == 200
            except (OSError, asyncio.IncompleteReadError):
                whole = False
            self._seen["answered" if whole else "broken"] += 1
            answers -= whole
            if not whole:
                await client.close()
                client = await RawClient.open(self._port)
        await client.close()


async def test_counters_are_exact_with_a_worker_killed_halfway(upstream: FaultUpstream, tmp_path: Path) -> None:
    gate = asyncio.Event()
    upstream.always([Until(gate), *replies.chat()])
    seen: Counter[str] = Counter()
    with GatewayProcess(settings(upstream.url, server={"workers": 2}), tmp_path) as gateway:
        gate.set()
        await asyncio.gather(*(Client(gateway.port, seen).ask(CALLS) for _ in range(CLIENTS)))
        gate.clear()
        second = [asyncio.create_task(Client(gateway.port, seen).ask(CALLS)) for _ in range(CLIENTS)]
        # All of them wait for the upstream: no worker is between an answer and its count.
        await eventually(lambda: upstream.in_flight == CLIENTS, "all wait", within=10)
        os.kill(gateway.workers()[0], signal.SIGKILL)
        await eventually(lambda: "worker died" in gateway.log, "it is seen to be dead", within=10)
        gate.set()
        await asyncio.gather(*second)
        assert seen["answered"] == 2 * CLIENTS * CALLS
        assert seen["broken"] > 0
        metrics = await counted(gateway, seen["answered"])
        assert metrics.value("sluice_requests_total", status="200") == seen["answered"]
        assert metrics.value("sluice_request_duration_seconds_count", model="m-small") == seen["answered"]
        assert metrics.value("gen_ai_client_operation_duration_seconds_count") == seen["answered"]
        assert metrics.value("sluice_upstream_attempts_total", result="success") == seen["answered"]
        each = metrics.value("sluice_request_input_tokens_sum") / seen["answered"]
        assert metrics.value("sluice_tokens_total", type="input") == each * seen["answered"] > 0
        # Some broke before they got so far: on a connection that the dead worker had not taken yet.
        assert seen["answered"] < len(upstream.calls) <= seen["answered"] + seen["broken"]


async def counted(gateway: GatewayProcess, calls: int) -> Metrics:
    """A scrape after the last call has been counted, which happens after its last byte."""
    async with asyncio.timeout(10):
        while True:
            metrics = await asyncio.to_thread(gateway.metrics)
            if metrics.value("sluice_requests_total") >= calls:
                return metrics
