"""One vLLM server: its command line, its environment and its health check."""

import http.client
from pathlib import Path

from backend import processes
from backend.prepare import Prepared

CHAT = "smollm2"
EMBED = "minilm"
GENERATION = '{"temperature": 0, "max_new_tokens": 256}'
"""What the chat model does for a request that does not say: at temperature 1 so small a model babbles."""
READY_BOUND_S = 600.0
STOP_GRACE_S = 10.0
DEFAULT_PORT = 8000


def command(prepared: Prepared, model: str, port: int) -> list[str]:
    """The command line that serves `model` (`CHAT` or `EMBED`) on loopback."""
    cuda = prepared.build.name == "cuda"
    if model == EMBED:
        options = ["--model", str(prepared.embed), "--runner", "pooling", "--max-model-len", "256"]
    else:
        options = ["--model", str(prepared.chat), "--max-model-len", "4096"]
        options += ["--override-generation-config", GENERATION]
    # The `vllm` command of the CPU package fails: it looks up the version of a package named vllm.
    server = [str(prepared.python), "-m", "vllm.entrypoints.openai.api_server", *options]
    server += ["--served-model-name", model, "--host", "127.0.0.1", "--port", str(port)]
    server += ["--max-num-seqs", "64", "--disable-uvicorn-access-log"]
    if cuda:
        # A fraction of the GPU each, so that both models fit; the default takes nearly all of it.
        return [*server, "--gpu-memory-utilization", "0.2" if model == EMBED else "0.5"]
    if model == EMBED:
        server += ["--dtype", "float32"]  # as in the weights; most CPUs have no fast path for half precision
    # With compilation, version 0.32.0 starts slowly on the CPU and generates wrong text.
    return [*server, "--enforce-eager"]


def environment(prepared: Prepared) -> dict[str, str]:
    """The variables that the server needs on top of this process's own; the KV cache is in GiB."""
    common = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONSAFEPATH": "1",  # files in the current folder must not shadow what vLLM imports
    }
    return common if prepared.build.name == "cuda" else {**common, "VLLM_CPU_KVCACHE_SPACE": "2"}


def start(prepared: Prepared, model: str, port: int, cache: Path) -> processes.Child:
    """Start the server of `model`. The log's name has the port, so that two servers do not share a log."""
    log = cache / "logs" / f"engine-{model}-{port}.log"
    return processes.start(f"the engine of {model}", command(prepared, model, port), log, environment(prepared))


def healthy(host: str, port: int) -> bool:
    """Whether GET /health answers 200 within 2 s, without any proxy."""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
