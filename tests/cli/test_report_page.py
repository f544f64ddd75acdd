"""The page, the figures and the chart of hand-written usage."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.cells import cell_len

from gateway.cli.report.markdown import Page
from gateway.cli.report.messages import LANGUAGES, _messages
from gateway.cli.report.rounding import Rounding, percent
from gateway.cli.report.terminal import as_text
from gateway.cli.report.waterfall_svg import svg
from gateway.config.load import load
from gateway.core.tokens import Price
from gateway.core.units import NANO
from gateway.pricing.resolver import Pricing
from gateway.reporting.figures import ReportFigures, figures
from gateway.reporting.json_output import as_json
from gateway.reporting.period import Period
from gateway.reporting.sources import Machine, Priced, machines, prices
from gateway.usage.savings import BASELINE, CALL_PARTS, CANDIDATE, Alternative, Saving
from gateway.usage.savings_breakdown import Single
from gateway.usage.store import UsageRow, UsageSnapshot, summary

DAY = "2026-11-29"
PERIOD = Period("2026-11-28", "2026-11-30", "Asia/Seoul")
EMPTY = UsageSnapshot([], [], [])


def usage() -> UsageSnapshot:
    """Ten dollars of baseline: four cached, one shared, three paid, one of them for a failed attempt."""
    return UsageSnapshot(
        [
            UsageRow(DAY, "team-a", "small", "paid", 4, 1000, 100, 200, 0, 3 * NANO, estimated=1),
            UsageRow(DAY, "team-b", "small", "cache", 3, 0, 0, 0, 0, 0),
            UsageRow(DAY, "team-b", "odd", "new", 2, 50, 5, 0, 0, 7, unpriced=2),
        ],
        [
            Saving(
                DAY, "team-a", "small", "paid",
                compared=3, failed=1, elsewhere=2, baseline=5 * NANO, cheapest=4 * NANO,
                plain=2 * NANO + NANO // 2, paid=2 * NANO, waste=NANO, merged=3, spared=2 * CALL_PARTS,
            ),
            Saving(
                DAY, "team-b", "small", "cache",
                compared=3, cheapest=2 * NANO, hits=2, hit_input=20, hit_output=4, hit_baseline=4 * NANO,
                shared=1, shared_input=10, shared_output=2, shared_baseline=NANO,
            ),
            Saving(DAY, "team-b", "odd", "new", uncompared=1, unpriced_input=50, unpriced_output=5),
        ],
        [
            Alternative(DAY, "small", BASELINE, "dear/large", 6, 10 * NANO),
            Alternative(DAY, "small", CANDIDATE, "dear/large", 6, 10 * NANO),
            Alternative(DAY, "small", CANDIDATE, "cheap/s", 6, 6 * NANO),
            Alternative(DAY, "small", CANDIDATE, "tiny/t", 5, 1),
        ],
    )  # fmt: skip


def report(of: UsageSnapshot | None = None) -> ReportFigures:
    price = Price(10**9, 2 * 10**9, 10**9)
    priced = [
        Priced("small", "paid", "up|small", price, "config"),
        Priced("odd", "new", "new", None, "unknown"),
    ]
    return figures(summary(usage() if of is None else of), PERIOD, priced)


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table under this heading, without its titles."""
    below = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in below.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_the_sums():
    found = report()
    assert [(part.name, part.saved / NANO) for part in found.parts] == [
        ("exact_cache", 4),
        ("coalescing", 1),
        ("provider_prefix_cache", 0.5),
        ("routing", 2.5),
        ("batch", 0),
        ("failed_attempts", -1),
    ]
    assert (found.baseline, found.actual, found.saved) == (10 * NANO, 3 * NANO, 7 * NANO)
    assert (found.sums.cheapest, found.single, found.outside) == (6 * NANO, 6 * NANO, 7)
    assert (found.requests, found.unrecorded, found.avoided_calls) == (9, 1, 2)
    assert found.singles == {"small": Single("small", "cheap/s", 6 * NANO)}, "tiny/t could not serve all"


def test_the_page_in_english():
    page = Page(report(), "en", "chart.svg").text()
    assert "Requests compared: 6. Cost: **3.0000 USD**" in page
    assert "**7.0000 USD less (70.0 %)**" in page
    headline, quality = (
        page.index("USD less"),
        page.index("**Quality was not measured.** Requests answered by a candidate"),
    )
    assert 0 < quality - headline < 60, "no saving without it"
    assert rows(page, "Compared with what?") == [
        ["the declared baseline", "10.0000", "3.0000", "7.0000", "70.0 %"],
        ["always the cheapest candidate", "6.0000", "3.0000", "3.0000", "50.0 %"],
        ["the best single candidate", "6.0000", "3.0000", "3.0000", "50.0 %"],
    ]
    steps = [row[1] for row in rows(page, "Where the difference comes from")]
    assert steps == ["10.0000", "-4.0000", "-1.0000", "-0.5000", "-2.5000", "0.0000", "1.0000", "3.0000"]
    assert "it avoided 2 upstream calls" in page
    assert rows(page, "By key")[-1] == [
        "all", "9", "6", "3", "2", "10.0000", "3.0000", "7.0000", "70.0 %",
    ]  # fmt: skip
    for line in (
        "- Requests not served: 1;",
        "- Requests not compared, because a price is not known: 1.",
        "- Attempts without a known price: 2; 50 input and 5 output tokens.",
        "- Requests recorded before comparison was available: 1.",
        "- Attempts whose tokens are estimated, because their upstreams reported none: 1.",
    ):
        assert line in page
    assert "| small | paid | up\\|small | 1 | 2 | 1 | config |" in page
    assert "| odd | new | new | unknown | unknown | unknown | unknown |" in page
    assert "![From the baseline to the actual cost, USD](chart.svg)" in page
    assert "Same-token assumption" in page


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_figure_is_cut_in_a_terminal(language, width):
    page = Page(report(), language).text()
    drawn = as_text(page, width)
    assert max(map(cell_len, drawn.splitlines())) <= width
    assert "…" not in drawn
    figures_in = re.compile(r"\d[\d.,]*\d")
    assert set(figures_in.findall(page)) <= set(figures_in.findall(drawn))


def test_a_table_that_does_not_fit_becomes_a_list():
    table = "| key | requests | saved, USD |\n| --- | --: | --: |\n| `team\\|a` | 9 | 7.0000 |\n"
    assert "team|a" in as_text(table, 80)
    assert as_text(table, 20).split() == ["•", "team|a;", "requests:", "9,", "saved,", "USD:", "7.0000"]


@pytest.mark.parametrize(
    ("hours", "text"), [(0.0022, "0.0022"), (0.085, "0.085"), (0.5, "0.5"), (24.0, "24"), (1234.567, "1,234.57")]
)
def test_hours_are_short(hours, text):
    found = figures(summary(usage()), PERIOD, [], [Machine("local", 2 * NANO, hours)])
    assert f"for {text} hours" in Page(found, "en").text()


def test_the_page_in_korean_says_the_same():
    english, korean = (Page(report(), language).text() for language in LANGUAGES)
    numbers = re.compile(r"\d[\d,.]*")
    tables = [[numbers.findall(line) for line in page.splitlines() if "|" in line] for page in (english, korean)]
    assert tables[0] == tables[1]
    assert "품질은 측정하지 않았습니다" in korean
    assert not re.search(r"\{\w+\}", english + korean)
    words = re.sub(r"USD|UTC|Asia/Seoul|`[^`]*`|^\|.*$", "", korean, flags=re.MULTILINE)
    assert re.findall(r"[A-Za-z]{3,}", words) == []


def test_every_text_exists_in_both_languages_with_the_same_values():
    for key, texts in _messages().items():
        assert set(texts) == set(LANGUAGES), key
        assert sorted(re.findall(r"\{\w+\}", texts["en"])) == sorted(re.findall(r"\{\w+\}", texts["ko"])), key


def test_json_is_exact_and_adds_up():
    document = json.loads(json.dumps(as_json(report())))
    assert (document["from"], document["to"], document["timezone"]) == (*PERIOD[:2], "Asia/Seoul")
    saved = sum(float(part["saved_usd"]) for part in document["parts"])
    declared = document["baselines"]["declared"]
    assert saved == float(declared["usd"]) - float(document["actual_usd"]) == float(declared["saved_usd"])
    assert declared["names"] == [{"model": "small", "name": "dear/large", "from": DAY, "to": DAY, "requests": 6}]
    assert document["baselines"]["best_single"]["names"] == {"small": "cheap/s"}
    assert document["left_out"] == {
        "usd": "0.000000007",
        "unpriced_attempts": 2,
        "unpriced_tokens": {"input": 50, "output": 5},
    }
    assert document["quality"] == {"measured": False, "answered_by_another_candidate": 2}
    assert document["requests"]["not_recorded"] == 1
    assert sum(float(one["actual_usd"]) for one in document["models"]) == float(document["actual_usd"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_report_without_requests_is_one_line(language):
    page = Page(report(EMPTY), language).text()
    document = as_json(report(EMPTY))
    assert page.count("\n") == 1
    assert "#" not in page
    assert "|" not in page
    assert document["baselines"]["declared"]["saved_share"] is None
    assert ElementTree.fromstring(svg(report(EMPTY), language)).tag.endswith("svg")


def test_costs_above_the_baseline_are_reported_as_such():
    dear = UsageSnapshot([], [Saving(DAY, "k", "m", "u", compared=1, elsewhere=1, baseline=5, plain=9, paid=9)], [])
    page = Page(report(dear), "en").text()
    assert "more was paid" in page
    assert "less (" not in page
    assert dict(report(dear).parts)["routing"] == -4


def test_a_model_that_no_single_candidate_could_serve_has_no_best_single():
    found = report(usage()._replace(alternatives=[Alternative(DAY, "small", CANDIDATE, "tiny/t", 5, 1)]))
    assert found.single is None
    page = Page(found, "en").text()
    assert ["the best single candidate", "–", "3.0000", "–", "–"] in rows(page, "Compared with what?")
    assert "For `small`, no single candidate" in page


def test_machine_costs_are_listed_beside_the_savings():
    machine = Machine("local", 2 * NANO, 24.0)
    found = figures(summary(usage()), PERIOD, [Priced("small", "bare", "s", Price(0, 0, 0), "self-hosted")], [machine])
    page = Page(found, "en").text()
    assert "- local: 2 USD an hour for 24 hours, 48.0000 USD" in page
    assert "Including it, 41.0000 USD more was paid than at the baseline." in page
    assert "`bare` has a token price of 0 and no `gpu_hour_usd`" in page
    cheap = figures(summary(usage()), PERIOD, [], [machine._replace(hourly=NANO // 8, hours=1.25)])
    page = Page(cheap, "en").text()
    assert "- local: 0.125 USD an hour for 1.25 hours, 0.1563 USD" in page
    assert "Including it, 6.8438 USD less was paid than at the baseline." in page


SEOUL = 9 * 3600
BEGINS = 1_795_824_000 - SEOUL
"""Unix seconds at which PERIOD begins."""
HOUR = 3600


@pytest.mark.parametrize(
    ("first_call", "now", "hours"),
    [
        (None, BEGINS + HOUR, 0.0),
        (BEGINS + 7 * HOUR, BEGINS + 7 * HOUR + 60, 1 / 60),  # a minute, though the day has run for seven hours
        (BEGINS + 7 * HOUR, BEGINS + 9 * HOUR, 2.0),
        (BEGINS - 500 * HOUR, BEGINS + 9 * HOUR, 9.0),
        (BEGINS - 500 * HOUR, BEGINS + 500 * HOUR, 72.0),
        (BEGINS + 70 * HOUR, BEGINS + 500 * HOUR, 2.0),
        (BEGINS + 100 * HOUR, BEGINS + 500 * HOUR, 0.0),  # after the period
        (BEGINS + 2 * HOUR, BEGINS + HOUR, 0.0),  # the clock was set back
    ],
)
def test_a_machine_counts_from_the_first_call_to_now_within_the_period(
    tmp_path: Path, first_call: int | None, now: float, hours: float
):
    file = tmp_path / "sluice.yaml"
    file.write_text(
        "upstreams: {local: {base_url: 'http://127.0.0.1:9/v1', kind: vllm, gpu_hour_usd: 1.2}}\n"
        "models: {small: {candidates: [{upstream: local}]}}\n"
    )
    config = load(file, {}).config
    assert config is not None
    [machine] = machines(config, usage()._replace(first_call=first_call), PERIOD, now)
    assert machine.hours == pytest.approx(hours)
    assert machine.cost == round(1.2 * NANO * hours)


def test_each_bar_of_the_chart_starts_where_the_last_one_ended():
    drawn = ElementTree.fromstring(svg(report(), "en"))
    bars = [one for one in drawn.iter() if one.get("class") in ("total", "less", "more")]
    spans = [(float(one.get("x", 0)), float(one.get("width", 0))) for one in bars]
    assert [one.get("class") for one in bars] == ["total", *["less"] * 4, "more", "total"]
    level = sum(spans[0])
    for one, (x, width) in zip(bars[1:-1], spans[1:-1], strict=True):
        begins, ends = (x + width, x) if one.get("class") == "less" else (x, x + width)
        assert begins == pytest.approx(level, abs=0.2)
        level = ends
    assert sum(spans[-1]) == pytest.approx(level, abs=0.2)
    assert spans[-1][0] == spans[0][0]
    text = "".join(drawn.itertext())
    for amount in ("10.0000", "-4.0000", "+1.0000", "3.0000"):
        assert amount in text


@pytest.mark.parametrize(
    ("nanos", "largest", "text"),
    [
        (1_234_565_000_000, 2_000 * NANO, "1,234.57"),
        (-5_000_001, 100 * NANO, "-0.01"),
        (123_450_000, NANO, "0.1235"),
        (999, 1000, "0.000001"),
    ],
)
def test_money_is_rounded_by_the_largest_amount(nanos: int, largest: int, text: str):
    money = Rounding(largest)
    assert money.text(money.units(nanos)) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"), [(1, 3, "33.3 %"), (-1, 8, "-12.5 %"), (0, 5, "0.0 %"), (1, 0, "–")]
)
def test_shares(part: int, whole: int, text: str):
    assert percent(part, whole) == text


def test_a_configured_price_that_differs_from_the_catalogue_is_listed(tmp_path: Path):
    file = tmp_path / "sluice.yaml"
    price = "price: {input: %s, output: 10, cached_input: 1.25}"
    candidate = f"candidates: [{{upstream: openai, model: gpt-4o, {price}}}]"
    models = "".join(f"  {name}: {{{candidate % given}}}\n" for name, given in (("same", 2.5), ("other", 2.4)))
    text = 'upstreams: {openai: {base_url: "https://api.openai.com/v1"}}\nmodels:\n' + models
    file.write_text(text, encoding="utf-8")
    config = load(file, {}).config
    assert config is not None
    found = list(prices(config, Pricing(lambda: 1_800_000_000.0)))
    assert [(one.model, one.listed is not None) for one in found] == [("same", False), ("other", True)]
    page = Page(figures(summary(usage()), PERIOD, found), "en").text()
    assert page.count("The configured price of `gpt-4o` at openai differs from that of genai-prices") == 1
    assert "2.5 in, 10 out, 1.25 cached" in page
