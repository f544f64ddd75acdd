"""ROUTE-01: a prompt that is too long is recognised in everybody's words, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.openai.overflow_messages import Overflow, overflow

# Where a wording is from stands before it: a file of the engine's own source, or a report with the message.
WORDINGS = {
    # OpenAI; crewAIInc/crewAI-examples#121
    "openai chat": (
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 8227 tokens. "
        "Please reduce the length of the messages.",
        (8227, 8192),
    ),
    # OpenAI; FoundationAgents/OpenManus#62
    "openai with functions": (
        "This model's maximum context length is 8192 tokens. However, you requested 8213 tokens (6683 in the "
        "messages, 730 in the functions, and 800 in the completion). Please reduce the length of the "
        "messages, functions, or completion.",
        (8213, 8192),
    ),
    # OpenAI's completions and embeddings; aboutmydreams/custom_data_gpt#2
    "openai completions": (
        "This model's maximum context length is 4097 tokens, however you requested 6539 tokens (6283 in your "
        "prompt; 256 for the completion). Please reduce your prompt; or completion length.",
        (6539, 4097),
    ),
    # OpenAI's embeddings
    "openai input": ("Invalid 'input': maximum context length is 8192 tokens.", (None, 8192)),
    # OpenAI's newer models
    "openai window": ("Your input exceeds the context window of this model", (None, None)),
    "openai configured": (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens. "
        "Please reduce the length of the messages.",
        (509178, 272000),
    ),
    # vllm/entrypoints/openai/serving_engine.py, 0.5
    "vllm 0.5": (
        "This model's maximum context length is 32768 tokens. However, you requested 33077 tokens (32565 in "
        "the messages, 512 in the completion). Please reduce the length of the messages or completion.",
        (33077, 32768),
    ),
    "vllm 0.5 without max_tokens": (
        "This model's maximum context length is 32768 tokens. However, you requested 33077 tokens in the "
        "messages, Please reduce the length of the messages.",
        (33077, 32768),
    ),
    "vllm 0.5 embeddings": (
        "This model's maximum context length is 512 tokens. However, you requested 600 tokens in the input "
        "for embedding generation. Please reduce the length of the input.",
        (600, 512),
    ),
    # the same file, 0.11 to 0.13
    "vllm 0.11": (
        "This model's maximum context length is 2048 tokens. However, your request has 2100 input tokens. "
        "Please reduce the length of the input messages.",
        (2100, 2048),
    ),
    "vllm 0.11 with max_tokens": (
        "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is "
        "65536 tokens and your request has 63366 input tokens (4096 > 65536 - 63366). (parameter=max_tokens, "
        "value=4096)",
        (67462, 65536),
    ),
    # vllm/renderers/params.py, 0.14 and later
    "vllm 0.16": (
        "You passed 10243 input tokens and requested 6142 output tokens. However, the model's context length "
        "is only 16384 tokens, resulting in a maximum input length of 10242 tokens. Please reduce the length "
        "of the input prompt. (parameter=input_tokens, value=10243)",
        (16385, 16384),
    ),
    "vllm 0.15": (
        "You passed 65537 input tokens and requested 0 output tokens. However, the model's context length is "
        "only 65536, resulting in a maximum input length of 65536. Please reduce the length of the input "
        "messages.",
        (65537, 65536),
    ),
    "vllm with a sum": (
        "This model's maximum context length is 16384 tokens. However, you requested 8192 output tokens and "
        "your prompt contains at least 8193 input tokens, for a total of at least 16385 tokens.",
        (16385, 16384),
    ),
    # vLLM's engine; xorbitsai/inference#3785 and unslothai/unsloth#2666
    "vllm engine": (
        "The decoder prompt (length 21535) is longer than the maximum model length of 16384. Make sure that "
        "`max_model_len` is no smaller than the number of text tokens.",
        (21535, 16384),
    ),
    "vllm engine with one token": (
        "The decoder prompt (length 36864) plus the number of requested output tokens (at least 1) is longer "
        "than the maximum model length of 36864.",
        (36864, 36864),
    ),
    # sglang/srt/managers/tokenizer_manager.py
    "sglang input": (
        "The input (40000 tokens) is longer than the model's context length (32768 tokens).",
        (40000, 32768),
    ),
    "sglang total": (
        "Requested token count exceeds the model's maximum context length of 64000 tokens. You requested a "
        "total of 71897 tokens: 7897 tokens from the input messages and 64000 tokens for the completion. "
        "Please reduce the number of tokens in the input messages or the completion to fit within the limit.",
        (71897, 64000),
    ),
    "sglang length": (
        "Input length (265330) exceeds model's maximum context length (262144).",
        (265330, 262144),
    ),
    # llama.cpp, tools/server/server-context.cpp of several builds
    "llama.cpp": (
        "request (67374 tokens) exceeds the available context size (65536 tokens), try increasing it",
        (67374, 65536),
    ),
    "llama.cpp 2025": ("the request exceeds the available context size, try increasing it", (None, None)),
    "llama.cpp larger": (
        "input (9000 tokens) is larger than the max context size (8192 tokens). skipping",
        (9000, 8192),
    ),
    "llama.cpp decoding": ("Context size has been exceeded.", (None, None)),
    # DeepSeek; evalstate/fast-agent#621
    "deepseek": (
        "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 "
        "in the messages, 8192 in the completion). Please reduce the length of the messages or completion.",
        (131134, 131072),
    ),
    # Anthropic's API
    "anthropic": ("prompt is too long: 213462 tokens > 200000 maximum", (213462, 200000)),
    "anthropic with max_tokens": (
        "input length and `max_tokens` exceed context limit: 188059 + 20000 > 200000, decrease input length "
        "or `max_tokens` and try again",
        (208059, 200000),
    ),
    # Gemini's API
    "gemini": (
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        (1196265, 1048575),
    ),
    "gemini without": (
        "The input token count exceeds the maximum number of tokens allowed 1048576.",
        (None, 1048576),
    ),
    # TGI and TEI; huggingface/huggingface_hub#2763, opea-project/GenAIExamples#340
    "tgi": (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 8740 `inputs` "
        "tokens and 500 `max_new_tokens`",
        (9240, 4096),
    ),
    "tgi inputs": (
        "Input validation error: `inputs` must have less than 512 tokens. Given: 1055",
        (1055, 512),
    ),
    # Mistral's API
    "mistral": (
        "Prompt contains 235396 tokens and 0 draft tokens, too large for model with 131072 maximum context length",
        (235396, 131072),
    ),
    "openrouter": (
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 200000 tokens "
        "(190000 of text input, 10000 in the output).",
        (200000, 131072),
    ),
    "xai": (
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        (537812, 131072),
    ),
    "moonshot": ("Your request exceeded model token limit: 256000 (requested: 300000)", (300000, 256000)),
    "ollama": ("the input length exceeds the context length", (None, None)),
    "ollama by": ("prompt too long; exceeded max context length by 100918 tokens", (None, None)),
    "bedrock": ("Input is too long for requested model.", (None, None)),
    "groq": ("Please reduce the length of the messages or completion.", (None, None)),
}

# Of the numbers above, what is the answer's.
ANSWERS = {
    "openai with functions": 800,
    "openai completions": 256,
    "vllm 0.5": 512,
    "vllm 0.11 with max_tokens": 4096,
    "vllm 0.16": 6142,
    "vllm with a sum": 8192,
    "sglang total": 64000,
    "deepseek": 8192,
    "anthropic with max_tokens": 20000,
    "tgi": 500,
    "openrouter": 10000,
}

OTHERS = [
    # Too long an answer, by itself: OpenAI, Anthropic, DeepSeek (deepseek-ai/DeepSeek-V2#34), vLLM (#4667).
    "max_tokens is too large: 30000. This model supports at most 16384 completion tokens, whereas you provided 30000.",
    "max_tokens: 30000 > 16000, which is the maximum allowed number of output tokens for the model",
    "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    "max_tokens must be at least 1, got -186.",
    "`max_new_tokens` must be <= 1",
    # Limits of another kind.
    "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000.",
    "Invalid 'input': maximum request size is 300000 tokens per request.",
    "Invalid 'messages[0].content': string too long. Expected a string with maximum length 1048576.",
    "Request exceeds the maximum size",
    "input (900 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
    "truncate_prompt_tokens value (9000) is greater than max_model_len (8192). Please, select a smaller "
    "truncation size.",
    # Other mistakes.
    "'temperature' must be at most 2",
    "The model `big-context` does not exist",
    "Unrecognized request argument supplied: context_length",
    "",
]


@pytest.mark.parametrize("name", WORDINGS)
def test_route_01_everybodys_words_are_understood(name: str):
    message, numbers = WORDINGS[name]
    told = Overflow(*numbers, ANSWERS.get(name, 0))
    assert overflow(message) == told
    assert overflow(f"Error code: 400 - litellm.BadRequestError: {message.upper()}") == told


@pytest.mark.parametrize("message", OTHERS)
def test_route_01_other_refusals_are_not(message: str):
    assert overflow(message, "400", "invalid_request_error", None) is None


@pytest.mark.parametrize(
    "label", ["context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"]
)
def test_a_code_or_a_type_of_its_own_is_enough(label: str):
    assert overflow("too much", label, None) == Overflow(None, None)
    assert overflow("too much", "400", label) == Overflow(None, None)


def test_only_the_beginning_of_a_long_message_is_searched():
    assert overflow("x" * 3000 + " prompt is too long") is None
    assert overflow("prompt is too long: " + "9" * 5000 + " tokens > " + "9" * 5000) == Overflow(None, None)


@given(st.lists(st.sampled_from([words for words, _ in WORDINGS.values()] + OTHERS), max_size=4), st.text())
def test_no_text_is_too_odd(parts: list[str], odd: str):
    found = overflow(odd.join(parts), odd)
    assert found is None or found.limit is None or found.limit >= 0
