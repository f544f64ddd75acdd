"""LiteLLM's fields by name: those that are converted, and advice for the others."""

import re
from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


SERVED: Final = {None, "chat", "completion", "embedding", "embeddings", "responses"}
"""Modes of models that the gateway has endpoints for."""

OTHER_ENDPOINTS: Final = re.compile(
    r"rerank|whisper|(?:^|[/-])tts(?:-|$)|dall-e|gpt-image|moderation|stable-diffusion|imagen-|(?:^|/)veo-"
    r"|(?:^|/)sora-|-realtime|-transcribe",
    re.IGNORECASE,
)
"""Names of models that answer on other endpoints, where no mode says so."""

SECRET_HEADER_WORDS: Final = _words("auth cookie credential key pass secret session token")
"""Words in the names of headers whose values are secrets."""

CAPABILITIES: Final = {
    "tools": "supports_function_calling",
    "vision": "supports_vision",
    "json_schema": "supports_response_schema",
    "audio": "supports_audio_input",
}
"""The gateway's capabilities, and LiteLLM's fields for them."""

_PRICES: Final = _words("input_cost_per_token output_cost_per_token cache_read_input_token_cost")

PARAMS: Final = frozenset(
    _words(
        "model api_base base_url api_key rpm tpm weight order max_parallel_requests timeout stream_timeout "
        "organization extra_headers headers custom_llm_provider litellm_credential_name"
    )
    + _PRICES
)

INFO: Final = frozenset(
    _words(
        "id mode max_tokens max_input_tokens max_output_tokens description cooldown_time allowed_fails "
        "db_model supports_tool_choice litellm_provider"
    )
    + _PRICES
    + tuple(CAPABILITIES.values())
)

_BODY: Final = "LiteLLM adds it to bodies; here bodies pass unchanged, so let the clients send it"
_KEYS: Final = "list the models of each key in keys.models"
_RETRIES: Final = "there is one number of attempts for all, retry.attempts"
_MONEY: Final = "budgets belong to keys and are by day: keys.limits.usd_per_day"
_PERIOD: Final = "a budget is for a day, keys.limits.usd_per_day; there are none by week or month"
_CALLBACKS: Final = "requests are not sent anywhere; see /metrics on the admin port and the log"
_OWN_KEYS: Final = "keys are part of the config; give each its name, models and limits under keys"
_HANDLED: Final = "needs nothing here"

DEPLOYMENT_ADVICE: Final = {
    **dict.fromkeys(
        _words(
            "temperature max_tokens max_completion_tokens top_p top_k stop seed presence_penalty n tools "
            "user frequency_penalty tool_choice response_format extra_body reasoning_effort thinking "
            "logit_bias dimensions"
        ),
        _BODY,
    ),
    "api_version": "belongs to Azure; left out",
    "tags": "requests are not routed by tags; give the deployment its own public model",
    "max_retries": _RETRIES,
    "num_retries": _RETRIES,
    "input_cost_per_second": "prices are per token; set price of the candidate",
    "access_groups": _KEYS,
    "team_id": _KEYS,
    "base_model": "the price catalogue uses the name sent upstream; set price if that is another",
    "mock_response": "there are no mock answers; left out",
    "max_budget": _MONEY,
    "budget_duration": _PERIOD,
}

ROUTER: Final = frozenset(
    _words(
        "routing_strategy num_retries retry_after allowed_fails cooldown_time fallbacks default_fallbacks "
        "timeout context_window_fallbacks model_group_alias redis_url redis_host redis_port redis_password "
        "redis_username redis_ssl stream_timeout default_max_parallel_requests cache_responses"
    )
)

ROUTER_ADVICE: Final = {
    "enable_pre_call_checks": _HANDLED + ": prompts are checked against context_window where it is known",
    "disable_cooldowns": "there is always a breaker; a large breaker.failures comes close",
    "retry_policy": "which failures are retried is fixed, see docs/failure.md",
    "model_group_retry_policy": "which failures are retried is fixed, see docs/failure.md",
    "allowed_fails_policy": "which failures count is fixed, see docs/failure.md",
    "content_policy_fallbacks": "an upstream's refusal of content goes to the client; left out",
    "enable_tag_filtering": "requests are not routed by tags; give deployments their own public models",
    "routing_strategy_args": "the strategies take no arguments; left out",
    "provider_budget_config": _MONEY,
    "set_verbose": "set log.level: debug",
    "debug_level": "set log.level: debug",
}

LITELLM: Final = frozenset(
    _words(
        "num_retries request_timeout fallbacks default_fallbacks context_window_fallbacks allowed_fails "
        "cooldown_time cache cache_params json_logs set_verbose"
    )
)

LITELLM_ADVICE: Final = {
    "drop_params": "bodies pass unchanged; an upstream rejects fields that it does not support",
    "modify_params": "bodies pass unchanged",
    "telemetry": _HANDLED + ": nothing is sent anywhere",
    "turn_off_message_logging": _HANDLED + ": bodies are never logged",
    "redact_user_api_key_info": _HANDLED + ": keys are never logged",
    "content_policy_fallbacks": ROUTER_ADVICE["content_policy_fallbacks"],
    **dict.fromkeys(_words("callbacks success_callback failure_callback service_callback"), _CALLBACKS),
    **dict.fromkeys(_words("max_budget max_user_budget max_internal_user_budget"), _MONEY),
    **dict.fromkeys(_words("budget_duration internal_user_budget_duration"), _PERIOD),
    "default_team_settings": _OWN_KEYS,
    "default_internal_user_params": _OWN_KEYS,
}

GENERAL: Final = frozenset(_words("master_key max_request_size_mb"))

GENERAL_ADVICE: Final = {
    "database_url": "there is no database: virtual keys, teams and their budgets must be written under keys, "
    "spend begins at 0",
    **dict.fromkeys(_words("store_model_in_db store_prompts_in_spend_logs database_connection_pool_limit"), _HANDLED),
    **dict.fromkeys(_words("alerting alerting_threshold alert_types alert_to_webhook_url"), "alert on /metrics"),
    **dict.fromkeys(_words("custom_auth enable_jwt_auth litellm_jwtauth allow_user_auth"), _OWN_KEYS),
    **dict.fromkeys(
        _words("max_parallel_requests global_max_parallel_requests"),
        "set keys.limits.concurrency, or max_concurrency of the upstreams",
    ),
    "background_health_checks": _HANDLED + ": upstreams are judged by their answers and retried when down",
    "health_check_interval": _HANDLED,
    "pass_through_endpoints": "there are OpenAI's endpoints only; left out",
    "forward_client_headers_to_llm_api": "name the headers in forward_headers of the upstream",
    "infer_model_from_keys": _HANDLED,
    "proxy_batch_write_at": _HANDLED,
    "disable_spend_logs": "set usage.store: off",
}

TOP: Final = frozenset(
    _words("model_list router_settings litellm_settings general_settings credential_list environment_variables")
)

TOP_ADVICE: Final = {
    "include": "other files are not read; import each of them, or merge them into one",
    "guardrails": "there are no guardrails; left out",
    "mcp_servers": "there is no MCP; left out",
    "files_settings": "there are no files and batches; left out",
    "finetune_settings": "there is no fine-tuning; left out",
}
