"""Counts a body's input tokens with the model's vocabulary; needs the extra `exact-tokens`.

Only plain text is counted. Tools, images and the like are rendered by templates that differ between
upstreams, so bodies with these are estimated instead.
"""

import importlib
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from gateway.telemetry.logging import logger

MAX_BODY: Final = 8192
"""Bytes of the longest body that is counted: about 50 us of work."""


class Vocabulary(Protocol):
    """A loaded tokenizer."""

    def count(self, text: str) -> int:
        """Return the number of tokens of this text."""


class Dialect(NamedTuple):
    """A vocabulary's name, and the tokens that chat templates add: per message, to open the answer, and
    before a bare prompt."""

    vocabulary: str
    per_message: int
    opening: int
    prefix: int = 0


_O200K: Final = Dialect("o200k_base", 3, 3)
_CL100K: Final = Dialect("cl100k_base", 3, 3)
_QWEN: Final = Dialect("qwen3", 4, 3)
_LLAMA: Final = Dialect("llama3", 4, 5, prefix=1)
_DIALECTS: Final[tuple[tuple[str, Dialect | None], ...]] = (
    *((name, _O200K) for name in ("gpt-4o*", "chatgpt-4o*", "gpt-4.1*", "gpt-4.5*", "gpt-5*")),
    *((name, _O200K) for name in ("o1", "o1-*", "o3", "o3-*", "o4-*")),
    *((name, _CL100K) for name in ("gpt-4", "gpt-4-*", "gpt-3.5*", "text-embedding-3*")),
    ("*ada-002", _CL100K),
    ("*qwen3.*", None),  # a vocabulary that differs from Qwen3's
    ("*qwen3*", _QWEN),
    ("*qwen2.5*", _QWEN),
    ("*llama-3*", _LLAMA),
)


class _Part(Struct, gc=False):
    type: str
    text: str | None = None


class _Message(Struct, gc=False):
    role: str
    content: str | list[_Part] | None = None
    name: str | None = None
    tool_calls: Any = None
    function_call: Any = None


_Prompt = str | list[str | int | list[int]]


class _Body(Struct, gc=False):
    messages: list[_Message] | None = None
    prompt: _Prompt | None = None
    input: _Prompt | None = None
    tools: Any = None
    functions: Any = None
    response_format: Any = None
    suffix: Any = None


_decode = msgspec.json.Decoder(_Body).decode
_FAILURES: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Everything that a tokenizer in C++ may raise: none of it may fail a call."""


def load(
    models: Iterable[str], vocabulary: Callable[[str], Vocabulary] | None = None
) -> Callable[[bytes, str], int | None] | None:
    """Return a counter for the upstream models with a known vocabulary.

    None if there are none, or the extra is not installed. Loads every needed vocabulary, at 0.1 to 0.5 s and
    about 100 MB each, so call it at start-up only. `vocabulary` loads one by name; quicktok by default.
    """
    dialects = {model: dialect for model in models if (dialect := dialect_of(model)) is not None}
    if not dialects:
        return None
    try:
        make = vocabulary or importlib.import_module("quicktok").get_encoding
        loaded = {name: make(name) for name in {dialect.vocabulary for dialect in dialects.values()}}
    except ImportError:
        return None
    except _FAILURES as failure:
        logger.warning("exact token counts are off", extra={"reason": repr(failure)})
        return None
    return ExactTokens({model: (dialect, loaded[dialect.vocabulary]) for model, dialect in dialects.items()})


def dialect_of(model: str) -> Dialect | None:
    """Return the dialect of this model; a vendor's name before a slash is ignored."""
    name = model.lower().rpartition("/")[2]
    return next((dialect for pattern, dialect in _DIALECTS if fnmatchcase(name, pattern)), None)


class ExactTokens:
    """Counts a body's input tokens; None for an unknown model, or a body with more than text."""

    def __init__(self, models: dict[str, tuple[Dialect, Vocabulary]]) -> None:
        self._models = models
        self._logged = False

    def __call__(self, body: bytes, model: str) -> int | None:
        """Count the messages with their template, the prompts, or the inputs."""
        tokenizer = self._models.get(model)
        if tokenizer is None or len(body) > MAX_BODY:
            return None
        try:
            request = _decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        if (request.tools, request.functions, request.response_format, request.suffix) != (None,) * 4:
            return None
        try:
            return _count(request, *tokenizer)
        except _FAILURES as failure:
            if not self._logged:
                self._logged = True
                logger.warning("an exact token count failed", extra={"reason": repr(failure)})
            return None


def _count(request: _Body, dialect: Dialect, vocabulary: Vocabulary) -> int | None:
    if request.messages is not None:
        return _count_messages(request.messages, dialect, vocabulary)
    text = request.prompt if request.prompt is not None else request.input
    if text is None:
        return None
    total = 0
    for item in [text] if isinstance(text, str) else text:
        if isinstance(item, int):
            total += 1
        else:
            total += len(item) if isinstance(item, list) else vocabulary.count(item) + dialect.prefix
    return total


def _count_messages(messages: list[_Message], dialect: Dialect, vocabulary: Vocabulary) -> int | None:
    total = dialect.opening
    for message in messages:
        if message.tool_calls is not None or message.function_call is not None:
            return None
        total += dialect.per_message + vocabulary.count(message.role)
        if message.name is not None:
            total += 1 + vocabulary.count(message.name)
        content = message.content
        if isinstance(content, str):
            total += vocabulary.count(content)
            continue
        for part in content or ():
            if part.text is None:
                return None
            total += vocabulary.count(part.text)
    return total
