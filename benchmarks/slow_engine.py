"""`python -m benchmarks.slow_engine PORT SLOTS`: an engine with slots, which can stand still.

A call takes a slot for 100 ms on average, exponentially distributed, and waits in line for one; who leaves
is forgotten. SIGUSR1 makes it stand still and SIGUSR2 go on: calls are taken, and none gets further.
"""

import asyncio
import random
import signal
from collections import deque

import uvloop

from benchmarks.arguments import arguments
from benchmarks.upstream import MODELS, Upstream, whole

MEAN_S = 0.1
ANSWER = whole(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "fake-model",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}
        ],
        "usage": {"prompt_tokens": 8, "completion_tokens": 1, "total_tokens": 9},
    }
)


class Engine:
    """Who is served, and who waits for that. Work that is done while it stands still comes out after it."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: deque[Connection] = deque()
        self._source = random.Random(1)
        self._still = False
        self._held: list[Connection] = []

    def ask(self, connection: "Connection") -> None:
        """Serve it now or in its turn."""
        self._waiting.append(connection)
        self._go_on()

    def stand(self, still: bool) -> None:
        """Stand still, or go on."""
        self._still = still
        if not still:
            for connection in self._held:
                self._end(connection)
            self._held.clear()
            self._go_on()

    def _go_on(self) -> None:
        while self._free and self._waiting and not self._still:
            connection = self._waiting.popleft()
            if connection.gone:
                continue
            self._free -= 1
            seconds = self._source.expovariate(1 / MEAN_S)
            asyncio.get_running_loop().call_later(seconds, self._end, connection)

    def _end(self, connection: "Connection") -> None:
        if self._still:
            self._held.append(connection)
            return
        self._free += 1
        if not connection.gone:
            connection.transport.write(ANSWER)
        self._go_on()


class Connection(Upstream):
    """One connection of the gateway."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.gone = False

    def connection_lost(self, error: Exception | None) -> None:
        self.gone = True

    def on_message_complete(self) -> None:
        self.body = bytearray()
        if self.parser.get_method() == b"GET":
            self.transport.write(MODELS)
        else:
            self._engine.ask(self)


async def serve(port: int, slots: int) -> None:
    """Listen on the loopback until the process is ended."""
    engine, loop = Engine(slots), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, engine.stand, True)
    loop.add_signal_handler(signal.SIGUSR2, engine.stand, False)
    server = await loop.create_server(lambda: Connection(engine), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(*arguments(__doc__, port=int, slots=int)))
