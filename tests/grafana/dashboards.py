"""The dashboards and alert rules as they are in the repository, read for the tests."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = sorted((ROOT / "grafana/dashboards").glob("*.json"))
RULES = ROOT / "deploy/prometheus/alerts.yml"

_WINDOW = re.compile(r"\b(\d+[mhd])\b")


class Asked(NamedTuple):
    """A query of a panel, and where it stands."""

    where: str
    expr: str


def read(file: Path) -> dict[str, Any]:
    """A dashboard."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def panels(file: Path) -> list[dict[str, Any]]:
    """Its panels but for the headings."""
    return [one for one in read(file)["panels"] if one["type"] != "row"]


def queries() -> list[Asked]:
    """Every query of every panel."""
    return [
        Asked(f"{file.stem}: {panel['title']}: {target['refId']}", target["expr"])
        for file in DASHBOARDS
        for panel in panels(file)
        for target in panel["targets"]
    ]


def variables() -> list[Asked]:
    """What each filter of a dashboard finds its values with."""
    return [
        Asked(f"{file.stem}: ${one['name']}", one["query"]["query"])
        for file in DASHBOARDS
        for one in read(file)["templating"]["list"]
        if one["type"] == "query"
    ]


def rules() -> list[dict[str, Any]]:
    """Every rule, alerts and what is recorded for them."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """The alerts by name."""
    return {one["alert"]: one for one in rules() if "alert" in one}


def hurried(expr: str, window: str) -> str:
    """The expression with every window this long, and filters that let everything pass."""
    plain = re.sub(r"\$__rate_interval|\$__range", window, expr)
    return re.sub(r'=~"\$\w+"', '=~".*"', _WINDOW.sub(window, plain))
