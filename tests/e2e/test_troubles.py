"""Troubles planted one by one: the inspector names the cause, in the words that docs/inspector.md promises."""

import asyncio
import re
from asyncio import Event
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.limited import FrozenClock
from doubles.rawclient import RawClient, call
from doubles.script import FIN, NEVER, RST, Until, frame, full, piece, sse_head
from doubles.settings import AUTH, KEY, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0, ask
from kit.pages import ROOT, table

Prepared = dict[str, Any]


@dataclass
class Scene:
    """A gateway before an upstream and a spare one, on a clock that the test moves."""

    gateway: InProcessGateway
    upstream: FaultUpstream
    spare: FaultUpstream
    clock: FrozenClock

    async def ask(self, body: Any = C0, key: tuple[str, str] = AUTH, id: str = "planted") -> int:
        """A call with this id; gives the status."""
        return (await ask(self.gateway.port, body, [key, ("x-request-id", id)])).status

    async def held(self, body: Any, id: str) -> tuple[RawClient, Event]:
        """A call that the upstream holds until the event."""
        go_on = Event()
        answer = replies.chat_stream("pong") if body.get("stream") else replies.chat()
        self.upstream.reply([Until(go_on), *answer])
        client = await RawClient.open(self.gateway.port)
        await client.request("POST", CHAT, body, [AUTH, ("x-request-id", id)])
        await self.upstream.received(len(self.upstream.calls) + 1)
        return client, go_on


def limits(**of: Any) -> Callable[[Prepared], None]:
    def apply(config: Prepared) -> None:
        config["keys"][0]["limits"] = of

    return apply


def with_spare(**local: Any) -> Callable[[Prepared], None]:
    """A second candidate; `local` are further fields of the first one."""

    def apply(config: Prepared) -> None:
        config["models"]["m-small"]["candidates"] = [
            {"upstream": "local", "model": "up-small", **local},
            {"upstream": "spare", "model": "up-small"},
        ]

    return apply


def field(path: str, value: Any) -> Callable[[Prepared], None]:
    def apply(config: Prepared) -> None:
        *parents, last = path.split(".")
        for name in parents:
            config = config.setdefault(name, {})
        config[last] = value

    return apply


def both(*changes: Callable[[Prepared], None]) -> Callable[[Prepared], None]:
    def apply(config: Prepared) -> None:
        for change in changes:
            change(config)

    return apply


async def just(scene: Scene) -> None:
    await scene.ask()


async def twice(scene: Scene) -> None:
    await scene.ask(id="first")
    await scene.ask()


async def asking_twice(scene: Scene) -> None:
    await scene.ask({**C0, "temperature": 0}, id="first")
    await scene.ask({**C0, "temperature": 0})


def asking(body: Any, key: tuple[str, str] = AUTH) -> Callable[[Scene], Awaitable[None]]:
    async def plant(scene: Scene) -> None:
        await scene.ask(body, key)

    return plant


def answering(*scripts: Any, body: Any = C0) -> Callable[[Scene], Awaitable[None]]:
    async def plant(scene: Scene) -> None:
        scene.upstream.reply(*scripts)
        await scene.ask(body)

    return plant


async def beside_another(scene: Scene) -> None:
    client, go_on = await scene.held(C0, "first")
    async with client:
        await scene.ask()
        go_on.set()
        await client.response()


async def behind_another(scene: Scene) -> None:
    client, go_on = await scene.held(C0, "first")
    async with client:
        second = asyncio.create_task(scene.ask())
        await scene.gateway.counted("sluice_upstream_queue_depth", 1)
        scene.clock.passes(3.0)
        go_on.set()
        await client.response()
        await second


def slowly(body: Any) -> Callable[[Scene], Awaitable[None]]:
    async def plant(scene: Scene) -> None:
        client, go_on = await scene.held(body, "planted")
        async with client:
            scene.clock.passes(4.0)
            go_on.set()
            await client.response()

    return plant


async def leaving(scene: Scene) -> None:
    scene.upstream.reply([NEVER])
    client = await RawClient.open(scene.gateway.port)
    async with client:
        await client.request("POST", CHAT, C0, [AUTH, ("x-request-id", "planted")])
        await scene.upstream.received(1)


async def once_the_breaker_is_open(scene: Scene) -> None:
    scene.upstream.always([full(b"{}", 500)])
    for number in range(2):
        await scene.ask(id=f"before-{number}")
    await scene.ask()


CUT = full(
    b'{"id":"c","object":"chat.completion","created":1,"model":"up-small","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"x"},"finish_reason":"length"}],"usage":{"prompt_tokens":1,'
    b'"completion_tokens":1,"total_tokens":2}}'
)
TOOLS = {**C0, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}
PRICED = {"price": {"input": 1, "output": 1}}
DEAR = {"price": {"input": 9, "output": 9}}
GONE = "http://127.0.0.1:1/v1"


def dear(config: Prepared) -> None:
    cheap = {"upstream": "spare", "model": "up-small", **PRICED}
    config["models"]["m-small"]["candidates"] = [{"upstream": "local", "model": "up-small", **DEAR}, cheap]


def fallback(config: Prepared) -> None:
    config["models"]["m-other"] = {"candidates": [{"upstream": "spare", "model": "up-other"}]}
    config["models"]["m-small"]["fallbacks"] = ["m-other"]


def nothing(config: Prepared) -> None:
    """The config as it is."""


TROUBLES: dict[str, tuple[Callable[[Prepared], None], Callable[[Scene], Awaitable[None]]]] = {
    "a wrong key": (nothing, asking(C0, ("authorization", "Bearer wrong-key-0000"))),
    "a model that does not exist": (nothing, asking({**C0, "model": "gpt-9"})),
    "a model that the key may not use": (lambda config: config["keys"][0].update(models=["m-embed"]), just),
    "a broken body": (nothing, asking(b'{"model": ')),
    "too many requests of a key": (limits(rpm=1), twice),
    "too many requests of a key at once": (limits(concurrency=1), beside_another),
    "too many tokens of a key": (limits(tpm=12), twice),
    "a request larger than the key's limit": (limits(tpm=3), just),
    "a budget that is spent": (both(dear, limits(usd_per_day="0.00001")), twice),
    "an upstream that is not there": (field("upstreams.local.base_url", GONE), just),
    "an upstream that refuses the gateway's key": (nothing, answering(replies.error(401, "no"))),
    "an upstream that limits the gateway": (nothing, answering(replies.error(429, "slow down"))),
    "an upstream that fails, and a spare one": (
        both(with_spare(), field("retry.attempts", 2)),
        answering([full(b"{}", 500)]),
    ),
    "an upstream that dies": (nothing, answering([RST], [RST])),
    "an upstream that answers nonsense": (nothing, answering([full(b"<html>hello</html>")])),
    "an open circuit breaker": (
        both(with_spare(), field("upstreams.local.breaker", {"failures": 2, "open_for": "60s"})),
        once_the_breaker_is_open,
    ),
    "a stream that breaks off": (nothing, answering([sse_head(), frame(piece("half")), FIN], body=S0)),
    "a full upstream": (field("upstreams.local.max_concurrency", 1), behind_another),
    "a full queue": (
        both(field("upstreams.local.max_concurrency", 1), field("server.max_queue", 0)),
        beside_another,
    ),
    "a slow engine": (nothing, slowly(C0)),
    "a slow first token": (nothing, slowly(S0)),
    "a client that leaves": (nothing, leaving),
    "a candidate without tools": (with_spare(capabilities=["vision"]), asking(TOOLS)),
    "a fallback model": (fallback, answering([full(b"{}", 500)])),
    "a dear candidate before a cheap one": (dear, just),
    "an answer cut short": (nothing, answering([CUT])),
    "an answer from the cache": (field("cache.enabled", True), asking_twice),
}
DOCUMENTED = {row[0]: row[1] for row in table(ROOT / "docs" / "inspector.md", "trouble | what the call says")}


def test_the_docs_name_every_trouble_that_is_tried():
    assert DOCUMENTED.keys() == TROUBLES.keys()
    assert len(TROUBLES) >= 20


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_the_call_names_its_trouble(
    trouble: str, clock: FrozenClock, upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    prepare, plant = TROUBLES[trouble]
    config = settings(upstream.url)
    config["keys"] = [{"name": "team-a", "key": KEY}]
    config["upstreams"]["spare"] = {"base_url": other.url}
    prepare(config)
    scene = Scene(await start_gateway(config), upstream, other, clock)
    await plant(scene)
    sentence = re.sub(r"\\\.\\\.\\\.", ".*", re.escape(DOCUMENTED[trouble].strip("`")))
    why = await ended(scene.gateway)
    assert any(re.fullmatch(sentence, one) for one in why), why


async def ended(gateway: InProcessGateway) -> list[str]:
    """The reasons of the planted call, once it has ended."""
    async with asyncio.timeout(20):
        while True:
            answer = await call(gateway.admin_port, "GET", "/admin/calls/planted")
            if answer.status == 200 and not answer.json()["call"]["summary"]["live"]:
                return list(answer.json()["why"])
            await asyncio.sleep(0.005)
