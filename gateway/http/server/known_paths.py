"""Paths of other gateways and servers, and what Sluice has in their place."""

import re
from typing import Final

from gateway.wire.openai.chat import CHAT

_KEYS: Final = "keys and their limits stand in the config; see /admin/config and "
_PROVIDER: Final = "call the provider directly"
_ENGINE: Final = "call the engine directly"

_PROVIDER_ONLY: Final = (
    *("uploads", "fine_tuning", "fine-tunes", "vector_stores", "realtime"),
    *("videos", "evals", "containers", "conversations", "organization", "chatkit", "skills", "edits"),
)
_ENGINE_ONLY: Final = (
    *("load_lora_adapter", "unload_lora_adapter", "version", "ping", "sleep", "wake_up", "is_sleeping"),
    *("server_info", "get_model_info", "slots", "props", "infill", "completion", "tokens"),
)
INSTEAD: Final = {
    **dict.fromkeys(("files", "batches"), "set batches.enabled, and it does"),
    **dict.fromkeys(_PROVIDER_ONLY, _PROVIDER),
    **dict.fromkeys(_ENGINE_ONLY, _ENGINE),
    "assistants": f"use {CHAT} instead",
    "threads": f"use {CHAT} instead",
}
"""What to do instead, by the first part of a known path below /v1."""

# LiteLLM's, by the first part of the path.
_LITELLM: Final = {
    **dict.fromkeys(
        ("key", "user", "team", "organization", "customer", "end_user"), _KEYS + "/admin/budgets on the admin port"
    ),
    **dict.fromkeys(("budget", "provider"), _KEYS + "/admin/budgets on the admin port"),
    **dict.fromkeys(("spend", "global", "usage"), "see /admin/usage on the admin port"),
    **dict.fromkeys(("model", "model_group", "model_hub"), "see /v1/models, or /admin/config on the admin port"),
    **dict.fromkeys(("config", "get", "settings", "routes"), "see /admin/config on the admin port"),
    **dict.fromkeys(("ui", "sso", "login"), "there is no web page to log in to; run `sluice top`"),
    "cache": "see /metrics on the admin port",
}
# Probes and pages that are on another port here.
_ADMIN: Final = {
    **dict.fromkeys(("metrics", "stats"), "/metrics"),
    **dict.fromkeys(("livez", "healthz", "health/liveliness", "health/liveness"), "/livez"),
    **dict.fromkeys(("readyz", "health/readiness", "health/services"), "/readyz"),
}
_OLLAMA: Final = frozenset(("chat", "generate", "tags", "embed", "embeddings", "show", "ps", "version", "pull"))
_AZURE: Final = re.compile(r"/(?:openai/)?deployments/[^/]+/.+")
_GEMINI: Final = re.compile(r"/(?:v1beta|v1|v1alpha)/models/[^/]+:\w+")


def elsewhere(path: str) -> str | None:
    """What to use in place of a path of the admin port or of another server; None for an unknown path."""
    parts = path.strip("/").removeprefix("v1/").split("/")
    if parts[0] == "admin":
        return "it is on the admin port (admin.port)"
    if where := _ADMIN.get("/".join(parts)):
        return f"it is {where} on the admin port (admin.port)"
    if advice := _LITELLM.get(parts[0]):
        return advice
    if parts[0] == "api" and len(parts) > 1 and parts[1] in _OLLAMA:
        return "this is Ollama's API; use OpenAI's, with base_url ending in /v1"
    if _AZURE.fullmatch(path):
        return "this is Azure's path; use OpenAI's client, with base_url ending in /v1"
    if _GEMINI.fullmatch(path):
        return "this is Gemini's API; use OpenAI's, with base_url ending in /v1"
    return None
