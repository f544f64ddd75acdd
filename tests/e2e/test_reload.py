"""SIGHUP and changed files: `serve` takes a new config whole, or keeps the old one and says why."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from doubles import replies
from doubles.gateway import GatewayProcess
from doubles.rawclient import RawClient, call
from doubles.script import LAST_CHUNK, Until, frame, sse_head
from doubles.settings import AUTH, KEY, settings
from doubles.sse import contents
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0, ask
from doubles.waiting import eventually

NEW_KEY = "gw-key-that-is-new-1"
EVENTS = replies.chat_events("one", "two")


class Served:
    """A gateway process whose config is changed."""

    def __init__(self, gateway: GatewayProcess, folder: Path) -> None:
        self.gateway = gateway
        self.file = folder / "sluice.yaml"

    def write(self, config: Mapping[str, Any] | str) -> None:
        """Another config, at one stroke as careful editors do it."""
        new = self.file.with_name("new.yaml")
        new.write_text(config if isinstance(config, str) else yaml.safe_dump(dict(config)), encoding="utf-8")
        new.replace(self.file)

    async def state(self) -> tuple[float, float]:
        """The generation in force, and whether the last reload succeeded."""
        metrics = await asyncio.to_thread(self.gateway.metrics)
        return (metrics.value("sluice_config_generation"), metrics.value("sluice_config_reload_success"))

    async def becomes(self, generation: int, success: int, within: float = 10.0) -> None:
        """Waits for this state."""
        state = (-1.0, -1.0)
        try:
            async with asyncio.timeout(within):
                while state != (generation, success):
                    state = await self.state()
        except TimeoutError:
            raise AssertionError(f"{state}; {self.gateway.log[-2000:]}") from None

    async def hup(self, config: Mapping[str, Any] | str, generation: int, success: int = 1) -> None:
        """This config and SIGHUP; waits for what becomes of it."""
        self.write(config)
        self.gateway.process.send_signal(signal.SIGHUP)
        await self.becomes(generation, success)

    def said(self, message: str) -> list[dict[str, Any]]:
        """Lines of the log that begin with this."""
        lines = [json.loads(line) for line in self.gateway.log.splitlines() if line.startswith("{")]
        return [line for line in lines if line["msg"].startswith(message)]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Mapping[str, Any]], Served]]:
    """Starts the command with this config."""
    with ExitStack() as stack:
        yield lambda config: Served(stack.enter_context(GatewayProcess(config, tmp_path)), tmp_path)


def keyed(url: str, *names: str, **more: Any) -> dict[str, Any]:
    """A config with `KEY`, and with a key of its own for each of these names."""
    config = settings(url, **more)
    config["keys"] = [{"name": "team-a", "key": KEY}]
    config["keys"] += [{"name": name, "key": f"{NEW_KEY}{name}"} for name in names]
    return config


def auth(name: str) -> tuple[str, str]:
    return ("authorization", f"Bearer {NEW_KEY}{name}")


async def test_sighup_takes_the_new_config_and_says_what_has_changed(
    upstream: FaultUpstream, serve: Callable[..., Served]
) -> None:
    served = serve(keyed(upstream.url))
    port = served.gateway.port
    assert await served.state() == (1, 1)
    assert (await ask(port, C0, [auth("b")])).status == 401
    await served.hup(keyed(upstream.url, "b", upstream={"api_key": "up-secret-1"}, retry={"attempts": 3}), 2)
    assert (await ask(port, C0, [auth("b")])).status == 200
    assert upstream.calls[-1].header("authorization") == ["Bearer up-secret-1"]
    (line,) = served.said("config reloaded")
    assert (line["level"], line["generation"]) == ("info", 2)
    assert line["changed"] == ["keys.b", "upstreams.local", "retry"]
    assert not [secret for secret in (KEY, NEW_KEY, "up-secret-1") if secret in served.gateway.log]


@pytest.mark.parametrize("workers", [1, 2])
async def test_ops_14_a_bad_config_is_kept_out(
    upstream: FaultUpstream, serve: Callable[..., Served], workers: int
) -> None:
    good = keyed(upstream.url, server={"workers": workers})
    two = {**good, "retry": {"atempts": 1, "budget": "much"}, "keys": [{"name": "b", "key": f"{NEW_KEY}b"}]}
    served = serve(good)
    generation = 1
    for bad, places in (
        (two, ["retry.atempts", "retry.budget"]),
        ("server: [", [str(served.file)]),
        ("", [str(served.file)]),
        ({**good, "models": {}}, ["models"]),
        ({**good, "upstreams": None}, ["upstreams"]),
    ):
        before = len(served.said("config not reloaded"))
        await served.hup(bad, generation, 0)
        told = [one["msg"].split(": ")[1] for one in served.said("config not reloaded")[before:]]
        assert [place for place in places if place not in told] == []
        assert (await ask(served.gateway.port, C0, [AUTH])).status == 200
        assert (await ask(served.gateway.port, C0, [auth("b")])).status == 401
        generation += 1
        await served.hup(good, generation)


@pytest.mark.parametrize("workers", [1, 2])
async def test_what_takes_a_restart_is_named_and_keeps_all_of_the_old_config(
    upstream: FaultUpstream, serve: Callable[..., Served], workers: int
) -> None:
    served = serve(keyed(upstream.url, server={"workers": workers}))
    config = keyed(upstream.url, "b", server={"workers": 3, "port": 9}, usage={"store": "sqlite"})
    await served.hup(config, 1, 0)
    told = [line["msg"].split(": ")[1:] for line in served.said("config not reloaded")]
    assert [place for place, _ in told] == ["server.port", "server.workers", "usage.store"]
    assert {why for _, why in told} == {"has changed, which needs a restart"}
    assert (await ask(served.gateway.port, C0, [auth("b")])).status == 401
    assert (await ask(served.gateway.port, C0, [AUTH])).status == 200


async def test_a_changed_file_is_noticed(upstream: FaultUpstream, serve: Callable[..., Served]) -> None:
    served = serve(keyed(upstream.url))
    served.write(keyed(upstream.url, "b"))
    await served.becomes(2, 1)
    assert (await ask(served.gateway.port, C0, [auth("b")])).status == 200
    served.file.unlink()
    await served.becomes(2, 0)
    assert "no such file" in served.said("config not reloaded")[0]["msg"]
    assert (await ask(served.gateway.port, C0, [auth("b")])).status == 200


async def calls(port: int, over: asyncio.Event, bodies: list[dict[str, Any]]) -> int:
    """Calls one after the other on one connection until it is over; each must be answered whole."""
    done = 0
    async with await RawClient.open(port) as client:
        while not over.is_set():
            body = bodies[done % len(bodies)]
            await client.request("POST", CHAT, body, [AUTH])
            answer = await client.response()
            assert answer.status == 200, answer
            assert answer.complete
            if "stream" in body:
                assert contents(answer.body) == "pong"
            done += 1
    return done


@pytest.mark.parametrize(("workers", "reloads"), [(1, 100), (2, 20)])
async def test_fault_65_reloads_under_load_lose_nothing(
    upstream: FaultUpstream, serve: Callable[..., Served], workers: int, reloads: int
) -> None:
    def config(number: int) -> dict[str, Any]:
        own = {"api_key": f"up-{number // 2}", "max_concurrency": 2 + number % 3}
        return keyed(upstream.url, f"n{number}", upstream=own, server={"workers": workers})

    served = serve(config(0))
    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        clients = [group.create_task(calls(served.gateway.port, over, [C0, S0])) for _ in range(6)]
        for number in range(1, reloads + 1):
            await served.hup(config(number), number + 1)
        over.set()
    total = sum(client.result() for client in clients)
    assert total > reloads
    assert len(upstream.calls) == total
    assert (await ask(served.gateway.port, C0, [auth(f"n{reloads}")])).status == 200
    assert (await ask(served.gateway.port, C0, [auth(f"n{reloads - 1}")])).status == 401
    metrics = await asyncio.to_thread(served.gateway.metrics)
    assert metrics.value("sluice_requests_total", outcome="ok") == total + 1


async def test_streams_over_a_reload_end_whole(upstream: FaultUpstream, serve: Callable[..., Served]) -> None:
    go_on = asyncio.Event()
    upstream.always([sse_head(), frame(EVENTS[0]), Until(go_on), *map(frame, EVENTS[1:]), LAST_CHUNK])
    served = serve(keyed(upstream.url))
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(await RawClient.open(served.gateway.port)) for _ in range(10)]
        answers = []
        for client in clients:
            await client.request("POST", CHAT, S0, [AUTH])
            answers.append(await client.head())
            await client.chunk(answers[-1])
        await served.hup(keyed("http://127.0.0.1:1/v1"), 2)
        go_on.set()
        for client, answer in zip(clients, answers, strict=True):
            await client.rest(answer)
            assert answer.complete
            assert contents(answer.body) == "onetwo"


async def test_all_workers_take_it_and_so_does_one_that_is_started_later(
    upstream: FaultUpstream, serve: Callable[..., Served]
) -> None:
    served = serve(keyed(upstream.url, server={"workers": 2}))
    port = served.gateway.port
    await served.hup(keyed(upstream.url, "b", server={"workers": 2}), 2)
    assert {(await ask(port, C0, [auth("b")])).status for _ in range(20)} == {200}
    before = served.gateway.workers()
    os.kill(before[0], signal.SIGKILL)
    await eventually(
        lambda: len(served.gateway.workers()) == 2 and before[0] not in served.gateway.workers(),
        "two workers again",
        within=15,
    )
    await served.hup(keyed(upstream.url, "b", "c", server={"workers": 2}), 3)
    assert {(await ask(port, C0, [auth("c")])).status for _ in range(20)} == {200}
    assert (await call(served.gateway.admin_port, "GET", "/readyz")).status == 200
    # A SIGHUP that reaches the workers too, as a signal to the whole group does, is no end of any.
    for pid in served.gateway.workers():
        os.kill(pid, signal.SIGHUP)
    await served.hup(keyed(upstream.url, server={"workers": 2}), 4)
    assert {(await ask(port, C0, [auth("c")])).status for _ in range(20)} == {401}
    assert len(served.said("worker died")) == 1


async def test_a_worker_that_starts_while_a_config_comes_has_the_new_one(
    upstream: FaultUpstream, serve: Callable[..., Served]
) -> None:
    served = serve(keyed(upstream.url, server={"workers": 2}))
    os.kill(served.gateway.workers()[0], signal.SIGKILL)
    await eventually(lambda: len(served.said("worker died")) == 1, "its death is noticed")
    await served.hup(keyed(upstream.url, "b", server={"workers": 2}), 2)
    await eventually(lambda: len(served.gateway.workers()) == 2, "two workers again", within=15)
    # One more, which waits for the one that starts.
    await served.hup(keyed(upstream.url, "b", "c", server={"workers": 2}), 3)
    assert {(await ask(served.gateway.port, C0, [auth("b")])).status for _ in range(20)} == {200}


async def test_a_worker_that_is_killed_meanwhile_is_no_reason_against_a_config(
    upstream: FaultUpstream, serve: Callable[..., Served]
) -> None:
    served = serve(keyed(upstream.url, server={"workers": 2}))
    os.kill(served.gateway.workers()[0], signal.SIGKILL)
    await served.hup(keyed(upstream.url, "b", server={"workers": 2}), 2)
    await eventually(lambda: len(served.gateway.workers()) == 2, "two workers again", within=15)
    assert {(await ask(served.gateway.port, C0, [auth("b")])).status for _ in range(20)} == {200}
