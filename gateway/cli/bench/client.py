"""One timed call of an OpenAI-compatible endpoint, and what is wrong with its answer."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import msgspec

from gateway.cli.bench.options import PATHS, LoadPlan, Target
from gateway.config.problems import plain
from gateway.core.clock import Clock
from gateway.wire.openai.sse import EventSplitter, EventTooLarge


@dataclass(slots=True)
class TimedCall:
    """One call. Times are in seconds of the clock; `due` is when it should have started.

    `error` is the kind of its failure, empty for a good call, and `message` the endpoint's text about it.
    `output` counts tokens if the endpoint reports them (`counted`), else pieces of text.
    """

    due: float
    end: float = 0.0
    first: float | None = None
    gaps: "array[float]" = field(default_factory=lambda: array("d"))
    input: int = 0
    output: int = 0
    counted: bool = False
    error: str = ""
    message: str = ""


class _Text(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning_content or self.reasoning or self.tool_calls)


class _Choice(msgspec.Struct):
    delta: _Text | None = None
    text: str = ""
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Answer(msgspec.Struct):
    """The fields used of an answer, or of an event of a stream."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


class _FailedError(Exception):
    """The call failed: the kind of failure, and the endpoint's message."""

    def __init__(self, kind: str, message: str = "") -> None:
        self.kind, self.message = kind, message


_DECODE: Final = msgspec.json.Decoder(_Answer).decode


class BenchClient:
    """Calls one target according to the plan."""

    def __init__(self, session: aiohttp.ClientSession, plan: LoadPlan, target: Target, clock: Clock) -> None:
        self._session, self._plan, self._clock = session, plan, clock
        self._model, self._url = target.model, target.url + PATHS[plan.endpoint]
        self._headers = {"authorization": f"Bearer {target.key.reveal()}"} if target.key is not None else {}

    async def call(self, prompt: str, due: float) -> TimedCall:
        """Makes one call; a failure is recorded in it, not raised."""
        sample = TimedCall(due)
        try:
            async with self._session.post(
                self._url, json=self._body(prompt), headers=self._headers, allow_redirects=False
            ) as answer:
                if answer.status != 200:
                    raise _refused(answer.status, await answer.read())
                if self._plan.stream:
                    await self._stream(answer, sample)
                else:
                    self._whole(await answer.read(), sample)
        except _FailedError as error:
            sample.error, sample.message = error.kind, plain(error.message)
        except (aiohttp.ClientError, OSError, EventTooLarge) as error:
            sample.error = _kind(error)
        sample.end = self._clock()
        return sample

    def _body(self, prompt: str) -> Mapping[str, object]:
        plan = self._plan
        match plan.endpoint:
            case "embeddings":
                return {"model": self._model, "input": prompt}
            case "completions":
                content: dict[str, object] = {"prompt": prompt}
            case _:
                content = {"messages": [{"role": "user", "content": prompt}]}
        body = {"model": self._model, **content, "max_tokens": plan.max_tokens}
        return {**body, "stream": True, "stream_options": {"include_usage": True}} if plan.stream else body

    async def _stream(self, answer: aiohttp.ClientResponse, sample: TimedCall) -> None:
        splitter, complete, last = EventSplitter(), False, 0.0
        async for piece in answer.content.iter_any():
            now = self._clock()
            for event in splitter.feed(piece):
                data = _data(event)
                if data == b"[DONE]":
                    complete = True
                elif data:
                    chunk = _decoded(data, sample)
                    complete = complete or any(choice.finish_reason for choice in chunk.choices)
                    if any(choice.text or choice.delta for choice in chunk.choices):
                        if sample.first is None:
                            sample.first = now
                        else:
                            sample.gaps.append(now - last)
                        last = now
                        sample.output += not sample.counted
        if not complete:
            raise _FailedError("stream cut short")

    def _whole(self, body: bytes, sample: TimedCall) -> None:
        _decoded(body, sample)


def _data(event: bytes) -> bytes:
    lines = (line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))
    return b"\n".join(lines)


def _decoded(data: bytes, sample: TimedCall) -> _Answer:
    try:
        decoded = _DECODE(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise _FailedError("not an answer in OpenAI's shape") from None
    if decoded.error:
        raise _FailedError(f"error in the answer{_code(decoded.error)}", _message(decoded.error))
    if decoded.usage is not None:
        sample.input, sample.output = decoded.usage.prompt_tokens, decoded.usage.completion_tokens
        sample.counted = True
    return decoded


def _refused(status: int, body: bytes) -> _FailedError:
    try:
        error = _DECODE(body).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        error = None
    return _FailedError(f"status {status}{_code(error)}", _message(error))


def _code(error: Any) -> str:
    code = error.get("code") if isinstance(error, dict) else None
    return f" {plain(code)}" if isinstance(code, str) else ""


def _message(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""


def _kind(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "timeout"
        case aiohttp.ClientConnectorDNSError():
            return "no such host"
        case aiohttp.ClientSSLError():
            return "TLS does not work"
        case aiohttp.ClientConnectorError():
            return "cannot connect"
        case EventTooLarge():
            return "not an event stream"
        case _:
            return "connection broken"
