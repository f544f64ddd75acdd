"""Keys with limits, requests made with them, answers with usage, and a frozen clock."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from doubles.gateway import InProcessGateway
from doubles.rawclient import Answer
from doubles.script import DONE, Step, compact, full, piece, stop, stream, usage
from doubles.settings import AUTH, KEY, OTHER_KEY, settings
from doubles.vocabulary import C0, CHAT, ask

OTHER = ("authorization", f"Bearer {OTHER_KEY}")


def limited(
    url: str,
    limits: Mapping[str, Any],
    *,
    other: Mapping[str, Any] | None = None,
    price: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """`settings` where `KEY` (team-a) has these limits and `OTHER_KEY` (team-b) these `other` ones, or none.

    `price` is that of `m-small`, in USD per million tokens.
    """
    config = settings(url, **more)
    config["keys"] = [
        {"name": "team-a", "key": KEY, "limits": dict(limits)},
        {"name": "team-b", "key": OTHER_KEY, "limits": dict(other or {})},
    ]
    if price is not None:
        config["models"]["m-small"]["candidates"][0]["price"] = dict(price)
    return config


async def asked(
    port: int,
    body: bytes | Mapping[str, Any] = C0,
    headers: Iterable[tuple[str, str]] = (),
    path: str = CHAT,
    key: tuple[str, str] = AUTH,
) -> Answer:
    """One call with team-a's key, or with another."""
    return await ask(port, body, [key, *headers], path)


def counted(prompt: int, completion: int, **counts: Any) -> dict[str, Any]:
    """A usage object."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        **counts,
    }


def used(prompt: int, completion: int, **counts: Any) -> list[Step]:
    """A whole answer, to whichever endpoint, that says so many tokens were used."""
    message = {"role": "assistant", "content": "pong"}
    choice = {"index": 0, "message": message, "text": "pong", "finish_reason": "stop"}
    return [
        full(
            compact(
                {
                    "id": "c1",
                    "object": "list",
                    "model": "up-small",
                    "choices": [choice],
                    "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
                    "usage": counted(prompt, completion, **counts),
                }
            )
        )
    ]


def used_stream(prompt: int, completion: int) -> list[Step]:
    """A stream that says so."""
    return stream(piece("po"), piece("ng"), stop(), usage(prompt, completion), DONE)


class FrozenClock:
    """The clock of gateways started after it. Time passes only when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = time.monotonic()
        self._unix = 1_795_000_000.0 - self.now  # 2026-11-18, a little after 11:06 UTC
        clocks = {"clock": lambda: self.now, "unix": lambda: self._unix + self.now}
        monkeypatch.setattr(InProcessGateway, "clocks", clocks)

    def passes(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += seconds
