"""One vLLM server: how it is started and how it is asked whether it is ready."""

import http.client
from pathlib import Path

from backend import processes
from backend.prepare import Prepared

CHAT = "smollm2"
EMBED = "minilm"
READY_BOUND_S = 600.0
STOP_GRACE_S = 10.0
DEFAULT_PORT = 8000


def command(prepared: Prepared, model: str, port: int) -> list[str]:
    """The command line that serves `model` (`CHAT` or `EMBED`) on loopback."""
    cuda = prepared.build.name == "cuda"
    if model == EMBED:
        own = ["--model", str(prepared.embed), "--runner", "pooling", "--max-model-len", "256"]
    else:
        own = ["--model", str(prepared.chat), "--max-model-len", "4096"]
    # The CPU package's `vllm` command fails: it asks for the version of a package named vllm.
    server = [str(prepared.python), "-m", "vllm.entrypoints.openai.api_server", *own]
    server += ["--served-model-name", model, "--host", "127.0.0.1", "--port", str(port)]
    server += ["--max-num-seqs", "64", "--disable-uvicorn-access-log"]
    if cuda:
        # A share of the GPU each, so that both models fit on one; the default would take nearly all of it.
        return [*server, "--gpu-memory-utilization", "0.2" if model == EMBED else "0.5"]
    if model == EMBED:
        server += ["--dtype", "float32"]  # as the weights are; half precision has no fast path on most CPUs
    # Compiled, version 0.32.0 starts slowly on the CPU and answers wrong text.
    return [*server, "--enforce-eager"]


def environment(prepared: Prepared) -> dict[str, str]:
    """What the server's environment adds to ours; the cache of keys and values is in GiB."""
    always = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONSAFEPATH": "1",  # files in the user's current folder must not shadow what vLLM imports
    }
    return always if prepared.build.name == "cuda" else {**always, "VLLM_CPU_KVCACHE_SPACE": "2"}


def start(prepared: Prepared, model: str, port: int, cache: Path) -> processes.Child:
    """Start the server of `model`; its log is named after the port, so that two starts do not share one."""
    log = cache / "logs" / f"engine-{model}-{port}.log"
    return processes.start(
        f"the engine of {model}", command(prepared, model, port), log, environment(prepared)
    )


def healthy(host: str, port: int) -> bool:
    """Whether GET /health answers 200 within 2 s (no proxy of the environment is asked)."""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
