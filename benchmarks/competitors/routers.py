"""Routers of inference engines: written in Rust, with one engine and their cheapest policy."""

from benchmarks.competitors.installed import FromPyPI
from benchmarks.contender import free_port


class VllmRouter(FromPyPI):
    """vLLM's own router in Rust, with its cheapest policy and its metrics on; it knows no keys."""

    name = package = "vllm-router"
    ready_path = "/liveness"

    def command(self) -> list[str]:
        worker = f"http://127.0.0.1:{self.upstream_port}"
        options = ["--worker-urls", worker, "--host", "127.0.0.1", "--port", str(self.port)]
        options += ["--prometheus-port", str(free_port()), "--policy", "round_robin", "--log-level", "error"]
        return [self.program, *options]


class SglangRouter(FromPyPI):
    """SGLang's model gateway, of which vLLM's router was once a fork; set up as that is."""

    name = package = "sglang-router"
    ready_path = "/readiness"  # not before the engine has been looked at

    def command(self) -> list[str]:
        worker = f"http://127.0.0.1:{self.upstream_port}"
        options = ["--worker-urls", worker, "--host", "127.0.0.1", "--port", str(self.port)]
        options += ["--prometheus-port", str(free_port()), "--prometheus-host", "127.0.0.1"]
        options += ["--policy", "round_robin", "--log-level", "error", "--worker-startup-check-interval", "1"]
        return [self.program, "launch", *options]
