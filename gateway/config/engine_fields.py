"""The request fields that steer the engine; a key may be allowed to send them."""

from typing import Literal

EngineField = Literal[
    "*",
    "cache_salt",
    "chat_template",
    "ec_transfer_params",
    "kv_transfer_params",
    "logits_processors",
    "media_io_kwargs",
    "mm_payload",
    "mm_processor_kwargs",
    "priority",
    "prompt_embeds",
    "request_id",
    "session_id",
    "vllm_xargs",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "custom_logit_processor",
    "data_parallel_rank",
    "extra_key",
    "input_embeds",
    "lora_path",
    "rid",
    "session_params",
    "id_slot",
    "lora",
]
"""A field that steers the engine (`wire/openai/request_limits.py` has the same list); `*` is all of them."""
