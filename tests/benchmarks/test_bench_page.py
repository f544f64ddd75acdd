"""Results, page and picture agree, the competitors are pinned and name no registry, the soak can fail."""

import json
import re
from dataclasses import replace

import pytest
from kit.pages import ROOT, tables

from benchmarks import plot, report
from benchmarks.leak_check import Held, verdict
from benchmarks.proxies import CONTENDERS, SluiceAllOn
from benchmarks.scenarios import NUMBER, scenarios
from gateway.cli.router import report as figures
from gateway.config.load import load

PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "benchmarks" / "results.md"
COMPETITORS = ROOT / "benchmarks" / "competitors"
FLAT = [Held(n, 90_000_000, 400_000, 18, 20, 7, 4, 0) for n in range(1, 11)]


def test_the_picture_shows_the_figures_of_the_results():
    assert plot.PICTURE.read_text(encoding="utf-8") == plot.draw(RESULTS.read_text(encoding="utf-8"))


def test_the_rows_of_the_page_are_rows_of_the_results():
    of_contenders = [row for one in tables(PAGE) for row in one if len(row) > 8]
    assert {row[0] for row in of_contenders} == {"chat-32", "stream-400"}
    everything = [row for one in tables(RESULTS) for row in one]
    assert [row for row in of_contenders if row not in everything] == []


def test_the_results_have_a_place_for_new_tables():
    text = RESULTS.read_text(encoding="utf-8")
    for begin, end in ((report.BEGIN, report.END), (figures.BEGIN, figures.END)):
        assert text.count(begin) == text.count(end) == 1
        assert "| " in text.partition(begin)[2].partition(end)[0]


def test_a_range_and_thousands_are_read_and_the_least_comes_first():
    page = "| load | contender | a | b |\n| --- | --- | --: | --: |\n"
    page += "| chat-32 | slow | 9 | 1,002.5 (999.0..1,010.0) |\n"
    page += "| chat-32 | quick | 9 | 3 |\n| quiet | slow | 9 | 1 |\n"
    assert plot.marks(page, "chat-32", "b") == [
        plot.Mark("quick", 3, 3, 3),
        plot.Mark("slow", 1002.5, 999, 1010),
    ]


def test_every_contender_stands_in_the_page():
    told = {row[0].strip("`") for one in tables(PAGE) for row in one}
    assert {*CONTENDERS} - told == set()


def test_the_pins_name_no_registry_and_have_a_hash_each():
    lock = json.loads((COMPETITORS / "package-lock.json").read_text())
    assert all("resolved" not in one for one in lock["packages"].values())
    assert all("integrity" in one for name, one in lock["packages"].items() if name)
    pins = (COMPETITORS / "pypi.txt").read_text()
    assert "://" not in pins
    packages = re.findall(r"^\S+==.*\n((?:    --hash=.*\n)*)", pins, re.MULTILINE)
    assert packages
    assert all(packages)


@pytest.mark.parametrize("load_", scenarios(quick=False), ids=lambda one: one.name)
def test_a_body_has_its_size_and_one_place_for_its_number(load_):
    body = load_.body("bench-model")
    assert body.count(NUMBER) == 1
    assert load_.size in (0, len(body))


def test_all_features_are_on_in_the_row_that_says_so():
    contender = SluiceAllOn(1)
    try:
        contender.command()
        config = load(contender.folder / "sluice.yaml", {}).config
    finally:
        contender.stop()
    assert config is not None
    assert None not in {getattr(config.keys[0].limits, name) for name in ("rpm", "tpm", "concurrency", "usd_per_day")}
    (model,) = config.models.values()
    assert (model.route, len(model.candidates), model.cache.enabled) == ("cheapest", 2, True)
    assert all(one.price is not None for one in model.candidates)
    assert (config.usage.store, config.log.level) == ("sqlite", "info")


def test_a_soak_that_is_flat_passes_though_it_grew_before():
    rows = [replace(FLAT[0], memory=60_000_000, blocks=300_000), *FLAT[1:]]
    assert verdict(rows) == []


@pytest.mark.parametrize(
    "grown",
    [
        {"memory": 95_000_000},
        {"blocks": 405_000},
        {"descriptors": 21},
        {"idle": 65},
        {"threads": 10},
        {"tasks": 7},
        {"inflight": 1},
    ],
    ids=lambda one: next(iter(one)),
)
def test_a_soak_fails_where_anything_has_grown(grown):
    (fault,) = verdict([*FLAT[:-1], replace(FLAT[-1], **grown)])
    assert fault.startswith(next(iter(grown)))
