"""A fake upstream for lists of inputs: a call costs so much, an item so little, and few go at a time.

`python -m benchmarks.list_upstream PORT`. The vector of an item begins with the length of its text.
"""

import asyncio
import json
from collections import deque

import uvloop

from benchmarks.arguments import arguments
from benchmarks.upstream import MODELS, Upstream, whole

SLOTS, CALL_S, ITEM_S = 4, 0.020, 0.0005
WIDTH = 64


class Engine:
    """Who is served, and who waits for that."""

    def __init__(self) -> None:
        self._free = SLOTS
        self._waiting: deque[Connection] = deque()

    def ask(self, connection: "Connection") -> None:
        """Serve it now or in its turn."""
        if self._free:
            self._free -= 1
            self._begin(connection)
        else:
            self._waiting.append(connection)

    def _begin(self, connection: "Connection") -> None:
        seconds = CALL_S + ITEM_S * len(connection.items)
        asyncio.get_running_loop().call_later(seconds, self._end, connection)

    def _end(self, connection: "Connection") -> None:
        connection.answer()
        if self._waiting:
            self._begin(self._waiting.popleft())
        else:
            self._free += 1


class Connection(Upstream):
    """One connection of a gateway or client."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.items: list[str] = []

    def on_message_complete(self) -> None:
        body, self.body = self.body, bytearray()
        if self.parser.get_method() == b"GET":
            self.transport.write(MODELS)
            return
        given = json.loads(body)["input"]
        self.items = [given] if isinstance(given, str) else given
        self._engine.ask(self)

    def answer(self) -> None:
        """Its time is over."""
        data = [
            {"object": "embedding", "index": at, "embedding": [float(len(item))] + [0.125] * (WIDTH - 1)}
            for at, item in enumerate(self.items)
        ]
        usage = {"prompt_tokens": 8 * len(data), "total_tokens": 8 * len(data)}
        self.transport.write(whole({"object": "list", "model": "tiny", "data": data, "usage": usage}))


async def serve(port: int) -> None:
    """Listen on the loopback until the process is ended."""
    engine = Engine()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(engine), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(*arguments(__doc__, port=int)))
