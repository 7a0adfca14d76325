"""Short definitions of dashboards, and their conversion to Grafana's JSON.

Every panel has a unit, and a description that says what to do if it looks wrong. The data source is a variable, so
that the files work in any Grafana.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

WIDTH: Final = 24
HEIGHT: Final = 8
SOURCE: Final[Mapping[str, str]] = {"type": "prometheus", "uid": "${source}"}
SCHEMA_VERSION: Final = 39

Unit = Literal["short", "reqps", "ops", "Bps", "bytes", "s", "percentunit", "cps"]


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL, in which $__rate_interval is chosen by Grafana; `legend` with {{label}} for the labels that differ."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    text: str
    unit: Unit
    queries: Sequence[Query]
    kind: Literal["timeseries", "stat"] = "timeseries"
    width: Literal[8, 24] = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """`uid` is the file's name, and part of its URL in Grafana."""

    uid: str
    title: str
    text: str
    panels: Sequence[Panel]


def rate(metric: str, by: str = "", where: str = "") -> str:
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({metric}{where}[$__rate_interval]))"


def quantile(share: float, metric: str, by: str = "", where: str = "") -> str:
    """Of a histogram, without its `_bucket`."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{where}[$__rate_interval])))"


def document(board: Dashboard) -> dict[str, Any]:
    """The JSON that Grafana reads."""
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.text,
        "tags": ["kafscale"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source_variable()]},
        "links": [{"type": "dashboards", "tags": ["kafscale"], "title": "KafScale", "asDropdown": True}],
        "panels": list(_laid_out(board.panels)),
    }


def _source_variable() -> dict[str, Any]:
    return {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}


def _laid_out(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    """Places panels from left to right; a panel that does not fit starts a new row."""
    x = y = 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > WIDTH:
            x, y = 0, y + HEIGHT
        yield _panel(panel, number, {"x": x, "y": y, "w": panel.width, "h": HEIGHT})
        x += panel.width


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": dict(SOURCE),
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": _OPTIONS[panel.kind],
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": dict(SOURCE),
                "expr": query.expr,
                "legendFormat": query.legend,
            }
            for at, query in enumerate(panel.queries)
        ],
    }


_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "timeseries": {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "value_and_name", "colorMode": "none"},
}
