"""Fake providers that bill: they fail, break off, count in several dialects, and have their own books.

They are an aiohttp application and no profile of `benchmarks.fake_upstream`: they must be right, not fast. A seed
decides how each call ends. The books are in fractions of a dollar, computed from the providers' numbers without
any of the gateway's code.
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
"""The last word of a stream whose client then hangs up."""

Place = tuple[str, str, str]
"""Key, public model, upstream."""


class Used(NamedTuple):
    """Disjoint token counts: `plain` input is neither read from the cache nor written to it."""

    plain: int
    read: int
    written: int
    output: int
    reasoning: int


class Books:
    """The providers' bills by key, public model and provider; `hidden` is usage that they do not report."""

    def __init__(self) -> None:
        self.reported: dict[Place, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
        self.hidden: dict[Place, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
        self.fates: dict[str, int] = defaultdict(int)

    def bill(self, asked: dict[str, Any], upstream: str, used: Used, *, reported: bool = True) -> None:
        """One attempt."""
        price = {name: Fraction(usd) for name, usd in PRICES[upstream].items()}
        dollars = (
            used.plain * price["input"]
            + used.read * price["cached_input"]
            + used.written * price["cache_write"]
            + used.output * price["output"]
        ) / 1_000_000
        books = self.reported if reported else self.hidden
        row = books[asked["user"], asked["metadata"]["model"], upstream]
        row["input"] += used.plain + used.read + used.written
        row["output"] += used.output
        row["cached_input"] += used.read
        row["cache_write"] += used.written
        row["reasoning"] += used.reasoning
        row["nano_usd"] += ceil(dollars * 1_000_000_000)


def openai(used: Used) -> dict[str, Any]:
    """OpenAI: parts are subsets of the totals."""
    prompt = used.plain + used.read + used.written
    return {
        "prompt_tokens": prompt,
        "completion_tokens": used.output,
        "total_tokens": prompt + used.output,
        "prompt_tokens_details": {"cached_tokens": used.read, "cache_write_tokens": used.written},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning},
    }


def anthropic(used: Used) -> dict[str, Any]:
    """Anthropic: cached and written tokens are not part of the input."""
    return {
        "input_tokens": used.plain,
        "cache_read_input_tokens": used.read,
        "cache_creation_input_tokens": used.written,
        "output_tokens": used.output,
        "output_tokens_details": {"thinking_tokens": used.reasoning},
    }


def gemini(used: Used) -> dict[str, Any]:
    """Gemini: thoughts are not part of the candidates; there are no cache writes."""
    return {
        "promptTokenCount": used.plain + used.read + used.written,
        "cachedContentTokenCount": used.read,
        "candidatesTokenCount": used.output - used.reasoning,
        "thoughtsTokenCount": used.reasoning,
    }


def deepseek(used: Used) -> dict[str, Any]:
    """DeepSeek: other names for the cached part; there are no cache writes."""
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
    """Two providers, at `/dear/v1` and `/cheap/v1` of one port."""

    def __init__(self, seed: int) -> None:
        self.books = Books()
        self._rng = random.Random(seed)
        self._text = "word " * 20

    def application(self) -> web.Application:
        """The application; serve it with `handler_cancellation`."""
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
        self.books.bill(asked, upstream, used, reported=not silent)
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
        if counted is not None:  # before the end, as a stream that breaks off never reaches it
            last["usage"] = counted
        await response.write(b"".join(_event(one) for one in (*words, last)))
        if fate == "left":
            await asyncio.Event().wait()  # until the client has left
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
    """What a tokenizer would count: 30 words with their frame, and the words of the answer."""
    return Used(38, 0, 0, 40 if stream else 20, 0)


def _json(value: object, status: int = 200) -> web.Response:
    return web.json_response(value, status=status)


def _chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "model": "x", "choices": [choice]}


def _event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
