"""The few shapes of Grafana panels that the dashboards are made of, and where they stand.

What a dashboard's JSON may hold is in tests/grafana/grafana-12.3.json, Grafana's own types.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]

SOURCE: Final[Json] = {"type": "prometheus", "uid": "${source}"}
WIDTH: Final = 24

GOOD, WARN, BAD = "green", "orange", "red"
Steps = Sequence[tuple[float | None, str]]


@dataclass(frozen=True)
class Query:
    """A PromQL expression, and the name of its series: `{{label}}` stands for a label's value."""

    expr: str
    legend: str = "__auto"


@dataclass(frozen=True)
class Placed:
    """A panel and its size in units of the grid, which is 24 wide."""

    panel: Json
    width: int
    height: int


def lines(
    title: str,
    queries: Sequence[Query],
    *,
    unit: str = "short",
    tells: str = "",
    width: int = 8,
    height: int = 8,
    stacked: bool = False,
    most: float | None = None,
    colours: Iterable[tuple[str, str]] = (),
) -> Placed:
    """Lines over time, from 0. `stacked` ones fill what is under them; `colours` go by the series' name."""
    custom: Json = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 8, "showPoints": "never"}
    custom |= {"spanNulls": False, "axisSoftMin": 0}
    if stacked:
        custom |= {"fillOpacity": 45, "stacking": {"mode": "normal", "group": "A"}}
    defaults: Json = {"unit": unit, "min": 0, "color": {"mode": "palette-classic-by-name"}, "custom": custom}
    if most is not None:
        defaults["max"] = most
    overrides = [
        _override(name, "color", {"mode": "fixed", "fixedColor": colour}) for name, colour in colours
    ]
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
    options = {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    panel = _panel("timeseries", title, tells, queries, options, defaults, overrides)
    return Placed(panel, width, height)


def stat(
    title: str,
    queries: Sequence[Query],
    *,
    unit: str = "short",
    tells: str = "",
    width: int = 4,
    height: int = 4,
    steps: Steps = ((None, GOOD),),
    decimals: int | None = None,
    spark: bool = True,
) -> Placed:
    """The newest value, large, in the colour of the highest step that it has reached."""
    defaults: Json = {"unit": unit, "color": {"mode": "thresholds"}, "thresholds": _thresholds(steps)}
    if decimals is not None:
        defaults["decimals"] = decimals
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "orientation": "auto",
        "colorMode": "value",
        "graphMode": "area" if spark else "none",
        "justifyMode": "auto",
        "percentChangeColorMode": "standard",
        "showPercentChange": False,
        "textMode": "auto" if len(queries) == 1 else "value_and_name",
        "wideLayout": True,
    }
    return Placed(_panel("stat", title, tells, queries, options, defaults, []), width, height)


@dataclass(frozen=True)
class Column:
    """One column of a table: its heading, the query of its values, their unit and their steps."""

    heading: str
    expr: str
    unit: str = "short"
    steps: Steps = ()
    names: Sequence[str] = ()
    """What the values 0, 1, 2, ... are called."""


def table(
    title: str,
    by: Sequence[str],
    columns: Sequence[Column],
    *,
    tells: str = "",
    width: int = 12,
    height: int = 8,
    sort: str = "",
) -> Placed:
    """A row for each value of the labels `by`; each column's query must leave these labels and no other.

    `sort` is the heading whose largest values come first.
    """
    refs = [chr(ord("A") + number) for number in range(len(columns))]
    overrides = []
    for column in columns:
        properties: list[tuple[str, Any]] = [("unit", column.unit)]
        if column.steps:
            properties += [("thresholds", _thresholds(column.steps)), ("color", {"mode": "thresholds"})]
            properties += [("custom.cellOptions", {"type": "color-text"})]
        if column.names:
            properties += [("mappings", [_names(column.names)])]
        overrides += [_override(column.heading, *properties[0])]
        overrides[-1]["properties"] += [{"id": id_, "value": value} for id_, value in properties[1:]]
    organize = {
        "excludeByName": {"Time": True},
        "indexByName": {name: at for at, name in enumerate([*by, *(f"Value #{ref}" for ref in refs)])},
        "renameByName": {f"Value #{ref}": one.heading for ref, one in zip(refs, columns, strict=True)},
    }
    options: Json = {"frameIndex": 0, "showHeader": True, "cellHeight": "sm"}
    if sort:
        options["sortBy"] = [{"displayName": sort, "desc": True}]
    queries = [Query(column.expr) for column in columns]
    panel = _panel("table", title, tells, queries, options, {"custom": {"align": "auto"}}, overrides)
    for target in panel["targets"]:
        target |= {"format": "table", "instant": True, "range": False}
    panel["transformations"] = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": organize},
    ]
    return Placed(panel, width, height)


def states(
    title: str,
    query: Query,
    names: Sequence[tuple[str, str]],
    *,
    tells: str = "",
    width: int = 8,
    height: int = 8,
) -> Placed:
    """A band for each series that shows its state over time; `names` are those of 0, 1, ... with colours."""
    mapping = _names([name for name, _ in names])
    for number, (_, colour) in enumerate(names):
        mapping["options"][str(number)]["color"] = colour
    defaults: Json = {"mappings": [mapping], "color": {"mode": "thresholds"}}
    defaults |= {"custom": {"fillOpacity": 70, "lineWidth": 0}}
    options = {
        "rowHeight": 0.8,
        "showValue": "never",
        "mergeValues": True,
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return Placed(_panel("state-timeline", title, tells, [query], options, defaults, []), width, height)


def dashboard(
    uid: str,
    title: str,
    tells: str,
    variables: Sequence[Json],
    rows: Iterable[tuple[str, Sequence[Placed]]],
    *,
    since: str,
) -> Json:
    """The whole: panels from left to right in rows, each under its heading; one without heading has none."""
    panels: list[Json] = []
    y = 0
    for heading, placed in rows:
        if heading:
            panels.append(
                {"id": len(panels) + 1, "type": "row", "title": heading, "collapsed": False, "panels": []}
                | {"gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}}
            )
            y += 1
        x = high = 0
        for one in placed:
            if x + one.width > WIDTH:
                x, y, high = 0, y + high, 0
            position = {"x": x, "y": y, "w": one.width, "h": one.height}
            panels.append({"id": len(panels) + 1, **one.panel, "gridPos": position})
            x, high = x + one.width, max(high, one.height)
        y += high
    link = {"title": "Sluice", "type": "dashboards", "tags": ["sluice"], "asDropdown": False}
    link |= {"icon": "dashboard", "includeVars": True, "keepTime": True, "targetBlank": False, "tooltip": ""}
    return {
        "uid": uid,
        "title": title,
        "description": tells,
        "tags": ["sluice"],
        "schemaVersion": 42,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": since, "to": "now"},
        "timezone": "browser",
        "links": [link],
        "templating": {"list": [_source(), *variables]},
        "panels": panels,
    }


def variable(name: str, label: str, values: str) -> Json:
    """A filter by a label whose values `values` finds; all of them at first, and nothing is then left out."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": values, "refId": "values"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _source() -> Json:
    return {"name": "source", "label": "data source", "type": "datasource", "query": "prometheus"} | {
        "current": {"text": "Prometheus", "value": "prometheus"}
    }


def _panel(
    kind: str,
    title: str,
    tells: str,
    queries: Sequence[Query],
    options: Json,
    defaults: Json,
    overrides: list[Json],
) -> Json:
    targets = [
        {"refId": chr(ord("A") + number), "datasource": SOURCE, "expr": one.expr, "legendFormat": one.legend}
        for number, one in enumerate(queries)
    ]
    panel: Json = {"type": kind, "title": title, "datasource": SOURCE, "targets": targets}
    if tells:
        panel["description"] = tells
    return panel | {"options": options, "fieldConfig": {"defaults": defaults, "overrides": overrides}}


def _override(name: str, id_: str, value: Any) -> Json:
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": id_, "value": value}],
    }


def _thresholds(steps: Steps) -> Json:
    return {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]}


def _names(names: Sequence[str]) -> Json:
    options = {str(number): {"text": name, "index": number} for number, name in enumerate(names)}
    return {"type": "value", "options": options}
