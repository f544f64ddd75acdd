"""Every query of every panel, filter and alert, asked of a real Prometheus that scrapes troubled gateways."""

import asyncio
import contextlib
import itertools
import json
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from dashboards import RULES, alerts, hurried, queries, rules, variables
from doubles import replies
from doubles.gateway import GatewayProcess, StartGateway
from doubles.prometheus_server import PROGRAM, PrometheusServer
from doubles.rawclient import call
from doubles.redis_server import RedisServer
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, ask
from doubles.waiting import eventually
from scene import Engine, config, leaving, load

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="prometheus is not installed (Debian: prometheus)")

WINDOW = "6s"
WITHIN_S = 90.0
NOBODY = "127.0.0.1:9"
# Of a wait, and of time of our own, there is less here than in real trouble.
LOWERED = {"SluiceQueueOld": ("> 30", "> 0.01"), "SluiceSlow": ("> 0.1", "> 0.00001")}


def hurried_rules() -> dict[str, Any]:
    """The rules with short windows, without patience, their thresholds within reach."""
    found: dict[str, Any] = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for group in found["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule["expr"] = hurried(rule["expr"], WINDOW)
            rule.pop("for", None)
            low, reached = LOWERED.get(rule.get("alert", ""), ("", ""))
            assert low in rule["expr"]
            rule["expr"] = rule["expr"].replace(low, reached) if low else rule["expr"]
    return found


def scraping(folder: Path, gateways: list[int], engine: int) -> PrometheusServer:
    """A Prometheus with these targets, one more that nobody listens at, and the rules."""
    (folder / "alerts.yml").write_text(yaml.safe_dump(hurried_rules()), encoding="utf-8")
    targets = [*(f"127.0.0.1:{port}" for port in gateways), NOBODY]
    jobs = [
        {"job_name": "sluice", "static_configs": [{"targets": targets}]},
        {"job_name": "engine", "static_configs": [{"targets": [f"127.0.0.1:{engine}"]}]},
    ]
    every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    return PrometheusServer(folder, {"global": every, "scrape_configs": jobs, "rule_files": ["alerts.yml"]})


async def troubles(gateway: GatewayProcess, file: Path, redis: RedisServer, over: asyncio.Event) -> None:
    """A config that is refused, and Redis that goes and comes back, until it is over."""
    await eventually(lambda: gateway.metrics().value("sluice_redis_up") == 1, "Redis is up", 20.0)
    file.write_text("upstreams: {}", encoding="utf-8")
    gateway.process.send_signal(signal.SIGHUP)
    for turn in itertools.cycle((redis.pause, redis.resume)):
        turn()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await over.wait()
                return


async def late_batch(port: int) -> None:
    """A batch whose lines all fail, each for some seconds, until its window of 20 seconds is over."""
    line = {"custom_id": "a", "method": "POST", "url": CHAT, "body": C0}
    head = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    file = b'--b\r\nContent-Disposition: form-data; name="file"; filename="in"\r\n\r\n'
    form = head + file + json.dumps(line).encode() + b"\r\n--b--\r\n"
    made = await call(port, "POST", "/v1/files", form, [("content-type", "multipart/form-data; boundary=b")])
    asked = {"input_file_id": made.json()["id"], "endpoint": CHAT, "completion_window": "20s"}
    assert (await call(port, "POST", "/v1/batches", asked)).status == 200


@pytest.fixture
async def prometheus(
    tmp_path: Path, start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PrometheusServer]:
    """Scrapes a gateway under mixed load and in trouble, and one that has a bug and no upstream."""
    async with AsyncExitStack() as stack:
        engine, paid, broken = [await stack.enter_async_context(FaultUpstream()) for _ in range(3)]
        Engine(engine), Engine(paid)
        broken.always(replies.error(500))
        redis = stack.enter_context(RedisServer(tmp_path))
        gateway = stack.enter_context(GatewayProcess(config(engine, paid, broken, redis), tmp_path))
        batches = {"enabled": True, "path": str(tmp_path / "batches")}
        buggy = await start_gateway(settings(f"http://{NOBODY}/v1", batches=batches))

        async def bug(*_: object) -> None:
            raise RuntimeError

        monkeypatch.setattr("gateway.http.client.forward.Forward.__call__", bug)
        assert (await ask(buggy.port, C0)).status == 500
        await late_batch(buggy.port)
        over = asyncio.Event()
        running = [load(gateway.port, number, over) for number in range(6)]
        running += [leaving(gateway.port, over), troubles(gateway, tmp_path / "sluice.yaml", redis, over)]
        tasks = [asyncio.create_task(one) for one in running]
        folder = tmp_path / "prometheus"
        folder.mkdir()
        ports = [gateway.admin_port, buggy.admin_port]
        with scraping(folder, ports, engine.port) as server:
            yield server
        over.set()
        redis.resume()
        await asyncio.gather(*tasks)


def asked(prometheus: PrometheusServer) -> dict[str, Callable[[], object]]:
    """What is asked for each query, by where it stands; each answer must hold something."""
    found: dict[str, Callable[[], object]] = {}
    for where, expr in queries():
        found[where] = lambda expr=expr: prometheus.query(hurried(expr, WINDOW))
    for where, expr in variables():
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", expr)
        assert match is not None, where
        found[where] = lambda match=match: prometheus.ask(f"label/{match[2]}/values", **{"match[]": match[1]})
    for rule in rules():
        if "record" in rule:
            found[rule["record"]] = lambda name=rule["record"]: prometheus.query(name)
    for name in alerts():
        firing = f'ALERTS{{alertname="{name}",alertstate="firing"}}'
        found[f"alert {name}"] = lambda firing=firing: prometheus.query(f"max_over_time({firing}[10m])")
    return found


async def test_every_query_has_data_and_every_alert_fires(prometheus: PrometheusServer) -> None:
    missing = asked(prometheus)
    try:
        async with asyncio.timeout(WITHIN_S):
            while missing:
                for where, ask_it in list(missing.items()):
                    if await asyncio.to_thread(ask_it):
                        del missing[where]
                await asyncio.sleep(0.5)
    except TimeoutError:
        raise AssertionError(f"no data: {sorted(missing)}") from None
