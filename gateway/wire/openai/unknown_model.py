"""Recognises that an upstream does not know the model's name, which comes from the config and not from the client."""

import re
from typing import Final

_MAX_SEARCHED: Final = 2000  # characters of a message
_STATUSES: Final = frozenset({400, 404, 422})

_CODES: Final = re.compile(
    # OpenAI, Groq; Azure; Alibaba; DeepSeek and one-api; Together
    r"model_not_found|deploymentnotfound|model_decommissioned|modelnotfound|model_not_exist|invalid_model"
    r"|model_not_available|unsupported_model|invalidmodel|model_deprecated|model_not_supported"
)
_GONE: Final = (
    r"(?:is |was |does |has been |are )?(?:currently )?"
    r"(?:not (?:found|exist|available|known|recogni[sz]ed|a valid model|loaded|deployed)|unknown|invalid|decommissioned"
    r"|deprecated|no longer (?:supported|available)|retired)"
)
_WORDS: Final = re.compile(
    # vLLM, OpenAI, Ollama, Gemini, Mistral, OpenRouter, DeepSeek, LiteLLM, llama-swap, Anthropic
    rf"\bmodels?\b[^.\n]{{0,120}}?\b{_GONE}\b"
    r"|\b(?:invalid|unknown|no such|unsupported|unrecogni[sz]ed) model\b"
    r"|\bnot a valid model\b|\bmodel not exist\b|\bcould not find (?:a |the |any )?(?:\w+ )?(?:\w+ for )?model\b"
    r"|^model: \S+$"
    r"|모델.{0,40}(?:없|존재하지)|模型.{0,40}(?:不存在|未找到)"
)
_ABOUT_ITS_USE: Final = re.compile(r"\b(?:parameter|tool|image|audio|response_format|reasoning_effort)s?\b")


def is_unknown_model(status: int, message: str, model: str, *labels: str | None) -> bool:
    """Whether an error says that there is no such model; `labels` are the error's code and type.

    Words count only where the message names the `model`, for a client may name others in other fields.
    """
    if status not in _STATUSES:
        return False
    if any(label is not None and _CODES.fullmatch(label.lower()) for label in labels):
        return True
    text = message[:_MAX_SEARCHED].lower()
    name = model.lower()
    named = name in text or name.rpartition("/")[2] in text or "model not exist" in text
    return named and _WORDS.search(text) is not None and _ABOUT_ITS_USE.search(text) is None
