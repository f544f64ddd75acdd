"""Fake providers that bill: they fail, break off and count in several dialects, and keep books of their own.

Which fate a call meets is drawn from a seed. The books are kept in fractions of a dollar from the numbers
that the providers made up, by none of the gateway's code.
"""

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

from aiohttp import web

COUNTS = ("input", "output", "cached_input", "cache_write", "reasoning", "nano_usd")
PRICES: dict[str, dict[str, str]] = {
    "dear": {"input": "3", "output": "15", "cached_input": "0.3", "cache_write": "3.75"},
    "cheap": {"input": "0.28", "output": "0.42", "cached_input": "0.028", "cache_write": "0.28"},
}
LEAVE = "leave"
"""The last words of a stream at which its client hangs up."""

Place = tuple[str, str, str]
"""Key, public model, upstream."""


class Used(NamedTuple):
    """Tokens apart from each other: `plain` input is neither read from the cache nor written to it."""

    plain: int
    read: int
    written: int
    output: int
    reasoning: int


class Books:
    """What the providers want to be paid, by key, public model and provider; in `guessed` what they hide."""

    def __init__(self) -> None:
        self.told: dict[Place, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
        self.guessed: dict[Place, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
        self.fates: dict[str, int] = defaultdict(int)

    def bill(self, asked: dict[str, Any], upstream: str, used: Used, *, told: bool = True) -> None:
        """One attempt."""
        price = {name: Fraction(usd) for name, usd in PRICES[upstream].items()}
        dollars = (
            used.plain * price["input"]
            + used.read * price["cached_input"]
            + used.written * price["cache_write"]
            + used.output * price["output"]
        ) / 1_000_000
        books = self.told if told else self.guessed
        row = books[asked["user"], asked["metadata"]["model"], upstream]
        row["input"] += used.plain + used.read + used.written
        row["output"] += used.output
        row["cached_input"] += used.read
        row["cache_write"] += used.written
        row["reasoning"] += used.reasoning
        row["nano_usd"] += ceil(dollars * 1_000_000_000)


def openai(used: Used) -> dict[str, Any]:
    """Parts are subsets."""
    prompt = used.plain + used.read + used.written
    return {
        "prompt_tokens": prompt,
        "completion_tokens": used.output,
        "total_tokens": prompt + used.output,
        "prompt_tokens_details": {"cached_tokens": used.read, "cache_write_tokens": used.written},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning},
    }


def anthropic(used: Used) -> dict[str, Any]:
    """Cached and written stand beside the input."""
    return {
        "input_tokens": used.plain,
        "cache_read_input_tokens": used.read,
        "cache_creation_input_tokens": used.written,
        "output_tokens": used.output,
        "output_tokens_details": {"thinking_tokens": used.reasoning},
    }


def gemini(used: Used) -> dict[str, Any]:
    """Thoughts stand beside the candidates; there are no writes."""
    return {
        "promptTokenCount": used.plain + used.read + used.written,
        "cachedContentTokenCount": used.read,
        "candidatesTokenCount": used.output - used.reasoning,
        "thoughtsTokenCount": used.reasoning,
    }


def deepseek(used: Used) -> dict[str, Any]:
    """The cached part by another name; there are no writes."""
    prompt = used.plain + used.read + used.written
    return {
        "prompt_tokens": prompt,
        "prompt_cache_hit_tokens": used.read,
        "prompt_cache_miss_tokens": used.plain + used.written,
        "completion_tokens": used.output,
        "completion_tokens_details": {"reasoning_tokens": used.reasoning},
    }


WITH_WRITES: tuple[Callable[[Used], dict[str, Any]], ...] = (openai, anthropic)
WITHOUT: tuple[Callable[[Used], dict[str, Any]], ...] = (openai, anthropic, gemini, deepseek)
WHOLE = {"answers": 12, "error that counted": 2, "counted, no text": 1, "status 500": 2, "reset": 1}
STREAMS = {"streams": 10, "cut": 2, "left": 2, "error that counted": 2, "breaks in the middle": 2, "reset": 1}


class Providers:
    """Both of them, at `/dear/v1` and `/cheap/v1` of one port."""

    def __init__(self, seed: int) -> None:
        self.books = Books()
        self._rng = random.Random(seed)
        self._text = "word " * 20

    def application(self) -> web.Application:
        """To be served with `handler_cancellation`."""
        app = web.Application()
        app.router.add_post("/{upstream}/v1/chat/completions", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked, upstream = json.loads(await request.read()), request.match_info["upstream"]
        silent = asked["metadata"]["model"] == "silent"
        fates = STREAMS if asked.get("stream") else WHOLE
        fate = "streams" if silent and asked.get("stream") else "answers" if silent else self._draw(fates)
        self.books.fates[fate] += 1
        used = _uncounted(bool(asked.get("stream"))) if silent else self._used()
        if fate == "status 500":
            return _json({"error": {"message": "no", "code": 500}}, 500)
        if fate == "reset":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        self.books.bill(asked, upstream, used, told=not silent)
        counted = None if silent else self._dialect(used)(used)
        if asked.get("stream"):
            return await self._stream(request, fate, counted, used)
        if fate == "error that counted":
            return _json({"error": {"message": "cut off", "code": 500}, "usage": counted})
        if fate == "counted, no text":
            body = b'{"usage":' + json.dumps(counted).encode() + b',"x":"\xff"}'
            return web.Response(body=body, content_type="application/json")
        return _json(self._whole(counted))

    async def _stream(
        self, request: web.Request, fate: str, counted: dict[str, Any] | None, used: Used
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        failed = {"error": {"message": "overheated", "code": 500}, "usage": counted}
        if fate == "error that counted":
            await response.write(_event(failed))
            return response
        words = [_chunk("word")] * used.output
        last = _chunk("", "stop")
        if fate == "left":
            last = _chunk(LEAVE)
        if counted is not None:  # told on the way, for what breaks off has no end to tell it at
            last["usage"] = counted
        await response.write(b"".join(_event(one) for one in (*words, last)))
        if fate == "left":
            await asyncio.Event().wait()  # until the client's leaving has reached us
        if fate == "cut":
            assert request.transport is not None
            request.transport.close()
        elif fate == "breaks in the middle":
            await response.write(_event(failed))
        else:
            await response.write(b"data: [DONE]\n\n")
        return response

    def _draw(self, fates: dict[str, int]) -> str:
        return self._rng.choices(list(fates), list(fates.values()))[0]

    def _used(self) -> Used:
        rng = self._rng
        output = rng.randint(1, 40)
        written = rng.choice((0, 0, rng.randint(1, 3000)))
        return Used(rng.randint(1, 2000), rng.choice((0, rng.randint(1, 9000))), written, output, output // 3)

    def _dialect(self, used: Used) -> Callable[[Used], dict[str, Any]]:
        return self._rng.choice(WITH_WRITES if used.written else WITHOUT)

    def _whole(self, counted: dict[str, Any] | None) -> dict[str, Any]:
        message = {"role": "assistant", "content": self._text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {} if counted is None else {"usage": counted}
        return {"id": "c", "object": "chat.completion", "model": "x", "choices": [choice], **usage}


def _uncounted(stream: bool) -> Used:
    """As tokenizers would count what is sent: 30 words with their frame, and the words of the answer."""
    return Used(38, 0, 0, 40 if stream else 20, 0)


def _json(value: object, status: int = 200) -> web.Response:
    return web.json_response(value, status=status)


def _chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "model": "x", "choices": [choice]}


def _event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
