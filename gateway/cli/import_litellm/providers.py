"""LiteLLM's providers: the addresses of those with OpenAI's API, and why the others are left out."""

from typing import Final, NamedTuple


class Provider(NamedTuple):
    """A provider's address and kind, and the variables that LiteLLM reads its key and address from."""

    base_url: str | None
    key: str | None
    kind: str = "openai"
    base_variable: str | None = None


OPENAI: Final = Provider("https://api.openai.com/v1", "OPENAI_API_KEY")

PROVIDERS: Final = {
    "openai": OPENAI,
    "text-completion-openai": OPENAI,
    "custom_openai": Provider(None, None),
    "openai_like": Provider(None, None),
    "aiohttp_openai": OPENAI,
    "hosted_vllm": Provider(None, None, "vllm", "HOSTED_VLLM_API_BASE"),
    "vllm": Provider(None, None, "vllm", "HOSTED_VLLM_API_BASE"),
    "llamafile": Provider("http://127.0.0.1:8080/v1", None, "llamacpp", "LLAMAFILE_API_BASE"),
    "lm_studio": Provider(None, None, "llamacpp", "LM_STUDIO_API_BASE"),
    "ollama": Provider("http://127.0.0.1:11434/v1", None, "llamacpp"),
    "ollama_chat": Provider("http://127.0.0.1:11434/v1", None, "llamacpp"),
    "xinference": Provider("http://127.0.0.1:9997/v1", None),
    "litellm_proxy": Provider(None, "LITELLM_PROXY_API_KEY", "openai", "LITELLM_PROXY_API_BASE"),
    "anthropic": Provider("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "cerebras": Provider("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "codestral": Provider("https://codestral.mistral.ai/v1", "CODESTRAL_API_KEY"),
    "cohere": Provider("https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"),
    "cohere_chat": Provider("https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"),
    "dashscope": Provider("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    "databricks": Provider(None, "DATABRICKS_API_KEY", "openai", "DATABRICKS_API_BASE"),
    "deepinfra": Provider("https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    "deepseek": Provider("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "fireworks_ai": Provider("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "friendliai": Provider("https://api.friendli.ai/serverless/v1", "FRIENDLI_TOKEN"),
    "gemini": Provider("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "github": Provider("https://models.inference.ai.azure.com", "GITHUB_API_KEY"),
    "groq": Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "hyperbolic": Provider("https://api.hyperbolic.xyz/v1", "HYPERBOLIC_API_KEY"),
    "meta_llama": Provider("https://api.llama.com/compat/v1", "LLAMA_API_KEY"),
    "mistral": Provider("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "moonshot": Provider("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    "nebius": Provider("https://api.studio.nebius.ai/v1", "NEBIUS_API_KEY"),
    "novita": Provider("https://api.novita.ai/v3/openai", "NOVITA_API_KEY"),
    "nvidia_nim": Provider("https://integrate.api.nvidia.com/v1", "NVIDIA_NIM_API_KEY"),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "perplexity": Provider("https://api.perplexity.ai", "PERPLEXITYAI_API_KEY"),
    "sambanova": Provider("https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
    "together_ai": Provider("https://api.together.xyz/v1", "TOGETHERAI_API_KEY"),
    "volcengine": Provider("https://ark.cn-beijing.volces.com/api/v3", "VOLCENGINE_API_KEY"),
    "xai": Provider("https://api.x.ai/v1", "XAI_API_KEY"),
}

AZURE_V1: Final = {
    "azure": Provider(None, "AZURE_API_KEY"),
    "azure_ai": Provider(None, "AZURE_AI_API_KEY"),
    "azure_text": Provider(None, "AZURE_API_KEY"),
}
"""Azure's providers where the address is that of its v1 API, which is OpenAI's."""

_AZURE: Final = (
    "Azure's deployment paths are not OpenAI's API; if the resource has the v1 API, add an upstream with "
    "base_url https://RESOURCE.openai.azure.com/openai/v1 and the deployment's name as model"
)
_OTHER_API: Final = (
    "does not have OpenAI's API and is left out; LiteLLM can stay for it: point an upstream at LiteLLM's address"
)

UNSUPPORTED: Final = {
    "azure": _AZURE,
    "azure_ai": _AZURE,
    "azure_text": _AZURE,
    **dict.fromkeys(
        (
            *(
                "ai21",
                "aleph_alpha",
                "assemblyai",
                "baseten",
                "bedrock",
                "cloudflare",
                "clarifai",
                "deepgram",
            ),
            *("elevenlabs", "gradient_ai", "huggingface", "infinity", "jina_ai", "langflow", "nlp_cloud"),
            *("oci", "oobabooga", "palm", "petals", "predibase", "replicate", "sagemaker", "sagemaker_chat"),
            *(
                "snowflake",
                "topaz",
                "triton",
                "vertex_ai",
                "vertex_ai_beta",
                "voyage",
                "watsonx",
                "auto_router",
            ),
        ),
        _OTHER_API,
    ),
}

# Providers that LiteLLM infers from the beginning of a model's name.
_INFERRED: Final = {
    ("gpt-", "chatgpt-", "o1", "o3", "o4", "text-embedding-", "ft:gpt-"): "openai",
    ("claude-",): "anthropic",
    ("deepseek-",): "deepseek",
    ("gemini-",): "vertex_ai",
    ("command-",): "cohere",
    ("mistral-", "codestral-"): "mistral",
}


def split(model: str, custom: str | None) -> tuple[str | None, str]:
    """The provider, or None if neither prefix nor name gives one, and the name to send to it."""
    prefix, slash, name = model.partition("/")
    if custom is not None:
        return custom, name if slash and prefix == custom else model
    if slash and (prefix in PROVIDERS or prefix in UNSUPPORTED):
        return prefix, name
    for prefixes, provider in _INFERRED.items():
        if model.startswith(prefixes):
            return provider, model
    return None, model
