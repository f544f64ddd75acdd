"""The alert rules by promtool: each fires in its trouble, stays silent short of it, and has a runbook."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from dashboards import ROOT, RULES, alerts, rules
from kit.pages import table

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")


class Case(NamedTuple):
    """What is scraped every `every`, and whether the alert fires `at` a time.

    Values are promtool's: `0+2x60` begins at 0 and grows by 2, 60 times.
    """

    alert: str
    says: str
    series: dict[str, str]
    at: str
    fires: bool
    every: str = "1m"


def calls(outcome: str, values: str) -> dict[str, str]:
    """Requests with this outcome."""
    named = f'sluice_requests_total{{instance="g:1",model="m",endpoint="e",status="0",outcome="{outcome}"}}'
    return {named: values}


def failing(alert: str, share: float, at: str, fires: bool, says: str, every: str = "1m") -> Case:
    """1000 calls a step, of 500 steps; this share of them failed."""
    failed = round(1000 * share)
    series = calls("ok", f"0+{1000 - failed}x500") | calls("upstream_error", f"0+{failed}x500")
    return Case(alert, says, series, at, fires, every)


def gauge(alert: str, says: str, series: str, values: str, at: str, fires: bool) -> Case:
    """One series."""
    return Case(alert, says, {series: values}, at, fires, "30s")


BREAKER = 'sluice_upstream_breaker_state{instance="g:1",upstream="%s"}'
UP = 'sluice_upstream_up{instance="g:1",upstream="%s"}'
OLDEST = 'sluice_upstream_queue_oldest_wait_seconds{instance="g:1",upstream="a"}'
REDIS = 'sluice_redis_up{instance="g:1"}'
RELOAD = 'sluice_config_reload_success{instance="g:1"}'
WRITES = 'sluice_usage_write_errors_total{instance="g:1"}'
UNPRICED = 'sluice_unpriced_attempts_total{instance="g:1",model="m",upstream="a"}'
LEFT = 'sluice_budget_remaining_usd{instance="%s",key="k"}'
COST = 'sluice_cost_usd_total{instance="g:1",model="m",upstream="a",key="k"}'
STREAMS = 'sluice_time_to_first_token_seconds_count{instance="g:1",model="m",upstream="a"}'
OVERHEAD = 'sluice_gateway_overhead_seconds_bucket{instance="g:1",endpoint="e",le="%s"}'

CASES = [
    failing("SluiceFailingFast", 0.08, "2h", True, "8 % fail"),
    failing("SluiceFailingFast", 0.07, "2h", False, "7 % fail"),
    Case(
        "SluiceFailingFast",
        "all has been well for 10 minutes",
        calls("ok", "0+900x60 54900+1000x60") | calls("shed", "0+100x60 6000+0x60"),
        "70m",
        False,
    ),
    Case(
        "SluiceFailingFast",
        "a handful on a quiet night",
        calls("ok", "0+1x120") | calls("internal_error", "0x49 1+1x7 8x20"),
        "58m",
        False,
    ),
    Case(
        "SluiceFailingFast",
        "requests that fail because of the client are excluded",
        calls("ok", "0+920x120") | calls("truncated", "0+80x120") | calls("limited", "0+9000x120"),
        "2h",
        True,
    ),
    Case(
        "SluiceFailingFast",
        "only failures of clients",
        calls("client_error", "0+500x120") | calls("client_gone", "0+500x120"),
        "2h",
        False,
    ),
    failing("SluiceFailing", 0.035, "8h", True, "3.5 % fail", "5m"),
    failing("SluiceFailing", 0.025, "8h", False, "2.5 % fail", "5m"),
    failing("SluiceFailing", 0.035, "10m", False, "3.5 % fail, for ten minutes", "5m"),
    failing("SluiceFailingSlowly", 0.006, "4d", True, "0.6 % fail", "30m"),
    failing("SluiceFailingSlowly", 0.004, "4d", False, "0.4 % fail", "30m"),
    gauge("SluiceNoUpstream", "the only one is down", UP % "a", "1x4 0x10", "4m", True),
    gauge("SluiceNoUpstream", "for less than a minute", UP % "a", "1x4 0x10", "2m30s", False),
    Case("SluiceNoUpstream", "another is up", {UP % "a": "0x20", UP % "b": "1x20"}, "5m", False, "30s"),
    Case("SluiceNoUpstream", "all breakers", {BREAKER % "a": "2x20", BREAKER % "b": "2x20"}, "5m", True, "30s"),
    Case("SluiceNoUpstream", "one breaker", {BREAKER % "a": "2x20", BREAKER % "b": "0x20"}, "5m", False, "30s"),
    gauge(
        "SluiceBreakerOpen",
        "open, with single calls let through",
        BREAKER % "a",
        "2 1 2 1 2 2 1 2 2",
        "4m",
        True,
    ),
    gauge("SluiceBreakerOpen", "open for a moment", BREAKER % "a", "0 0 2 1 0 0 0 0 0", "3m", False),
    gauge("SluiceQueueOld", "31 s", OLDEST, "31x10", "2m", True),
    gauge("SluiceQueueOld", "29 s", OLDEST, "29x10", "2m", False),
    Case("SluiceTruncated", "2 in 100", calls("truncated", "0+2x40") | {STREAMS: "0+100x40"}, "30m", True),
    Case("SluiceTruncated", "half in 100", calls("truncated", "0+1x40") | {STREAMS: "0+200x40"}, "30m", False),
    Case(
        "SluiceTruncated",
        "2 in all",
        calls("truncated", "0 0 1 2 2x20") | {STREAMS: "0 1 2 3 4x20"},
        "10m",
        False,
    ),
    Case(
        "SluiceSlow",
        "2 in 100 take 0.5 s",
        {OVERHEAD % "0.1": "0+98x60", OVERHEAD % "0.5": "0+100x60", OVERHEAD % "+Inf": "0+100x60"},
        "30m",
        True,
    ),
    Case(
        "SluiceSlow",
        "1 in 200 takes 0.5 s",
        {OVERHEAD % "0.1": "0+199x60", OVERHEAD % "0.5": "0+200x60", OVERHEAD % "+Inf": "0+200x60"},
        "30m",
        False,
    ),
    Case("SluiceInternalError", "the first ever", calls("internal_error", "_x10 1x10"), "12m", True),
    Case("SluiceInternalError", "one more", calls("internal_error", "5x10 6x10"), "12m", True),
    Case("SluiceInternalError", "an old one", calls("internal_error", "1x60"), "40m", False),
    gauge("SluiceRedisDown", "down", REDIS, "1x4 0x10", "4m", True),
    gauge("SluiceRedisDown", "up", REDIS, "1x14", "4m", False),
    gauge("SluiceReloadFailed", "refused", RELOAD, "1x4 0x10", "4m", True),
    gauge("SluiceReloadFailed", "taken", RELOAD, "1x14", "4m", False),
    Case("SluiceUsageNotWritten", "failing", {WRITES: "0+1x30"}, "20m", True),
    Case("SluiceUsageNotWritten", "failed long ago", {WRITES: "0 1 2 2x60"}, "40m", False),
    Case("SluiceBudgetNear", "gone in half an hour", {LEFT % "g:1": "5x90", COST: "0+0.166x90"}, "80m", True),
    Case("SluiceBudgetNear", "there for two hours", {LEFT % "g:1": "20x90", COST: "0+0.166x90"}, "80m", False),
    Case("SluiceBudgetNear", "spent, and nobody tries", {LEFT % "g:1": "0x90"}, "30m", True),
    Case(
        "SluiceBudgetNear",
        "the gateway with the lowest value counts",
        {LEFT % "g:1": "20x90", LEFT % "g:2": "5x90", COST: "0+0.166x90"},
        "80m",
        True,
    ),
    Case("SluiceUnpriced", "the first ever", {UNPRICED: "_x70 3x20"}, "75m", True),
    Case("SluiceUnpriced", "none for hours", {UNPRICED: "3x180"}, "3h", False),
    gauge("SluiceBatchLate", "late", 'sluice_batch_jobs_late{instance="g:1"}', "1x40", "20m", True),
    gauge("SluiceBatchLate", "late for a moment", 'sluice_batch_jobs_late{instance="g:1"}', "1x4 0x40", "20m", False),
]


@needs_promtool
def test_the_rules_are_valid() -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "check", "rules", "--lint-fatal", RULES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}, {case.says}")
def test_the_alert_fires_in_its_trouble_only(case: Case, tmp_path: Path) -> None:
    firing = f'count(ALERTS{{alertname="{case.alert}",alertstate="firing"}}) or vector(0)'
    expected = {
        "expr": firing,
        "eval_time": case.at,
        "exp_samples": [{"labels": "{}", "value": int(case.fires)}],
    }
    given = [{"series": name, "values": values} for name, values in case.series.items()]
    test = {"interval": case.every, "input_series": given, "promql_expr_test": [expected]}
    whole: dict[str, Any] = {"rule_files": [str(RULES)], "evaluation_interval": case.every, "tests": [test]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(whole), encoding="utf-8")
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "test", "rules", tmp_path / "test.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tried_both_ways() -> None:
    # SluiceDown is tried where deploy/ is.
    tried = {(case.alert, case.fires) for case in CASES}
    assert tried == {(name, fires) for name in alerts() if name != "SluiceDown" for fires in (True, False)}


def test_every_alert_has_its_runbook_and_every_runbook_its_alert() -> None:
    page = (ROOT / "docs/runbooks.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (Sluice\w+)$", page, re.MULTILINE) == list(alerts())
    for name, rule in alerts().items():
        assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{name.lower()}"
        assert rule["labels"]["severity"] in {"page", "ticket"}


def test_the_outcomes_that_the_rules_name_are_there() -> None:
    rows = table(ROOT / "docs/monitoring.md", "outcome | meaning")
    known = {outcome for names, *_ in rows for outcome in names.split(", ")}
    for rule in rules():
        for named in re.findall(r'outcome!?[=~]+"([\w|]+)"', rule["expr"]):
            assert set(named.split("|")) < known
