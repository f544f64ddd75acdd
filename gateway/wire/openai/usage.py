"""Reads every dialect of usage into `TokenUsage`, in which details are always included in their totals.

OpenAI, vLLM, SGLang, Mistral, Moonshot, OpenRouter: `prompt_tokens`, `completion_tokens`. They include the
cache reads and writes in `prompt_tokens_details` and the reasoning in `completion_tokens_details`. DeepSeek
names the cached part `prompt_cache_hit_tokens`; proxies add Anthropic's names next to `prompt_tokens`, which
includes them too. xAI and Gemini's OpenAI layer count reasoning in addition to `completion_tokens`; only
`total_tokens` includes it. Anthropic's `input_tokens` excludes cache reads and writes. Gemini's own
`candidatesTokenCount` excludes thoughts.
"""

import re
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from gateway.core.call import TokenUsage

MOST: Final = 10**9
"""More tokens than any call uses; caps nonsense from an upstream before it reaches an account."""


class _InputDetails(Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_creation_tokens: int | None = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: int | None = None
    thinking_tokens: int | None = None


class _Written(Struct, gc=False):
    ephemeral_5m_input_tokens: int | None = None
    ephemeral_1h_input_tokens: int | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    cached_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None
    prompt_cache_miss_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: _Written | None = None
    prompt_token_count: int | None = msgspec.field(default=None, name="promptTokenCount")
    candidates_token_count: int | None = msgspec.field(default=None, name="candidatesTokenCount")
    thoughts_token_count: int | None = msgspec.field(default=None, name="thoughtsTokenCount")
    cached_content_token_count: int | None = msgspec.field(default=None, name="cachedContentTokenCount")
    tool_use_prompt_token_count: int | None = msgspec.field(default=None, name="toolUsePromptTokenCount")
    prompt_n: int | None = None  # llama.cpp's timings; without what was cached
    cache_n: int | None = None
    predicted_n: int | None = None
    prompt_eval_count: int | None = None  # Ollama
    eval_count: int | None = None
    input_token_count: int | None = msgspec.field(default=None, name="inputTokenCount")  # Bedrock
    output_token_count: int | None = msgspec.field(default=None, name="outputTokenCount")
    input_tokens_camel: int | None = msgspec.field(default=None, name="inputTokens")
    output_tokens_camel: int | None = msgspec.field(default=None, name="outputTokens")


_MARKS: Final = re.compile(rb'[uU]sage"|[uU]sage_?[mM]etadata"|"timings"|eval_count"|invocationMetrics"|"billed_')
_BLOCKS: Final = frozenset(
    (
        *("usage", "usageMetadata", "usage_metadata", "token_usage", "tokenUsage", "token_count", "timings"),
        *("amazon-bedrock-invocationMetrics", "billed_units"),
    )
)
"""Members that are a block of usage."""
_AROUND: Final = frozenset(("meta", "metadata", "extra", "response", "result", "message", "provider_metadata"))
"""Members that may have such a block inside."""
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_choices = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_decode = msgspec.json.Decoder(_Usage | None).decode
_decode_loosely = msgspec.json.Decoder(dict[str, Any]).decode
_NO_INPUT: Final = _InputDetails()
_NO_OUTPUT: Final = _OutputDetails()
_NOT_WRITTEN: Final = _Written()
_TOTALS: Final = frozenset(
    (
        "prompt_tokens",
        "completion_tokens",
        "input_tokens",
        "output_tokens",
        "promptTokenCount",
        "candidatesTokenCount",
    )
)


def tokens(block: Raw) -> TokenUsage | None:
    """The counts of a usage block; a missing count is 0.

    None (unknown, not 0) for null, another shape, a block without any count, or a total that is not a number.
    """
    try:
        usage = _decode(block)
    except msgspec.ValidationError:
        usage = _read_loosely(block)
    except (msgspec.DecodeError, RecursionError):
        return None
    if usage is None:
        return None
    if usage.prompt_tokens is not None or usage.completion_tokens is not None:
        return _openai(usage)
    if usage.input_tokens is not None or usage.output_tokens is not None:
        return _anthropic(usage) if usage.input_tokens_details is None else _responses(usage)
    if usage.prompt_token_count is not None or usage.candidates_token_count is not None:
        return _gemini(usage)
    if usage.predicted_n is not None or usage.prompt_n is not None:
        cached = max(0, usage.cache_n or 0)
        return _tokens(max(0, usage.prompt_n or 0) + cached, usage.predicted_n or 0, cached, 0)
    for input_, output in (
        (usage.prompt_eval_count, usage.eval_count),
        (usage.input_token_count, usage.output_token_count),
        (usage.input_tokens_camel, usage.output_tokens_camel),
    ):
        if input_ is not None or output is not None:
            return _tokens(input_ or 0, output or 0, 0, 0)
    # DeepSeek may send only the two halves; Voyage and others send only the total for embeddings.
    halves = (usage.prompt_cache_hit_tokens or 0) + (usage.prompt_cache_miss_tokens or 0)
    if not halves and usage.total_tokens is None:
        return None
    return _tokens(halves or usage.total_tokens or 0, 0, usage.prompt_cache_hit_tokens or 0, 0)


def elsewhere(text: bytes) -> TokenUsage | None:
    """The usage of an answer or chunk that has none at the top: of its choices (Moonshot), in an `x_groq` or
    another extension, or in members that engines and clouds add. None if there is none.
    """
    if _MARKS.search(text) is None:
        return None
    try:
        fields = _decode_members(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    for name, block in fields.items():
        if name in _BLOCKS or name.startswith(("x_", "x-")):
            used = tokens(block) or _inner(block, _BLOCKS)
        elif name in _AROUND:
            used = _inner(block, _BLOCKS)
        else:
            continue
        if used is not None:
            return used
    if "choices" in fields and (used := _of_choices(fields["choices"])) is not None:
        return used
    return tokens(Raw(text))


def _inner(block: Raw, names: frozenset[str]) -> TokenUsage | None:
    """The usage among the members of an object."""
    try:
        fields = _decode_members(block)
    except (msgspec.DecodeError, RecursionError):
        return None
    for name in names & fields.keys():
        if (used := tokens(fields[name])) is not None:
            return used
    return None


def _of_choices(listed: Raw) -> TokenUsage | None:
    """The usage of all choices: each has the same input and an output of its own."""
    try:
        choices = _decode_choices(listed)
    except (msgspec.DecodeError, RecursionError):
        return None
    total: TokenUsage | None = None
    for choice in choices:
        used = next(
            (
                used
                for used in (
                    tokens(choice[name]) if name == "usage" else _inner(choice[name], _BLOCKS)
                    for name in ("usage", "delta", "message")
                    if name in choice
                )
                if used is not None
            ),
            None,
        )
        if used is not None:
            total = used if total is None else added(total, used)
    return total


def added(one: TokenUsage, other: TokenUsage) -> TokenUsage:
    """The usage of two choices of one answer, which share their input."""
    most = one if one.input >= other.input else other
    return most._replace(output=one.output + other.output, reasoning=one.reasoning + other.reasoning)


def grown(earlier: TokenUsage, later: TokenUsage) -> TokenUsage:
    """The usage of an answer that reports its totals several times; a report without a count leaves it as it was."""
    return _tokens(*map(max, earlier, later))


def _openai(usage: _Usage) -> TokenUsage:
    input_, output = usage.prompt_tokens or 0, usage.completion_tokens or 0
    details, output_details = usage.prompt_tokens_details, usage.completion_tokens_details
    cached = (details.cached_tokens if details is not None else None) or (
        usage.prompt_cache_hit_tokens or usage.cache_read_input_tokens or usage.cached_tokens or 0
    )
    reasoning = (output_details.reasoning_tokens if output_details is not None else None) or 0
    surplus = (usage.total_tokens or 0) - input_ - output
    if usage.total_tokens is None and reasoning > output:
        surplus = reasoning
    written = usage.cache_creation_input_tokens or 0
    if 0 < surplus == (usage.cache_read_input_tokens or 0) + written:  # `prompt_tokens` excludes them here
        input_, surplus = input_ + surplus, 0
    # A total that is larger for another reason adds nothing to the output.
    if surplus > 0 and usage.completion_tokens is not None and reasoning in (0, surplus):
        output, reasoning = output + surplus, surplus
    if details is not None:
        written = details.cache_write_tokens or details.cache_creation_tokens or written
    long = (usage.cache_creation or _NOT_WRITTEN).ephemeral_1h_input_tokens or 0
    return _tokens(input_, output, cached, reasoning, written, long)


def _anthropic(usage: _Usage) -> TokenUsage:
    read, parts = usage.cache_read_input_tokens or 0, usage.cache_creation or _NOT_WRITTEN
    long = max(0, parts.ephemeral_1h_input_tokens or 0)
    written = usage.cache_creation_input_tokens or long + (parts.ephemeral_5m_input_tokens or 0)
    input_ = max(0, usage.input_tokens or 0) + max(0, read) + max(0, written)
    thinking = (usage.output_tokens_details or _NO_OUTPUT).thinking_tokens or 0
    return _tokens(input_, usage.output_tokens or 0, read, thinking, written, long)


def _responses(usage: _Usage) -> TokenUsage:
    """OpenAI's newer names; totals include details, as with the older ones."""
    input_details = usage.input_tokens_details or _NO_INPUT
    output_details = usage.output_tokens_details or _NO_OUTPUT
    return _tokens(
        usage.input_tokens or 0,
        usage.output_tokens or 0,
        input_details.cached_tokens or 0,
        output_details.reasoning_tokens or 0,
        input_details.cache_write_tokens or 0,
    )


def _gemini(usage: _Usage) -> TokenUsage:
    thoughts = max(0, usage.thoughts_token_count or 0)
    input_ = max(0, usage.prompt_token_count or 0) + max(0, usage.tool_use_prompt_token_count or 0)
    output = max(0, usage.candidates_token_count or 0) + thoughts
    return _tokens(input_, output, usage.cached_content_token_count or 0, thoughts)


def _tokens(input_: int, output: int, cached: int, reasoning: int, written: int = 0, long: int = 0) -> TokenUsage:
    """The counts clamped: none negative or absurd, no detail larger than its total."""
    if 0 <= cached <= input_ <= MOST and 0 <= reasoning <= output <= MOST and 0 <= long <= written <= input_ - cached:
        return TokenUsage(input_, output, cached, reasoning, written, long)
    input_, output = min(max(input_, 0), MOST), min(max(output, 0), MOST)
    cached = min(max(cached, 0), input_)
    written = min(max(written, 0), input_ - cached)
    reasoning, long = min(max(reasoning, 0), output), min(max(long, 0), written)
    return TokenUsage(input_, output, cached, reasoning, written, long)


def _read_loosely(block: Raw) -> _Usage | None:
    """Read a block with values of the wrong type: floats without a fraction count, other details are 0."""
    try:
        fields = _decode_loosely(block)
    except (msgspec.DecodeError, RecursionError):
        return None
    usage: dict[str, object] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            usage[name] = {detail: _count(count) for detail, count in value.items()}
        else:
            usage[name] = _count(value)
            if usage[name] is None and value is not None and name in _TOTALS:
                return None
    try:
        return msgspec.convert(usage, _Usage)
    except msgspec.ValidationError:
        return None


def _count(value: object) -> int | None:
    if isinstance(value, float) and abs(value) <= MOST:
        return int(value) if value == int(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
