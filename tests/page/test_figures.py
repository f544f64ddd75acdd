"""The overview's numbers, from plain samples."""

import pytest

from gateway.core import errors
from gateway.page.figures import OUTCOMES, Sample, overview, totals


def samples(ok: int, failed: int, output: int) -> list[Sample]:
    return [
        ("sluice_requests_total", {"model": "m", "outcome": "ok", "status": "200"}, ok),
        ("sluice_requests_total", {"model": "n", "outcome": "ok", "status": "200"}, 1),
        ("sluice_requests_total", {"model": "m", "outcome": "upstream_error", "status": "502"}, failed),
        ("sluice_time_to_first_token_seconds_bucket", {"model": "m", "le": "0.1"}, ok),
        ("sluice_time_to_first_token_seconds_bucket", {"model": "m", "le": "+Inf"}, ok),
        ("sluice_tokens_total", {"type": "output"}, output),
        ("sluice_tokens_total", {"type": "input"}, 7),
        ("sluice_cost_usd_total", {"key": "k"}, 0.5),
        ("something_else", {}, 99),
    ]


def test_totals_since_the_start():
    shown = overview(totals(samples(10, 2, 300)))
    assert (shown.calls, shown.input, shown.output, shown.cost_usd) == (13, 7, 300, 0.5)
    assert shown.call_rate is None
    assert [(row.outcome, row.fault, row.count) for row in shown.outcomes] == [
        ("ok", "nobody", 11),
        ("upstream_error", "upstream", 2),
    ]
    assert shown.first_token_p50 == pytest.approx(0.05)


def test_rates_between_two_moments():
    shown = overview(totals(samples(30, 4, 500)), totals(samples(10, 2, 300)), 10.0)
    assert (shown.call_rate, shown.output_rate) == (2.2, 20.0)
    assert [row.rate for row in shown.outcomes] == [2.0, 0.2]


def test_a_restart_in_between_gives_no_rates():
    shown = overview(totals(samples(1, 0, 5)), totals(samples(10, 2, 300)), 10.0)
    assert shown.call_rate is None


def test_no_call_yet():
    shown = overview(totals([]))
    assert (shown.calls, shown.first_token_p50) == (0, None)
    assert [row.outcome for row in shown.outcomes] == ["ok"]


def test_every_outcome_of_the_table_of_errors_is_somebodys_fault():
    kinds = {kind.outcome for kind in vars(errors).values() if isinstance(kind, errors.ErrorKind)}
    assert kinds <= set(OUTCOMES)
