"""The members of a request's body that the gateway reads, of every endpoint, decoded once."""

from typing import Annotated, Any, Final

from msgspec import Meta, Raw, Struct

# Engines also parse numbers in strings. Without letters none is "NaN", "Infinity" or "1e999".
_Text = Annotated[str, Meta(pattern=r"^[^A-Za-z]*$", max_length=64)]
_Other = bool | list[Any] | dict[str, Any] | None
_Real = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float | _Text | _Other
"""A value in place of a number: never NaN or infinite, not even once converted to a float."""
_Whole = int | float | _Text | _Other
"""The same for integers, which may be as long as Python's limit of digits allows."""

ABSENT: Final = Raw(b"")


class RequestFields(Struct, dict=True):
    """Values of top-level members; None, or ABSENT for those kept as JSON, where the member is missing.

    Decoding checks the numbers. A member that an endpoint does not have is never set by its clients, or ignored.
    `dict=True`: readers may keep there what they have decoded of a member.
    """

    model: Any = None
    stream: Any = None
    stream_format: Any = None
    previous_response_id: Any = None
    store: Any = None
    # Kept as JSON, for readers that need to look inside.
    messages: Raw = ABSENT
    prompt: Raw = ABSENT
    suffix: Raw = ABSENT
    input: Raw = ABSENT
    instructions: Raw = ABSENT
    system: Raw = ABSENT
    query: Raw = ABSENT
    documents: Raw = ABSENT
    text: Raw = ABSENT
    text_1: Raw = ABSENT
    text_2: Raw = ABSENT
    tools: Raw = ABSENT
    functions: Raw = ABSENT
    response_format: Raw = ABSENT
    modalities: Raw = ABSENT
    stream_options: Raw = ABSENT
    # Numbers, checked by the decoder itself.
    temperature: _Real = None
    max_tokens: _Whole = None
    max_completion_tokens: _Whole = None
    max_output_tokens: _Whole = None
    top_p: _Real = None
    top_k: _Whole = None
    seed: _Whole = None
    frequency_penalty: _Real = None
    presence_penalty: _Real = None
    logit_bias: _Real = None
    min_p: _Real = None
    repetition_penalty: _Real = None
    length_penalty: _Real = None
    min_tokens: _Whole = None
    truncate_prompt_tokens: _Whole = None
    thinking_token_budget: _Whole = None
    dimensions: _Whole = None
    # Multiply the work of a call.
    n: _Whole = None
    best_of: _Whole = None
    logprobs: _Whole = None
    top_logprobs: _Whole = None
    prompt_logprobs: _Whole = None
    stop: Any = None
    stop_token_ids: Any = None
    bad_words: Any = None
    # Steer the engine. vLLM's:
    cache_salt: Any = None
    chat_template: Any = None
    ec_transfer_params: Any = None
    kv_transfer_params: Any = None
    logits_processors: Any = None
    media_io_kwargs: Any = None
    mm_payload: Any = None
    mm_processor_kwargs: Any = None
    priority: Any = None
    prompt_embeds: Any = None
    request_id: Any = None
    session_id: Any = None
    vllm_xargs: Any = None  # may contain kv_transfer_params
    # SGLang's:
    bootstrap_host: Any = None
    bootstrap_port: Any = None
    bootstrap_room: Any = None
    custom_logit_processor: Any = None
    data_parallel_rank: Any = None
    extra_key: Any = None
    input_embeds: Any = None
    lora_path: Any = None
    rid: Any = None
    session_params: Any = None
    # llama.cpp's:
    id_slot: Any = None
    lora: Any = None
