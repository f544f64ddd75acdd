"""Writes the dashboards: `python -m grafana.build`."""

import json
from pathlib import Path

from grafana import money_dashboard, operator_dashboard

FOLDER = Path(__file__).parent / "dashboards"
DASHBOARDS = {"operator.json": operator_dashboard.build, "money.json": money_dashboard.build}


def pages() -> dict[str, str]:
    """File contents by file name."""
    return {name: json.dumps(build(), indent=1) + "\n" for name, build in DASHBOARDS.items()}


if __name__ == "__main__":
    for name, page in pages().items():
        (FOLDER / name).write_text(page, encoding="utf-8")
