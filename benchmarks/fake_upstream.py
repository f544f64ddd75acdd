"""Fake upstreams for the benchmarks, on raw sockets, so that they are never what limits.

`python -m benchmarks.fake_upstream PROFILE PORT [SLOTS]` serves one of these profiles:

fast   Answers at once with bytes rendered ahead. A prompt that holds `chunks=N pace=Xms` gets a stream of N
       events, one write each; any other POST gets a chat answer, any GET the model list.
lists  Embeds lists of inputs: 20 ms a call and 0.5 ms an item, 4 calls at a time. The vector of an item begins
       with the length of its text.
chats  Answers chats of one token, singly or in batches, one after the other: 1.4 ms a call and 3 ms a conversation.
slow   Serves SLOTS calls at a time, each for 100 ms on average, exponentially distributed. The others queue, and
       a client that leaves the queue is forgotten. SIGUSR1 stops the engine: it accepts calls and finishes none;
       SIGUSR2 resumes it.

In a benchmark's process, `start_timed` serves a fourth one, which reports every call. Upstreams that bill, with
books of their own, are in `benchmarks.billing_providers`.
"""

import asyncio
import json
import re
import signal
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, cast

import httptools
import uvloop

from benchmarks.arguments import parser_of

PROFILES = ("fast", "lists", "chats", "slow")
CHAT_CALL_S, CHAT_ITEM_S = 0.0014, 0.003
LIST_SLOTS, LIST_CALL_S, LIST_ITEM_S, LIST_WIDTH = 4, 0.020, 0.0005, 64
SLOW_MEAN_S = 0.1

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n\r\n"
STREAM_PLAN = re.compile(rb"chunks=(\d+) pace=(\d+)ms")
WORD = " water through the mill"
TEXT = WORD * 15
STAMP = {"id": "chatcmpl-0123456789abcdef", "created": 1700000000, "model": "fake-model"}


def json_response(value: dict[str, Any]) -> bytes:
    """A complete JSON answer, head included."""
    body = json.dumps(value).encode()
    return HEAD % (b"application/json", b"Content-Length: %d" % len(body)) + body


def chat_response(text: str, prompt: int, completion: int) -> bytes:
    """A chat answer with this text and usage."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return json_response({**STAMP, "object": "chat.completion", "choices": [choice], "usage": usage})


def event(delta: dict[str, str], finish: str | None, after: bytes = b"") -> bytes:
    """One stream event (and what follows it) as one chunk of a chunked body."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    answer = {**STAMP, "object": "chat.completion.chunk", "choices": [choice]}
    data = b"data: " + json.dumps(answer).encode() + b"\n\n" + after
    return b"%x\r\n%b\r\n" % (len(data), data)


CHAT = chat_response(TEXT, 120, 60)
SHORT_CHAT = chat_response("yes", 8, 1)
MODELS = json_response({"object": "list", "data": [{"id": "fake-model", "object": "model", "owned_by": "bench"}]})
STREAM_HEAD = HEAD % (b"text/event-stream; charset=utf-8", b"Transfer-Encoding: chunked")
FIRST = STREAM_HEAD + event({"role": "assistant", "content": WORD}, None)
NEXT = event({"content": WORD}, None)
LAST = event({}, "stop", b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Stream:
    """Writes one stream, a chunk per turn of the loop or per beat of the pace."""

    __slots__ = ("count", "due", "loop", "pace", "sent", "transport")

    def __init__(self, transport: asyncio.Transport, count: int, pace: float) -> None:
        self.transport, self.count, self.pace, self.sent = transport, count, pace, 0
        self.loop = asyncio.get_running_loop()
        self.due = self.loop.time()

    def step(self) -> None:
        """Write the next chunk. Never two in one turn: the loop would join them into one packet."""
        if self.transport.is_closing():
            return
        self.sent += 1
        if self.sent == self.count:
            self.transport.write(LAST)
            return
        self.transport.write(FIRST if self.sent == 1 else NEXT)
        if self.pace:
            self.due += self.pace  # from the start, not from now: a late beat does not shift later ones
            self.loop.call_at(self.due, self.step)
        else:
            self.loop.call_soon(self.step)


class FastConnection(asyncio.Protocol):
    """One connection of the proxy; the httptools callbacks are the `on_` methods."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's class is not a subclass of it
        self.parser = httptools.HttpRequestParser(self)
        self.body = bytearray()

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        body, self.body = self.body, bytearray()
        if self.parser.get_method() == b"GET":
            self.transport.write(MODELS)
        else:
            self.answer(body)

    def answer(self, body: bytearray) -> None:
        """Answer a POST with this body."""
        # A search for the pattern takes milliseconds in a body of MBs, a search for bytes does not.
        if plan := STREAM_PLAN.match(body, max(0, body.find(b"chunks="))):
            Stream(self.transport, int(plan[1]), int(plan[2]) / 1000).step()
        else:
            self.transport.write(CHAT)


class SlotEngine:
    """Serves some calls at a time and queues the others.

    Work that ends while the engine is stopped is answered when it resumes.
    """

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._queue: deque[SlotConnection] = deque()
        self._stopped = False
        self._finished: list[SlotConnection] = []  # while stopped

    def serve(self, connection: "SlotConnection") -> None:
        """Serve the call now or in its turn."""
        self._queue.append(connection)
        self._next()

    def stop(self, stopped: bool) -> None:
        """Stop, or resume."""
        self._stopped = stopped
        if not stopped:
            for connection in self._finished:
                self._end(connection)
            self._finished.clear()
            self._next()

    def _next(self) -> None:
        while self._free and self._queue and not self._stopped:
            connection = self._queue.popleft()
            if not connection.lost:
                self._free -= 1
                asyncio.get_running_loop().call_later(connection.seconds, self._end, connection)

    def _end(self, connection: "SlotConnection") -> None:
        if self._stopped:
            self._finished.append(connection)
            return
        self._free += 1
        if not connection.lost:
            connection.transport.write(connection.response)
        self._next()


class SlotConnection(FastConnection):
    """A connection whose calls take a slot of an engine for `seconds` and then get `response`."""

    seconds: float
    response: bytes

    def __init__(self, engine: SlotEngine) -> None:
        self.engine = engine
        self.lost = False

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True


class ListConnection(SlotConnection):
    """A connection of the profile `lists`."""

    def answer(self, body: bytearray) -> None:
        given = json.loads(body)["input"]
        items: list[str] = [given] if isinstance(given, str) else given
        data = [
            {"object": "embedding", "index": at, "embedding": [float(len(item))] + [0.125] * (LIST_WIDTH - 1)}
            for at, item in enumerate(items)
        ]
        usage = {"prompt_tokens": 8 * len(data), "total_tokens": 8 * len(data)}
        self.seconds = LIST_CALL_S + LIST_ITEM_S * len(items)
        self.response = json_response({"object": "list", "model": "tiny", "data": data, "usage": usage})
        self.engine.serve(self)


class ChatsConnection(SlotConnection):
    """A connection of the profile `chats`."""

    rng = Random(2)

    def answer(self, body: bytearray) -> None:
        messages = json.loads(body)["messages"]
        if not messages:  # a probe for the batch endpoint
            error = json.dumps({"error": {"message": "no messages", "type": "BadRequestError"}}).encode()
            head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            self.transport.write(head % len(error) + error)
            return
        count = len(messages) if isinstance(messages[0], list) else 1
        choices = [
            {"index": at, "message": {"role": "assistant", "content": "mill"}, "finish_reason": "length"}
            for at in range(count)
        ]
        usage = {"prompt_tokens": 30 * count, "completion_tokens": count, "total_tokens": 31 * count}
        noise = self.rng.uniform(1 - count**-0.5, 1 + count**-0.5)
        self.seconds = (CHAT_CALL_S + CHAT_ITEM_S * count) * noise
        self.response = json_response({**STAMP, "object": "chat.completion", "choices": choices, "usage": usage})
        self.engine.serve(self)


class SlowConnection(SlotConnection):
    """A connection of the profile `slow`."""

    rng = Random(1)
    response = SHORT_CHAT

    def answer(self, body: bytearray) -> None:
        self.seconds = self.rng.expovariate(1 / SLOW_MEAN_S)
        self.engine.serve(self)


class TimedConnection(FastConnection):
    """A connection that answers after `seconds(body)`, and reports each call's begin and end."""

    def __init__(
        self,
        seconds: Callable[[bytes], float],
        began: Callable[[bytes], object],
        ended: Callable[[bytes], object],
    ) -> None:
        self._seconds, self._began, self._ended = seconds, began, ended
        self._call: bytes | None = None

    def answer(self, body: bytearray) -> None:
        self._call = bytes(body)
        self._began(self._call)
        asyncio.get_running_loop().call_later(self._seconds(self._call), self._finish)

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def _finish(self) -> None:
        if self._call is not None:
            self._end()
            self.transport.write(CHAT)

    def _end(self) -> None:
        if self._call is not None:
            call, self._call = self._call, None
            self._ended(call)


def _ignored(body: bytes) -> None:
    pass


async def start_timed(
    seconds: Callable[[bytes], float] = lambda body: 0.0,
    began: Callable[[bytes], object] = _ignored,
    ended: Callable[[bytes], object] = _ignored,
) -> tuple[asyncio.Server, int]:
    """Serve `TimedConnection`s in this process; returns the server and its port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: TimedConnection(seconds, began, ended), "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def serve(profile: str, port: int, slots: int) -> None:
    """Listen on the loopback until the process is ended."""
    loop = asyncio.get_running_loop()
    engine = SlotEngine(LIST_SLOTS if profile == "lists" else slots)
    make: dict[str, Callable[[], asyncio.Protocol]] = {
        "fast": FastConnection,
        "lists": lambda: ListConnection(engine),
        "chats": lambda: ChatsConnection(engine),
        "slow": lambda: SlowConnection(engine),
    }
    if profile == "slow":
        loop.add_signal_handler(signal.SIGUSR1, engine.stop, True)
        loop.add_signal_handler(signal.SIGUSR2, engine.stop, False)
    server = await loop.create_server(make[profile], "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def main() -> None:
    """Serve the profile that the command line names."""
    parser = parser_of(__doc__)
    parser.add_argument("profile", choices=PROFILES)
    parser.add_argument("port", type=int)
    parser.add_argument("slots", type=int, nargs="?", default=1)
    options = parser.parse_args()
    uvloop.run(serve(options.profile, options.port, options.slots))


if __name__ == "__main__":
    main()
