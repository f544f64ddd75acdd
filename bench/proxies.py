"""The contenders of this repository, and the list of all."""

import json
import sys

from bench.contender import Contender, free_port
from bench.rivals import LiteLLM, Nginx, VllmRouter


class Upstream(Contender):
    """The fake upstream itself: as a contender it shows how much the harness can do without a proxy."""

    name = "direct"
    model = "fake-model"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.upstream", str(self.port)]


class Forwarder(Contender):
    """bench/forwarder.py, the yardstick that is always there."""

    name = "bare aiohttp"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.forwarder", str(self.port), str(self.upstream_port)]


class Sluice(Contender):
    """The gateway with keys, metrics and request ids on, limits out of the way."""

    name = "sluice"

    def __init__(self, upstream_port: int) -> None:
        super().__init__(upstream_port)
        self.admin_port = free_port()

    def command(self) -> list[str]:
        config = {
            "server": {"port": self.port},
            "admin": {"port": self.admin_port},
            "keys": [{"name": "bench", "key": self.key}],
            "upstreams": {
                "fake": {"base_url": f"http://127.0.0.1:{self.upstream_port}/v1", "max_concurrency": 10000}
            },
            "models": {self.model: {"candidates": [{"upstream": "fake", "model": "fake-model"}]}},
            "usage": {"path": str(self.folder / "usage.db")},
            "log": {"level": "warning"},
        }
        file = self.folder / "sluice.yaml"
        file.write_text(json.dumps(config))  # JSON is YAML
        return [sys.executable, "-m", "gateway", "serve", "--config", str(file)]

    def pulse(self) -> tuple[int, str]:
        return self.admin_port, "/livez"


# The first two run always, vllm-router where it is installed, the others when --rivals names them.
CONTENDERS: dict[str, type[Contender]] = {
    kind.name: kind for kind in (Forwarder, Sluice, VllmRouter, Nginx, LiteLLM, Upstream)
}
ALWAYS = (Forwarder.name, Sluice.name)
IF_INSTALLED = (VllmRouter.name,)
RIVALS = (VllmRouter.name, Nginx.name, LiteLLM.name)
YARDSTICKS = (Forwarder.name, VllmRouter.name)
