"""The contenders of this repository, and the list of all."""

import sys
from typing import Any

from benchmarks.competitors.gateways import LiteLLM, Portkey
from benchmarks.competitors.routers import SglangRouter, VllmRouter
from benchmarks.competitors.servers import Envoy, Nginx
from benchmarks.contender import Contender, free_port, serving


class Upstream(Contender):
    """The fake upstream itself: as a contender it shows the limits of the harness."""

    name = "direct"
    model = "fake-model"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "benchmarks.fake_upstream", "fast", str(self.port)]


class Forwarder(Contender):
    """benchmarks/forwarder.py, the yardstick that is always there."""

    name = "bare aiohttp"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "benchmarks.forwarder", str(self.port), str(self.upstream_port)]


class Floor(Contender):
    """benchmarks/bare_transport.py, the gateway's foundation."""

    name = "floor"
    loads = frozenset({"chat-1", "chat-32", "chat-128", "chat-1000", "quiet"})

    def command(self) -> list[str]:
        return [sys.executable, "-m", "benchmarks.bare_transport", str(self.port), str(self.upstream_port)]


class Sluice(Contender):
    """The gateway with keys, metrics, request ids and the ledger on, limits never reached."""

    name = "sluice"

    def __init__(self, upstream_port: int) -> None:
        super().__init__(upstream_port)
        self.admin_port = free_port()

    def config(self) -> dict[str, Any]:
        """The content of its sluice.yaml."""
        return {
            "server": {"port": self.port},
            "admin": {"port": self.admin_port},
            "keys": [{"name": "bench", "key": self.key}],
            "upstreams": {"fake": {"base_url": f"http://127.0.0.1:{self.upstream_port}/v1", "max_concurrency": 10000}},
            "models": {self.model: {"candidates": [{"upstream": "fake", "model": "fake-model"}]}},
            "usage": {"path": str(self.folder / "usage.db")},
            "log": {"level": "warning"},
        }

    def command(self) -> list[str]:
        return serving(self.folder, self.config())

    def pulse(self) -> tuple[int, str]:
        return self.admin_port, "/livez"


class SluiceAllOn(Sluice):
    """The gateway with all of a call's features at work: the key's four limits, too wide to refuse anything;
    prices, so that each call is booked in dollars; the cheaper of two candidates chosen; an answer looked for
    in the cache, missed (all calls differ) and stored; a log line for each call, into a file.
    """

    name = "sluice all on"

    def config(self) -> dict[str, Any]:
        much = 10**12
        limits = {"rpm": much, "tpm": much, "concurrency": much, "usd_per_day": 10**6}
        plain = super().config()
        candidates = [
            {"upstream": name, "model": "fake-model", "price": {"input": price, "output": 2 * price}}
            for name, price in (("dear", 0.5), ("fake", 0.25))
        ]
        return plain | {
            "keys": [{"name": "bench", "key": self.key, "limits": limits}],
            "upstreams": plain["upstreams"] | {"dear": plain["upstreams"]["fake"]},
            "models": {self.model: {"candidates": candidates, "route": "cheapest"}},
            "cache": {"enabled": True},
            "log": {"level": "info", "format": "json"},
        }


# The first three run always, vllm-router where it is installed, the others when --rivals names them.
CONTENDERS: dict[str, type[Contender]] = {
    kind.name: kind
    for kind in (
        Forwarder,
        Floor,
        Sluice,
        SluiceAllOn,
        VllmRouter,
        SglangRouter,
        Nginx,
        Envoy,
        Portkey,
        LiteLLM,
        Upstream,
    )
}
ALWAYS = (Forwarder.name, Sluice.name, SluiceAllOn.name)
IF_INSTALLED = (VllmRouter.name,)
RIVALS = tuple(name for name in CONTENDERS if name not in {*ALWAYS, Upstream.name})
YARDSTICKS = (Forwarder.name, VllmRouter.name)
