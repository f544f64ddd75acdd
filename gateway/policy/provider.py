"""OpenTelemetry's name (`gen_ai.provider.name`) of what answers at an upstream."""

from typing import Final
from urllib.parse import urlsplit

_BY_HOST: Final = (
    ("openai.azure.com", "azure.ai.openai"),
    ("services.ai.azure.com", "azure.ai.inference"),
    ("amazonaws.com", "aws.bedrock"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("anthropic.com", "anthropic"),
    ("cohere.com", "cohere"),
    ("cohere.ai", "cohere"),
    ("deepseek.com", "deepseek"),
    ("groq.com", "groq"),
    ("mistral.ai", "mistral_ai"),
    ("moonshot.ai", "moonshot_ai"),
    ("moonshot.cn", "moonshot_ai"),
    ("perplexity.ai", "perplexity"),
    ("x.ai", "x_ai"),
)


def provider(kind: str, base_url: str) -> str:
    """An engine's kind, a provider known by its host, or `openai`, whose dialect all others speak."""
    if kind != "openai":
        return kind
    host = urlsplit(base_url).hostname or ""
    return next((name for end, name in _BY_HOST if f".{host}".endswith(f".{end}")), kind)
