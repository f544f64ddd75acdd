"""Long answers of the admin port: written piece by piece, between the calls that the event loop serves."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import ClassVar, Final

import msgspec
from aiohttp import web

from gateway.core.clock import Clock, monotonic

_TURN_S: Final = 0.001
_PAUSE_S: Final = 0.002


class Pacer:
    """Interrupts long work after each millisecond: calls get two thirds of the event loop.

    All long work of the process shares the rest: its turns never follow one another without a pause.
    """

    _free_at: ClassVar[float] = 0.0
    """When the next turn may begin."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._began = clock()

    @property
    def over(self) -> bool:
        """Whether this turn has taken its time."""
        return self._clock() - self._began >= _TURN_S

    async def pause(self) -> None:
        """Let others run."""
        now = self._clock()
        turn = max(now + _PAUSE_S, Pacer._free_at)
        Pacer._free_at = turn + _TURN_S + _PAUSE_S
        await asyncio.sleep(turn - now)
        self._began = self._clock()


async def respond(
    request: web.Request, pieces: AsyncIterable[str], headers: dict[str, str], pacer: Pacer
) -> web.StreamResponse:
    """Answer with these pieces, in UTF-8. One may be empty: it is a place to pause."""
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    waiting: list[str] = []
    async for piece in pieces:
        waiting.append(piece)
        if pacer.over:
            if text := "".join(waiting):
                await response.write(text.encode())
            waiting.clear()
            await pacer.pause()
    await response.write_eof("".join(waiting).encode())
    return response


class LongObject:
    """A JSON object whose members are made while it is sent."""

    def __init__(self, members: Iterable[tuple[str, object]]) -> None:
        self._members = members

    async def pieces(self) -> AsyncIterator[str]:
        """The object as text."""
        before = "{"
        for name, member in self._members:
            yield f"{before}{_json(name)}:{_json(member)}"
            before = ","
        yield "}" if before == "," else "{}"

    async def plain(self) -> dict[str, object]:
        """The object as plain data."""
        found, pacer = {}, Pacer()
        for name, member in self._members:
            found[name] = msgspec.to_builtins(member)
            if pacer.over:
                await pacer.pause()
        return found


class LongArray:
    """A JSON array whose items are made while it is sent."""

    def __init__(self, items: Iterable[object] | AsyncIterator[object]) -> None:
        self._items = items

    async def pieces(self) -> AsyncIterator[str]:
        """The array as text."""
        before = "["
        async for item in self._each():
            yield f"{before}{_json(item)}"
            before = ","
        yield "]" if before == "," else "[]"

    async def plain(self) -> list[object]:
        """The array as plain data."""
        found, pacer = [], Pacer()
        async for item in self._each():
            found.append(msgspec.to_builtins(item))
            if pacer.over:
                await pacer.pause()
        return found

    async def _each(self) -> AsyncIterator[object]:
        if isinstance(self._items, AsyncIterator):
            async for item in self._items:
                yield item
        else:
            for item in self._items:
                yield item


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
