"""Gateways in front of many providers."""

import json

from benchmarks.competitors.installed import FromNpm, FromPyPI


class LiteLLM(FromPyPI):
    """LiteLLM's proxy: one worker, no database, no keys, no callbacks, its log down to errors.

    It handles some dozens of calls a second, so only one load of each kind makes sense.
    """

    name = package = "litellm"
    ready_path = "/health/liveliness"
    loads = frozenset({"chat-32", "stream-100"})

    def command(self) -> list[str]:
        target = {
            "model": "openai/fake-model",
            "api_base": f"http://127.0.0.1:{self.upstream_port}/v1",
            "api_key": self.key,
        }
        config = {
            "model_list": [{"model_name": self.model, "litellm_params": target}],
            "litellm_settings": {"num_retries": 0, "set_verbose": False},
        }
        file = self.folder / "config.yaml"
        file.write_text(json.dumps(config))  # JSON is YAML
        where = ["--host", "127.0.0.1", "--port", str(self.port)]
        return [self.program, "--config", str(file), *where, "--num_workers", "1", "--telemetry", "False"]

    def environment(self) -> dict[str, str]:
        # Production mode reads no .env; with the local lists it asks the internet for nothing.
        quiet = {
            "LITELLM_MODE": "PRODUCTION",
            "LITELLM_LOG": "ERROR",
            "NO_DOCS": "True",
            "DISABLE_ADMIN_UI": "True",
        }
        lists = (
            "MODEL_COST_MAP",
            "ANTHROPIC_BETA_HEADERS",
            "AUTOROUTER_PRESETS",
            "BLOG_POSTS",
            "POLICY_TEMPLATES",
        )
        local = {f"LITELLM_LOCAL_{name}": "True" for name in lists}
        return super().environment() | quiet | local


class Portkey(FromNpm):
    """Portkey's open gateway on Node: no cache, no guardrails, no console.

    Its target stands in two request headers. With the newest HTTP server that its package allows, streams
    end in a 500 ("immutable") on Node 20; package.json holds that server at the last one that works.
    It handles some hundreds of calls a second, and `stream-100` saturates it.
    """

    name = "portkey"
    package = "@portkey-ai/gateway"
    ready_path = "/"
    loads = frozenset({"chat-1", "chat-32", "quiet", "stream-100"})

    def headers(self) -> dict[str, str]:
        target = f"http://127.0.0.1:{self.upstream_port}/v1"
        return {"x-portkey-provider": "openai", "x-portkey-custom-host": target}

    def command(self) -> list[str]:
        program = self.home() / "build" / "start-server.js"
        return ["node", str(program), f"--port={self.port}", "--headless"]

    def environment(self) -> dict[str, str]:
        return super().environment() | {"NODE_ENV": "production"}
