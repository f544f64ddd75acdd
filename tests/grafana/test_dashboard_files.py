"""grafana/: what Grafana reads is valid, written by grafana/build.py, and shows every series there is."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from dashboards import DASHBOARDS, ROOT, alerts, panels, queries, read, rules, variables
from kit.pages import table

from grafana import build

SCHEMA = json.loads((Path(__file__).parent / "grafana-12.3.json").read_text(encoding="utf-8"))
EACH = pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)


@EACH
def test_it_is_what_grafanas_types_allow(file: Path) -> None:
    errors = jsonschema.Draft7Validator(SCHEMA).iter_errors(read(file))
    told = [jsonschema.exceptions.best_match([error]) for error in errors]
    assert [f"{one.json_path}: {one.message}" for one in told if one is not None] == []


def test_the_schema_is_that_of_the_grafana_that_compose_starts() -> None:
    image = yaml.safe_load((ROOT / "deploy/compose.yml").read_text())["services"]["grafana"]["image"]
    assert image.startswith("grafana/grafana:12.3.")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda board: board["panels"][0]["options"].update(graphMode="bars"),
        lambda board: board["panels"][0]["targets"][0].pop("expr"),
        lambda board: board["panels"][0].update(widht=4),
        lambda board: board["templating"]["list"][1].update(type="label"),
        lambda board: board.pop("schemaVersion"),
    ],
    ids=["an option", "a query", "a field", "a variable", "no version"],
)
def test_the_schema_finds_mistakes(spoil: Any) -> None:
    board = read(DASHBOARDS[0])
    spoil(board)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(board, SCHEMA, jsonschema.Draft7Validator)


def test_the_files_are_what_the_program_writes() -> None:
    written = {file.name: file.read_text(encoding="utf-8") for file in DASHBOARDS}
    assert written == build.pages(), "python -m grafana.build"


def test_each_dashboard_has_a_name_of_its_own() -> None:
    boards = [read(file) for file in DASHBOARDS]
    assert len({one["uid"] for one in boards}) == len({one["title"] for one in boards}) == len(boards)


@EACH
def test_panels_have_their_place_and_do_not_overlap(file: Path) -> None:
    found = read(file)["panels"]
    assert len({one["id"] for one in found}) == len(found)
    taken = [one["gridPos"] for one in found]
    assert all(one["x"] >= 0 and one["x"] + one["w"] <= 24 for one in taken)
    for a, b in combinations(taken, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert beside or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"], (a, b)


@EACH
def test_filters_are_named_where_they_are_used_and_used_where_they_are_named(file: Path) -> None:
    board = read(file)
    named = {one["name"] for one in board["templating"]["list"]}
    text = json.dumps(board["panels"])
    used = set(re.findall(r"\$\{?([a-z]+)", text)) - {"__rate_interval", "__range"}
    assert named == used


def test_the_data_source_is_the_one_that_is_provisioned() -> None:
    file = ROOT / "grafana/provisioning/datasources/prometheus.yml"
    (source,) = yaml.safe_load(file.read_text(encoding="utf-8"))["datasources"]
    for board in map(read, DASHBOARDS):
        (chosen,) = (one for one in board["templating"]["list"] if one["type"] == "datasource")
        assert chosen["current"] == {"text": source["name"], "value": source["uid"]}
        assert {panel["datasource"]["uid"] for panel in board["panels"] if "datasource" in panel} == {"${source}"}


@EACH
def test_the_columns_of_a_table_are_renamed_to_what_they_are_coloured_by(file: Path) -> None:
    for panel in panels(file):
        if panel["type"] != "table":
            continue
        renamed = panel["transformations"][1]["options"]["renameByName"]
        assert list(renamed) == [f"Value #{target['refId']}" for target in panel["targets"]]
        assert len(renamed) > 1, "with one query Grafana calls the column Value, without its letter"
        matched = [one["matcher"]["options"] for one in panel["fieldConfig"]["overrides"]]
        assert matched == list(renamed.values())


def test_every_series_is_shown_and_every_series_that_is_shown_exists() -> None:
    known = {row[0].strip("`") for row in table(ROOT / "docs/monitoring.md", "metric | type | labels | meaning")}
    asked = [one.expr for one in (*queries(), *variables())]
    asked += [rule["expr"] for rule in rules()]
    text = re.sub(r'"[^"]*"', "", " ".join(asked))
    shown = {
        re.sub(r"_(bucket|sum|count)$", "", name) if name not in known else name
        for name in re.findall(r"\bsluice_\w+", text)
    }
    assert shown == {name for name in known if name.startswith("sluice_")}


def test_no_alert_is_without_a_name_that_the_dashboard_counts() -> None:
    (counting,) = (one.expr for one in queries() if "ALERTS" in one.expr)
    match = re.search(r'alertname=~"([^"]+)"', counting)
    assert match is not None
    assert all(re.fullmatch(match[1], name) for name in alerts())
