"""Prompts, users and ids that never come again leave nothing behind, whatever remembers things (OPS-09)."""

import gc
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import StartGateway
from doubles.rawclient import RawClient
from doubles.routed import routed
from doubles.settings import AUTH, KEY
from doubles.upstream import FaultUpstream
from doubles.vocabulary import CHAT, EMBEDDINGS

from gateway.cache.key import RequestDigests
from gateway.routing.prefix_affinity import PrefixMap

SOME = 200
LONG = "water and mills " * 100


def remembering(url: str, folder: Path) -> dict[str, Any]:
    """Two replicas and a fallback, prices, a ledger, a small cache, batches, an inspector, a key with every limit."""
    usage = {"store": "sqlite", "path": str(folder / "usage.db")}
    cache = {"enabled": True, "max_bytes": "64KiB"}
    config = routed(url, url, fallbacks=(url,), usage=usage, cache=cache, batching={"max_wait": "1ms"})
    config["inspector"] = {"calls": SOME // 4}
    limits = {"rpm": 10**6, "tpm": 10**9, "concurrency": 100, "usd_per_day": 10**6}
    config["keys"] = [{"name": "team-a", "key": KEY, "limits": limits}]
    for model in config["models"].values():
        for candidate in model["candidates"]:
            candidate["price"] = {"input": 1, "output": 2}
    config["models"]["m-small"]["route"] = "least_loaded"
    return config


def request(number: int) -> tuple[str, dict[str, Any]]:
    """Unlike all others in all that a client can choose: chats, streams and embeddings in turn."""
    text, user = f"{number} {LONG}", f"user-{number}"
    if number % 7 == 0:
        return EMBEDDINGS, {"model": "m-small", "input": text, "user": user}
    says = [{"role": "system", "content": text}, {"role": "user", "content": text}]
    stream = {"stream": True} if number % 3 == 0 else {}
    return CHAT, {"model": "m-small", "messages": says, "user": user, "temperature": 0, **stream}


async def test_ops_09_what_never_comes_again_is_not_remembered_for_ever(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both are full before it is measured; they are bounded by default too, at more than a test can send.
    for kind in (RequestDigests, PrefixMap):
        monkeypatch.setattr(kind.__init__, "__defaults__", (SOME // 4,))
    gateway = await start_gateway(remembering(upstream.url, tmp_path))

    async def send(first: int) -> int:
        async with await RawClient.open(gateway.port) as client:
            for number in range(first, first + SOME):
                if number % 5 == 0:
                    upstream.reply(replies.error(500))
                path, body = request(number)
                await client.request("POST", path, body, [AUTH, ("x-request-id", f"id-{number}")])
                assert (await client.response()).status in (200, 502)
                upstream.calls.clear()
        gc.collect()
        return sys.getallocatedblocks()

    held = [await send(begin * SOME) for begin in range(4)][1:]
    # Half of what it is if each leaves a single object; what is made once may fall into one of the two.
    assert min(later - earlier for earlier, later in pairwise(held)) < SOME // 2
