"""What is booked is what the upstreams have counted, over every wire, with failures and retries among the calls."""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

from doubles import replies
from doubles.call import Call
from doubles.gateway import StartGateway
from doubles.rawclient import call
from doubles.routed import routed
from doubles.script import DONE, FIN, Script, compact, delta, full, stop, stream, usage
from doubles.upstream import FaultUpstream
from doubles.wires import audio, forms, images, messages, responses
from doubles.wires.streams import Event, named

CALLS = 400
PRICES = {"input": 2, "output": 70, "cached_input": 0.5, "cache_write": 11}
NANOS = {"input": 2_000, "output": 70_000, "cached_input": 500, "cache_write": 11_000}  # of one token
FORM = forms.Part("model", b"m-small"), forms.Part("file", b"RIFF", "a.wav", "audio/wav")
JSON = ("content-type", "application/json")


class Counting:
    """Two upstreams that report random usage, keep what they have reported, and often fail."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.counted: Counter[str] = Counter()

    def answer(self, call: Call) -> Script:
        """A failure, or the answer to this call."""
        failure = self.rng.random()
        if failure < 0.1:
            return [FIN]
        if failure < 0.2:
            return replies.error(500)
        path = call.target
        if path == "/v1/audio/transcriptions":
            return [full(audio.transcript("json", {"type": "tokens", **self._plain()}))]
        asked = call.json()
        return self._whole(path, asked) if not asked.get("stream") else self._streamed(path, asked)

    def _whole(self, path: str, asked: Event) -> Script:
        model = asked["model"]
        match path:
            case "/v1/responses":
                told: Event = responses.response(model, responses.message("pong"), usage=self._openai())
            case "/v1/messages":
                told = messages.message(model, messages.text("pong"), usage=self._anthropic())
            case "/v1/images/generations":
                told = {**images.images(), "usage": self._plain()}
            case _:
                told = {"model": model, "results": [], "data": [], "usage": self._input()}
        return [full(compact(told))]

    def _streamed(self, path: str, asked: Event) -> Script:
        if path == "/v1/responses":
            final = responses.response(asked["model"], responses.message("pong"), usage=self._openai())
            return stream(*responses.events(final))
        if path == "/v1/messages":
            counts = self._anthropic()
            first, *rest = messages.event_list(messages.message(asked["model"], messages.text("pong"), usage=counts))
            first = {**first, "message": {**first["message"], "usage": {**counts, "output_tokens": 1}}}
            return stream(*map(named, [first, *rest]))
        given, made = self._input()["prompt_tokens"], self._count("output")
        return stream(delta({"content": "pong"}), stop(), usage(given, made), DONE)

    def _count(self, kind: str) -> int:
        number = self.rng.randrange(1, 500)
        self.counted[kind] += number
        return number

    def _input(self) -> Event:
        number = self._count("input")
        return {"prompt_tokens": number, "total_tokens": number}

    def _plain(self) -> Event:
        given, made = self._count("input"), self._count("output")
        return {"input_tokens": given, "output_tokens": made, "total_tokens": given + made}

    def _openai(self) -> Event:
        """Cached tokens inside the input."""
        cached, rest, made = self._count("cached_input"), self._count("input"), self._count("output")
        details = {"input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0}}
        reasoning = {"output_tokens_details": {"reasoning_tokens": made // 2}}
        total = {"input_tokens": cached + rest, "output_tokens": made, "total_tokens": cached + rest + made}
        return {**total, **details, **reasoning}

    def _anthropic(self) -> Event:
        """Cached tokens outside the input."""
        return {
            "input_tokens": self._count("input"),
            "cache_read_input_tokens": self._count("cached_input"),
            "cache_creation_input_tokens": self._count("cache_write"),
            "output_tokens": self._count("output"),
        }


def request(rng: random.Random, number: int) -> tuple[str, Any, tuple[str, str]]:
    """A path, a body unlike any other, and a content type."""
    streamed = rng.random() < 0.5
    path, body = rng.choice(
        [
            ("/v1/responses", {"input": "ping", "stream": streamed}),
            ("/v1/messages", {"messages": [], "max_tokens": 9, "stream": streamed}),
            ("/v1/chat/completions", {"messages": [], "stream": True, "stream_options": {"include_usage": True}}),
            ("/v1/rerank", {"query": "q", "documents": ["a"]}),
            ("/v1/score", {"text_1": "q", "text_2": "a"}),
            ("/v1/images/generations", {"prompt": "p"}),
            ("/v1/audio/transcriptions", None),
        ]
    )
    if body is None:
        return path, forms.form(*FORM, forms.Part("user", b"%d" % number)), forms.CONTENT_TYPE
    return path, {"model": "m-small", "user": str(number), **body}, JSON


async def test_what_is_booked_is_what_was_counted(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    counting, rng = Counting(1), random.Random(2)
    for one in (upstream, other):
        one.always(counting.answer)
    retry = {"attempts": 4, "budget": 1, "backoff_base": 0, "backoff_max": 0}
    config = routed(upstream.url, other.url, retry=retry, upstream={"breaker": {"failures": 10_000}})
    for candidate in config["models"]["m-small"]["candidates"]:
        candidate["price"] = PRICES
    config["usage"] = {"store": "sqlite", "path": str(tmp_path / "usage.db")}
    gateway = await start_gateway(config)
    gate = asyncio.Semaphore(8)
    statuses: Counter[int] = Counter()

    async def one(path: str, body: Any, content_type: tuple[str, str]) -> None:
        async with gate:
            answer = await call(gateway.port, "POST", path, body, [content_type])
        statuses[answer.status] += 1

    await asyncio.gather(*(one(*request(rng, number)) for number in range(CALLS)))
    assert statuses[200] > 0.9 * CALLS
    assert len(upstream.calls) + len(other.calls) > 1.1 * CALLS  # there were retries
    await gateway.counted("sluice_requests_total", CALLS)
    counted, metrics = counting.counted, await gateway.metrics()
    every = counted["input"] + counted["cached_input"] + counted["cache_write"]
    for kind, number in {**counted, "input": every}.items():
        assert metrics.value("sluice_tokens_total", type=kind, source="upstream") == number, kind
    assert metrics.value("sluice_tokens_total", source="estimated") == 0
    spent = sum(counted[kind] * nanos for kind, nanos in NANOS.items())
    assert round(metrics.value("sluice_cost_usd_total") * 10**9) == spent
    rows = (await call(gateway.admin_port, "GET", "/admin/usage")).json()
    assert sum(round(float(row["cost_usd"]) * 10**9) for row in rows) == spent
    assert sum(row["input"] for row in rows) == every
    assert sum(row["output"] for row in rows) == counted["output"]
