"""One reading of every dialect of usage: what an upstream counted, in `Tokens`, whose parts are all subsets.

OpenAI, vLLM, SGLang, Mistral, Moonshot, OpenRouter: `prompt_tokens`, `completion_tokens`; what was read from
and written to the provider's cache stands in `prompt_tokens_details`, reasoning in
`completion_tokens_details`, as parts of them. DeepSeek names the cached part `prompt_cache_hit_tokens`;
proxies put Anthropic's names beside `prompt_tokens`, where they are parts of it too. xAI and the OpenAI layer
of Gemini count reasoning beside `completion_tokens`: only `total_tokens` has it. Anthropic's `input_tokens`
has neither what was read from the cache nor what was written to it. Gemini's own `candidatesTokenCount` is
without the thoughts.
"""

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from gateway.core.call import TokenUsage

MOST: Final = 10**9
"""More tokens than any call uses. An upstream may say nonsense, which must not ruin an account."""


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
    """The counts of a usage block; what is missing counts as 0.

    None for null, for another shape, for a block without any count, and where a total is no number: then
    nothing is known, which is not 0.
    """
    try:
        usage = _decode(block)
    except msgspec.ValidationError:
        usage = _loosely(block)
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
    # DeepSeek's halves without their sum; Voyage and others tell of embeddings only the total.
    halves = (usage.prompt_cache_hit_tokens or 0) + (usage.prompt_cache_miss_tokens or 0)
    if not halves and usage.total_tokens is None:
        return None
    return _tokens(halves or usage.total_tokens or 0, 0, usage.prompt_cache_hit_tokens or 0, 0)


def _openai(usage: _Usage) -> TokenUsage:
    given, made = usage.prompt_tokens or 0, usage.completion_tokens or 0
    details, more = usage.prompt_tokens_details, usage.completion_tokens_details
    cached = (details.cached_tokens if details is not None else None) or (
        usage.prompt_cache_hit_tokens or usage.cache_read_input_tokens or usage.cached_tokens or 0
    )
    reasoning = (more.reasoning_tokens if more is not None else None) or 0
    beside = (usage.total_tokens or 0) - given - made
    if usage.total_tokens is None and reasoning > made:
        beside = reasoning
    written = usage.cache_creation_input_tokens or 0
    if 0 < beside == (usage.cache_read_input_tokens or 0) + written:  # they are beside it after all
        given, beside = given + beside, 0
    # A total that is larger for another reason does not turn anything into output.
    if beside > 0 and usage.completion_tokens is not None and reasoning in (0, beside):
        made, reasoning = made + beside, beside
    if details is not None:
        written = details.cache_write_tokens or details.cache_creation_tokens or written
    long = (usage.cache_creation or _NOT_WRITTEN).ephemeral_1h_input_tokens or 0
    return _tokens(given, made, cached, reasoning, written, long)


def _anthropic(usage: _Usage) -> TokenUsage:
    read, parts = usage.cache_read_input_tokens or 0, usage.cache_creation or _NOT_WRITTEN
    long = max(0, parts.ephemeral_1h_input_tokens or 0)
    written = usage.cache_creation_input_tokens or long + (parts.ephemeral_5m_input_tokens or 0)
    given = max(0, usage.input_tokens or 0) + max(0, read) + max(0, written)
    thinking = (usage.output_tokens_details or _NO_OUTPUT).thinking_tokens or 0
    return _tokens(given, usage.output_tokens or 0, read, thinking, written, long)


def _responses(usage: _Usage) -> TokenUsage:
    """OpenAI's newer names: as its older ones, all parts are subsets."""
    details, more = usage.input_tokens_details or _NO_INPUT, usage.output_tokens_details or _NO_OUTPUT
    return _tokens(
        usage.input_tokens or 0,
        usage.output_tokens or 0,
        details.cached_tokens or 0,
        more.reasoning_tokens or 0,
        details.cache_write_tokens or 0,
    )


def _gemini(usage: _Usage) -> TokenUsage:
    thoughts = max(0, usage.thoughts_token_count or 0)
    given = max(0, usage.prompt_token_count or 0) + max(0, usage.tool_use_prompt_token_count or 0)
    made = max(0, usage.candidates_token_count or 0) + thoughts
    return _tokens(given, made, usage.cached_content_token_count or 0, thoughts)


def _tokens(
    given: int, made: int, cached: int, reasoning: int, written: int = 0, long: int = 0
) -> TokenUsage:
    """Kept within bounds: nothing negative, nothing absurd, no part larger than its whole."""
    if (
        0 <= cached <= given <= MOST
        and 0 <= reasoning <= made <= MOST
        and 0 <= long <= written <= given - cached
    ):
        return TokenUsage(given, made, cached, reasoning, written, long)
    given, made = min(max(given, 0), MOST), min(max(made, 0), MOST)
    cached = min(max(cached, 0), given)
    written = min(max(written, 0), given - cached)
    return TokenUsage(given, made, cached, min(max(reasoning, 0), made), written, min(max(long, 0), written))


def _loosely(block: Raw) -> _Usage | None:
    """A block with something else where a whole number belongs: whole floats count, other parts are 0."""
    try:
        found = _decode_loosely(block)
    except (msgspec.DecodeError, RecursionError):
        return None
    usage: dict[str, object] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            usage[name] = {inner: _count(one) for inner, one in value.items()}
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
