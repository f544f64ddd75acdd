"""A fake upstream that costs next to nothing: every answer is rendered ahead.

`python -m benchmarks.upstream PORT`. A prompt that holds `chunks=N pace=Xms` gets a stream of N events, one
write each; any other POST gets a chat answer, any GET the model list.
"""

import asyncio
import json
import re
from typing import cast

import httptools
import uvloop

from benchmarks.arguments import arguments

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n\r\n"
PLAN = re.compile(rb"chunks=(\d+) pace=(\d+)ms")
WORD = " water through the mill"
TEXT = WORD * 15
STAMP = {"id": "chatcmpl-0123456789abcdef", "created": 1700000000, "model": "fake-model"}


def whole(answer: dict[str, object]) -> bytes:
    """A complete JSON answer, head included."""
    body = json.dumps(answer).encode()
    return HEAD % (b"application/json", b"Content-Length: %d" % len(body)) + body


def event(delta: dict[str, str], finish: str | None, after: bytes = b"") -> bytes:
    """One stream event (and what follows it) as one chunk of a chunked body."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    answer = {**STAMP, "object": "chat.completion.chunk", "choices": [choice]}
    data = b"data: " + json.dumps(answer).encode() + b"\n\n" + after
    return b"%x\r\n%b\r\n" % (len(data), data)


CHAT = whole(
    {
        **STAMP,
        "object": "chat.completion",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"},
        ],
        "usage": {"prompt_tokens": 120, "completion_tokens": 60, "total_tokens": 180},
    }
)
MODELS = whole({"object": "list", "data": [{"id": "fake-model", "object": "model", "owned_by": "bench"}]})
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
            self.due += self.pace  # from the start, not from now: a late beat does not shift the others
            self.loop.call_at(self.due, self.step)
        else:
            self.loop.call_soon(self.step)


class Upstream(asyncio.Protocol):
    """One connection of the proxy; the httptools callbacks are the `on_` methods."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class is not a subclass of it
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
        elif plan := PLAN.match(body, max(0, body.find(b"chunks="))):  # a search takes ms in a body of MBs
            Stream(self.transport, int(plan[1]), int(plan[2]) / 1000).step()
        else:
            self.transport.write(CHAT)


async def serve(port: int) -> None:
    """Listen on the loopback until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(*arguments(__doc__, port=int)))
