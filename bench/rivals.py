"""Other people's proxies, each made to forward to the fake upstream and to do nothing else.

`python -m bench.rivals` installs those of PyPI, as pinned in rivals.txt, into an environment of their own.
"""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distributions
from pathlib import Path

from bench.contender import ROOT, Contender, free_port

VENV = ROOT / ".venv-rivals"
PINS = Path(__file__).with_name("rivals.txt")


class Rival(Contender):
    """Somebody else's program: it sees neither our environment nor our home."""

    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder)}


class FromPyPI(Rival):
    """A rival in the rivals' own environment."""

    package = ""  # its name there, and its command's

    @classmethod
    def version(cls) -> str:
        folders = [str(folder) for folder in VENV.glob("lib/python3*/site-packages")]
        return next((found.version for found in distributions(name=cls.package, path=folders)), "")

    @classmethod
    def missing(cls) -> str:
        return "" if cls.version() else "python -m bench.rivals"

    @property
    def program(self) -> str:
        """The command's file."""
        return str(VENV / "bin" / self.package)


class VllmRouter(FromPyPI):
    """vLLM's own router in Rust, with its cheapest policy and its metrics on; it knows no keys."""

    name = package = "vllm-router"
    ready_path = "/liveness"

    def command(self) -> list[str]:
        worker = f"http://127.0.0.1:{self.upstream_port}"
        options = ["--worker-urls", worker, "--host", "127.0.0.1", "--port", str(self.port)]
        options += ["--prometheus-port", str(free_port()), "--policy", "round_robin", "--log-level", "error"]
        return [self.program, *options]


class LiteLLM(FromPyPI):
    """LiteLLM's proxy: one worker, no database, no keys, no callbacks, its log down to errors.

    It manages some dozens of calls a second, so only one load of each kind makes sense.
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


NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections {files}; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  upstream fake {{ server 127.0.0.1:{upstream_port}; keepalive 8192; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096; keepalive_requests 100000000; client_max_body_size 0;
    location / {{
      proxy_pass http://fake; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_request_buffering off;
    }}
  }}
}}
"""


class Nginx(Rival):
    """nginx as a plain reverse proxy (Debian package `nginx-light`); `$NGINX` names another binary."""

    name = "nginx"

    @staticmethod
    def _binary() -> str:
        return shutil.which(os.environ.get("NGINX", "nginx")) or ""

    @classmethod
    def version(cls) -> str:
        said = subprocess.run([cls._binary(), "-v"], capture_output=True, text=True, check=True).stderr
        return said.strip().rpartition("/")[2]

    @classmethod
    def missing(cls) -> str:
        return "" if cls._binary() else "apt-get install nginx-light"

    def command(self) -> list[str]:
        file = self.folder / "nginx.conf"
        files = min(16000, resource.getrlimit(resource.RLIMIT_NOFILE)[0])  # each takes memory from the start
        values = {"folder": self.folder, "port": self.port, "upstream_port": self.upstream_port}
        file.write_text(NGINX.format_map(values | {"files": files}))
        return [self._binary(), "-c", str(file), "-e", str(self.folder / "error.log")]


def install() -> None:
    """Make the environment anew. Raises CalledProcessError where pip fails."""
    count = len(re.findall(r"^\S+==", PINS.read_text(), re.MULTILINE))
    print(f"Installing {count} packages into {VENV.name} ...", file=sys.stderr)
    venv.create(VENV, clear=True, with_pip=True)
    pip = [str(VENV / "bin" / "pip"), "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--require-hashes", "-r", str(PINS)], check=True)


def main() -> None:
    """Install the rivals and say what is there, and what is not."""
    try:
        install()
    except subprocess.CalledProcessError as error:
        sys.exit(f"bench: {error}")
    for kind in (VllmRouter, LiteLLM, Nginx):
        lack = kind.missing()
        print(f"{kind.name}: " + (f"missing; {lack}" if lack else kind.version()))


if __name__ == "__main__":
    main()
