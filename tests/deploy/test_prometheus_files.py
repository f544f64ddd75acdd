"""deploy/prometheus: what Prometheus's own promtool says of it, and when the gateway counts as down."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from deployed import DEPLOY

FOLDER = DEPLOY / "prometheus"
PROMTOOL = shutil.which("promtool")
pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")


def promtool(*arguments: str) -> str:
    """What promtool prints; it must be content."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_config_and_its_rules_are_valid(tmp_path: Path) -> None:
    for file in FOLDER.iterdir():
        text = file.read_text(encoding="utf-8").replace("/etc/prometheus/", f"{tmp_path}/")
        (tmp_path / file.name).write_text(text, encoding="utf-8")
    said = promtool("check", "config", str(tmp_path / "prometheus.yml"))
    assert "alerts.yml" in said


@pytest.mark.parametrize(
    ("up", "at", "fires"),
    [
        ("1x20", "5m", False),
        ("1x4 0x8", "2m30s", False),  # down, but for less than a minute
        ("1x4 0x20", "5m", True),
        (None, "5m", True),  # never scraped at all
    ],
)
def test_the_alert_of_a_gateway_that_is_down(tmp_path: Path, up: str | None, at: str, fires: bool) -> None:
    series = [] if up is None else [{"series": 'up{job="sluice",instance="gateway:9464"}', "values": expanded(up)}]
    labels = {"severity": "page", "job": "sluice"} | ({} if up is None else {"instance": "gateway:9464"})
    (rule,) = (
        rule
        for group in yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "SluiceDown"
    )
    alert = {"exp_labels": labels, "exp_annotations": rule["annotations"]}
    expected = {"alertname": "SluiceDown", "eval_time": at, "exp_alerts": [alert] if fires else []}
    alone = {"groups": [{"name": "down", "rules": [rule]}]}
    (tmp_path / "rule.yml").write_text(yaml.safe_dump(alone), encoding="utf-8")
    tests = {
        "rule_files": [str(tmp_path / "rule.yml")],
        "evaluation_interval": "15s",
        "tests": [{"interval": "30s", "input_series": series, "alert_rule_test": [expected]}],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(tests), encoding="utf-8")
    promtool("test", "rules", str(tmp_path / "test.yml"))


def expanded(values: str) -> str:
    """`1x4 0x2` in promtool's words: that many repetitions of each."""
    return " ".join(f"{value}+0x{times}" for value, times in (one.split("x") for one in values.split()))
