"""Recognises upstream errors that say a prompt exceeds the model's context window.

Every engine has its own wording, some change it with each release, and few send an error code for it. The
patterns come from the engines' sources and issue trackers; the tests list each message with its source. An
answer that is too long by itself (`max_tokens` above the model's output limit) is not an overflow: a larger
context does not help.
"""

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Overflow:
    """Tokens needed by the call, and the limit it exceeded; None if the upstream does not say.

    `needed` includes the answer if the upstream counts it; `answer` is that part.
    """

    needed: int | None
    limit: int | None
    answer: int = 0


_LABELS: Final = frozenset({"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"})

_FORMS: Final = re.compile(
    r"context_length_exceeded|exceed_context_size_error"
    r"|maximum context length is \d"  # OpenAI, vLLM, DeepSeek, OpenRouter
    r"|exceeds (?:the )?model's maximum context length"  # SGLang
    r"|longer than the (?:model's context|maximum model) length"  # SGLang, vLLM's engine
    r"|model's context length is only \d"  # vLLM from 0.14
    r"|(?:exceeds|larger than) the (?:available|max) context size|context size has been exceeded"  # llama.cpp
    r"|prompt is too long|exceed context limit"  # Anthropic
    r"|token count (?:\(\d+\) )?exceeds the maximum number of tokens allowed"  # Gemini
    r"|`?inputs`? tokens \+ `?max_new_tokens`? must be <="  # TGI
    r"|`?inputs`? must have less than \d+ tokens"  # TGI, TEI
    r"|too large for model with \d+ maximum context"  # Mistral
    r"|input length exceeds the context length|exceeded max context length"  # Ollama
    r"|exceeds the context window of this model"  # OpenAI's newer models
    r"|tokens exceed the configured limit"  # OpenAI's newer models
    r"|maximum prompt length is \d"  # xAI
    r"|exceeded model token limit"  # Moonshot
    r"|input is too long for requested model"  # Bedrock
    r"|reduce the length of the messages"  # Groq, which gives no numbers
)

_NUMBER: Final = r"(\d{1,12})"
_LIMIT: Final = re.compile(
    r"(?:context length (?:is |is only |of |\()|model length of |context size \(|maximum prompt length is "
    r"|> |<= |less than |allowed \(?|model with |token limit: |configured limit of )" + _NUMBER
)
# The most reliable pattern first; the numbers of one pattern are added up.
_NEEDED: Final = tuple(
    re.compile(form.replace("N", _NUMBER))
    for form in (
        r"too large: N\. .{1,80} has N input tokens",
        r"passed N input tokens and requested N output",
        r"context limit: N \+ N",
        r"given: N `?inputs`? tokens and N",
        r"given: N",
        r"(?:requested(?: about| a total of)?|total of at least|resulted in|too long:|contains) N tokens",
        r"(?:has|passed) N input tokens",
        r"\((?:length )?N(?: tokens)?\) (?:exceeds|is l|plus)",
        r"length of N is longer",
        r"\(requested: N\)",
    )
)

_ANSWER: Final = re.compile(
    r"N (?:tokens )?(?:in|for) the (?:completion|output)|requested N output|too large: N\. "
    r"|limit: \d{1,12} \+ N|tokens and N `?max_new_tokens".replace("N", _NUMBER)
)

_MAX_CHARACTERS: Final = 2000
"""Characters of a message that are searched, so that no upstream can make the search slow."""


def overflow(message: str, *labels: str | None) -> Overflow | None:
    """The overflow that an upstream's error reports; None if the error is about something else.

    `labels` are the error's code and type, if any.
    """
    text = message[:_MAX_CHARACTERS].lower()
    if _LABELS.isdisjoint(labels) and _FORMS.search(text) is None:
        return None
    limit = _LIMIT.search(text)
    needed = next((sum(map(int, match.groups())) for form in _NEEDED if (match := form.search(text))), None)
    match_answer = _ANSWER.search(text)
    answer = next(int(number) for number in match_answer.groups() if number) if match_answer is not None else 0
    return Overflow(needed, int(limit[1]) if limit else None, min(answer, needed or 0))
