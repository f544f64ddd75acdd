"""The kinds of Grafana panels that the dashboards use, and their layout.

tests/grafana/grafana-12.3.json (Grafana's own types) says what a dashboard's JSON may contain.
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
    """A PromQL expression and the legend of its series, in which `{{label}}` is a label's value."""

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
    description: str = "",
    width: int = 8,
    height: int = 8,
    stacked: bool = False,
    most: float | None = None,
    colours: Iterable[tuple[str, str]] = (),
) -> Placed:
    """Lines over time, from 0. `stacked` lines are filled; `colours` maps legends to colours."""
    custom: Json = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 8, "showPoints": "never"}
    custom |= {"spanNulls": False, "axisSoftMin": 0}
    if stacked:
        custom |= {"fillOpacity": 45, "stacking": {"mode": "normal", "group": "A"}}
    defaults: Json = {"unit": unit, "min": 0, "color": {"mode": "palette-classic-by-name"}, "custom": custom}
    if most is not None:
        defaults["max"] = most
    overrides = [_override(name, "color", {"mode": "fixed", "fixedColor": colour}) for name, colour in colours]
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
    options = {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    panel = _panel("timeseries", title, description, queries, options, defaults, overrides)
    return Placed(panel, width, height)


def stat(
    title: str,
    queries: Sequence[Query],
    *,
    unit: str = "short",
    description: str = "",
    width: int = 4,
    height: int = 4,
    steps: Steps = ((None, GOOD),),
    decimals: int | None = None,
    spark: bool = True,
) -> Placed:
    """The latest value, in the colour of the highest step that it has reached."""
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
    return Placed(_panel("stat", title, description, queries, options, defaults, []), width, height)


@dataclass(frozen=True)
class Column:
    """One column of a table: heading, query, unit and colour steps."""

    heading: str
    expr: str
    unit: str = "short"
    steps: Steps = ()
    names: Sequence[str] = ()
    """Labels of the values 0, 1, 2, ..."""


def table(
    title: str,
    by: Sequence[str],
    columns: Sequence[Column],
    *,
    description: str = "",
    width: int = 12,
    height: int = 8,
    sort: str = "",
) -> Placed:
    """A row for each value of the labels `by`; each column's query must keep exactly these labels.

    `sort` is the heading to sort by, largest first.
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
    panel = _panel("table", title, description, queries, options, {"custom": {"align": "auto"}}, overrides)
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
    description: str = "",
    width: int = 8,
    height: int = 8,
) -> Placed:
    """A band for each series with its state over time; `names` are the labels and colours of 0, 1, ..."""
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
    return Placed(_panel("state-timeline", title, description, [query], options, defaults, []), width, height)


def dashboard(
    uid: str,
    title: str,
    description: str,
    variables: Sequence[Json],
    rows: Iterable[tuple[str, Sequence[Placed]]],
    *,
    since: str,
) -> Json:
    """The whole dashboard: rows of panels from left to right, each under its heading unless that is empty."""
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
        "description": description,
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
    """A filter by the label values that `values` finds; all are selected at first."""
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
    description: str,
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
    if description:
        panel["description"] = description
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
