"""`python -m benchmarks.drill`: causes each trouble of docs/runbooks.md, runs its commands, and ends it as the page says.

Each trouble gets a fresh gateway, a Redis and two upstreams on loopback. The commands are those of the page. If
Prometheus is installed, it loads the rules of `deploy/prometheus/alerts.yml` without their `for`, and each alert
must fire.
"""

import asyncio
import json
import shutil
import sys
import urllib.request
from collections.abc import Sequence
from contextlib import aclosing
from time import monotonic
from typing import Any, NamedTuple

import aiohttp
import yaml

from benchmarks.arguments import parser_of
from benchmarks.contender import ROOT, Contender
from benchmarks.drill_page import Look, looks
from benchmarks.drill_scene import PATIENCE_S, Scene, scene
from benchmarks.drill_troubles import OLD_S, TROUBLES, Trouble

_OLD = "SluiceQueueOld"


class Prometheus(Contender):
    """A Prometheus that scrapes the gateway five times a second, and whose alerts have no `for`."""

    name = "prometheus"
    ready_path = "/-/ready"

    def __init__(self, admin_port: int) -> None:
        super().__init__(0)
        rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8"))
        for rule in (rule for group in rules["groups"] for rule in group["rules"]):
            rule.pop("for", None)
        job = {"job_name": "sluice", "static_configs": [{"targets": [f"127.0.0.1:{admin_port}"]}]}
        config = {
            "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "500ms"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [job],
        }
        for name, text in (("alerts.yml", rules), ("prometheus.yml", config)):
            (self.folder / name).write_text(yaml.safe_dump(text), encoding="utf-8")

    @classmethod
    def missing(cls) -> str:
        return "" if shutil.which("prometheus") else "apt-get install prometheus"

    def command(self) -> list[str]:
        return [
            "prometheus",
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def _ready(self) -> bool:
        """Whether it has found its targets, some seconds after its start."""
        if not super()._ready():
            return False
        query = f"http://127.0.0.1:{self.port}/api/v1/query?query=up%7Bjob%3D%22sluice%22%7D%3D%3D1"
        with urllib.request.urlopen(query, timeout=2) as answer:
            return bool(json.load(answer)["data"]["result"])

    async def fire(self, alerts: Sequence[str], within: float) -> None:
        """Wait until all these alerts fire. Raises TimeoutError."""
        url, firing, end = f"http://127.0.0.1:{self.port}/api/v1/alerts", set[str](), monotonic() + within
        while monotonic() < end:
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                found: list[dict[str, Any]] = (await answer.json())["data"]["alerts"]
            firing = {one["labels"]["alertname"] for one in found if one["state"] == "firing"}
            if firing.issuperset(alerts):
                return
            await asyncio.sleep(0.2)
        raise TimeoutError(f"no alert {set(alerts) - firing} within {within:g} s")


class Row(NamedTuple):
    """The result of one drill; `wrong` is how it differed from the page, or empty."""

    trouble: Trouble
    looks: int
    alerted: bool
    seconds: float
    wrong: str

    def __str__(self) -> str:
        """A row of the table."""
        seen = f"{self.looks} commands" + (", alert" if self.alerted else "")
        cells = (", ".join(self.trouble.alerts), self.trouble.made, seen, self.trouble.ended)
        return f"| {' | '.join(cells)} | {self.seconds:.1f} | {self.wrong or 'as documented'} |"


async def seen(scene: Scene, look: Look) -> None:
    """Run a command until it shows what the page says. Raises TimeoutError."""
    end, said = monotonic() + PATIENCE_S, ""
    while monotonic() < end:
        _, said = await scene.shell(look.command)
        if look.shows and look.seen_in(said):
            return
        await asyncio.sleep(0.2)
    raise TimeoutError(f"`{look.command}` does not show `{look.shows}` but: {said[-2000:]}")


async def drill(scene: Scene, trouble: Trouble, prometheus: Prometheus | None = None, *, quick: bool = False) -> Row:
    """Cause one trouble, run its commands, end it."""
    page, begin, looked, wrong = looks(), monotonic(), 0, ""
    waits = prometheus is not None and not (quick and _OLD in trouble.alerts)
    try:
        async with aclosing(trouble.steps(scene)) as steps:
            await anext(steps)
            for look in (look for alert in trouble.alerts for look in page[alert]):
                await seen(scene, look)
                looked += 1
            if waits and prometheus is not None:
                await prometheus.fire(trouble.alerts, PATIENCE_S + (OLD_S if _OLD in trouble.alerts else 0))
            await anext(steps, None)
    except Exception as error:  # noqa: BLE001 - the others are drilled all the same
        wrong = f"{type(error).__name__}: {error}".replace("\n", " / ")
    return Row(trouble, looked, waits, monotonic() - begin, wrong)


async def drilled(trouble: Trouble, *, quick: bool) -> Row:
    """Drill one trouble in its own scene, so that troubles and their alerts do not mix."""
    async with scene() as one:
        if Prometheus.missing():
            return await drill(one, trouble)
        prometheus, one.scrape_s = Prometheus(one.gateway.admin_port), 1.0
        try:
            await asyncio.to_thread(prometheus.start, 0)
            return await drill(one, trouble, prometheus, quick=quick)
        finally:
            await asyncio.to_thread(prometheus.stop)


async def run(quick: bool, only: Sequence[str]) -> bool:
    """Run the drills and print the table; returns whether all went as documented."""
    good = True
    print("| runbook | trouble made | seen with | ended by | seconds | went |", flush=True)
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for trouble in TROUBLES:
        if not only or set(only) & set(trouble.alerts):
            row = await drilled(trouble, quick=quick)
            good = good and not row.wrong
            print(row, flush=True)
    return good


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="do not wait until a queue is half a minute old")
    parser.add_argument("alerts", nargs="*", metavar="ALERT", help="these runbooks only")
    given = parser.parse_args()
    sys.exit(0 if asyncio.run(run(given.quick, given.alerts)) else 1)
