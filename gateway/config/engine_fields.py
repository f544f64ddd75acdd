"""The fields of a request that steer the engine, and that a key may be allowed to send."""

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
"""Fields of a request that steer the engine (`wire/request_caps.py` has the same list), and all of them."""
