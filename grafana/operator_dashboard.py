"""The operator's dashboard."""

from grafana import operator_rows, operator_screen
from grafana.panels import Json, dashboard, variable


def build() -> Json:
    """The dashboard's JSON."""
    variables = [
        variable("model", "model", "label_values(sluice_requests_total, model)"),
        variable("upstream", "upstream", "label_values(sluice_upstream_inflight, upstream)"),
        variable("key", "key", 'label_values({__name__=~"sluice_(cost_usd|limit_rejections)_total"}, key)'),
    ]
    return dashboard(
        "sluice-operator",
        "Sluice: operator",
        "Is it us, the engine or the provider? docs/dashboards.md explains how to read it.",
        variables,
        [("", operator_screen.panels()), *operator_rows.rows()],
        since="now-1h",
    )
