"""The path of one call without sockets: its number of function calls, and its time.

The client's and the upstream's connections are real ones over transports that are plain Python objects. The
interpreter counts the calls, so the figure is the same on every machine and under any load;
`tests/benchmarks/test_path_budget.py` bounds it. Run it as `python -m benchmarks.call_path`.
"""

import asyncio
import sys
from time import perf_counter
from types import FrameType
from typing import Any, cast

import uvloop

from benchmarks.arguments import arguments
from gateway.assembly.gateway import Gateway
from gateway.config.model import (
    AdminConfig,
    BatchingConfig,
    CandidateConfig,
    Config,
    KeyConfig,
    LimitsConfig,
    LogConfig,
    ModelConfig,
    PriceConfig,
    RedisConfig,
    ServerConfig,
    UpstreamConfig,
)
from gateway.core.units import Secret
from gateway.http.client.h1_connection import H1Connection

KEY = "sk-bench-0123456789abcdef"
CHUNKS = 64

_ASK = '{"model":"bench-model","messages":[{"role":"user","content":"' + "word " * 120 + '"}]'
_EMBED = '{"model":"bench-model","input":"' + "word " * 120 + '"'
_CHAT = (
    '{"id":"c","object":"chat.completion","created":1,"model":"fake-model","choices":[{"index":0,'
    '"message":{"role":"assistant","content":"' + "word " * 100 + '"},"finish_reason":"stop"}],'
    '"usage":{"prompt_tokens":120,"completion_tokens":100,"total_tokens":220}}'
).encode()
_VECTOR = (
    '{"object":"list","data":[{"object":"embedding","index":0,"embedding":['
    + ",".join(["0.0123456789"] * 64)
    + ']}],"model":"fake-model","usage":{"prompt_tokens":120,"total_tokens":120}}'
).encode()
_CHUNK = (
    'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"fake-model","choices":[{"index":0,'
    '"delta":{"content":"word"},"logprobs":null,"finish_reason":FINISH}]}\n\n'
)


def request(*, stream: bool, embeddings: bool = False) -> bytes:
    """A client's request of about 900 bytes."""
    path, asked = ("embeddings", _EMBED) if embeddings else ("chat/completions", _ASK)
    body = (asked + (',"stream":true}' if stream else "}")).encode()
    head = (
        f"POST /v1/{path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {KEY}\r\n"
        "Content-Type: application/json\r\nAccept: application/json\r\nUser-Agent: OpenAI/Python 3.0.0\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def whole_answer(body: bytes) -> list[bytes]:
    """The upstream's answer to a call that is not streamed."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    return [head + body]


def streamed_answer() -> list[bytes]:
    """Head, chunks one by one, and the end of a stream."""
    middle, last = (_CHUNK.replace("FINISH", value).encode() for value in ("null", '"stop"'))
    events = [*[middle] * (CHUNKS - 1), last, b"data: [DONE]\n\n"]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return [head, *(b"%x\r\n%b\r\n" % (len(event), event) for event in events), b"0\r\n\r\n"]


class FakeTransport(asyncio.Transport):
    """A transport that calls back for each write."""

    def __init__(self, written: Any) -> None:
        super().__init__()
        self._written = written

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written(data)

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        pass

    abort = pause_reading = resume_reading = close


class Path:
    """A gateway over fake sockets. `start` inside a running loop, then `once` as often as wanted.

    With `refused` the limits refuse every call but the first, and the end of a refusal is waited for.
    `batching` makes it a call for embeddings, of a model with these rules.
    """

    def __init__(
        self,
        *,
        stream: bool,
        limits: LimitsConfig | None = None,
        price: PriceConfig | None = None,
        redis: RedisConfig | None = None,
        refused: bool = False,
        batching: BatchingConfig | None = None,
    ) -> None:
        self._batching = batching or BatchingConfig()
        self._limits = limits or LimitsConfig()
        self._price = price
        self._redis = redis
        self._request = request(stream=stream, embeddings=batching is not None)
        whole = _CHAT if batching is None else _VECTOR
        self._answer = streamed_answer() if stream else whole_answer(whole)
        self._last = b"0\r\n\r\n" if stream else whole[-2:] if refused else whole[-16:]
        self._stream = stream
        self._over: asyncio.Future[None] | None = None

    def config(self) -> Config:
        """The config of the gateway."""
        candidate = CandidateConfig(upstream="fake", model="fake-model", price=self._price)
        return Config(
            server=ServerConfig(port=0),
            admin=AdminConfig(port=0),
            redis=self._redis,
            keys=(KeyConfig(name="bench", key=Secret(KEY), limits=self._limits),),
            upstreams={"fake": UpstreamConfig(name="fake", base_url="http://127.0.0.1:9/v1")},
            models={"bench-model": ModelConfig(name="bench-model", candidates=(candidate,), batching=self._batching)},
            log=LogConfig(level="warning"),
        )

    async def start(self) -> None:
        """Build the gateway; its listening sockets are never used."""
        config = self.config()
        self._gateway = Gateway(config)
        await self._gateway.start()
        self._loop = asyncio.get_running_loop()
        for name in config.upstreams:
            self._connect(name)
        self._client = self._gateway.accept()
        self._client.connection_made(FakeTransport(self._taken))
        await asyncio.sleep(0)

    def _connect(self, name: str) -> None:
        transport = cast(Any, self._gateway.upstream_transport(name))
        upstream = H1Connection(transport, name)
        upstream.connection_made(FakeTransport(lambda _: self._deliver(upstream)))
        transport.release(upstream)

    def _deliver(self, upstream: H1Connection) -> None:
        """Deliver one piece in each turn of the event loop, as sockets do."""
        pieces = iter(self._answer)

        def next_piece() -> None:
            piece = next(pieces, None)
            if piece is not None:
                upstream.data_received(piece)
                self._loop.call_soon(next_piece)

        self._loop.call_soon(next_piece)

    def _taken(self, data: bytes) -> None:
        over = data == self._last if self._stream else data.endswith(self._last)
        if over and self._over is not None:
            self._over.set_result(None)

    async def once(self) -> None:
        """One call, from the request's bytes to the answer's last ones."""
        self._over = self._loop.create_future()
        self._client.data_received(self._request)
        await self._over
        await asyncio.sleep(0)  # what is left to do after the last byte: settling, the next request's turn
        await asyncio.sleep(0)

    async def stop(self) -> None:
        """Close the gateway."""
        await self._gateway.close()


async def count_calls(*, stream: bool, rounds: int = 20) -> float:
    """The mean number of function calls, Python's and C's, for one call through the gateway."""
    path = Path(stream=stream)
    await path.start()
    for _ in range(5):
        await path.once()
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        for _ in range(rounds):
            await path.once()
    finally:
        sys.setprofile(None)
    await path.stop()
    return calls / rounds


async def time_it(*, stream: bool, seconds: float = 2.0) -> float:
    """Seconds for one call through the gateway, the fastest of some runs."""
    path = Path(stream=stream)
    await path.start()
    best, end = 1e9, perf_counter() + seconds
    while perf_counter() < end:
        begin = perf_counter()
        for _ in range(50):
            await path.once()
        best = min(best, (perf_counter() - begin) / 50)
    await path.stop()
    return best


def main() -> None:
    """Print both figures for both kinds of call."""
    for stream in (False, True):
        name = f"stream of {CHUNKS} chunks" if stream else "chat"
        calls = uvloop.run(count_calls(stream=stream))
        print(f"{name}: {calls:.0f} function calls, {uvloop.run(time_it(stream=stream)) * 1e6:.1f} µs")


if __name__ == "__main__":
    arguments(__doc__)
    main()
