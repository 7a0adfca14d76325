"""Short definitions of dashboards, and their conversion to Grafana's JSON.

Every panel has a unit, and a description that says what to do if it looks wrong. The data source is a variable, so
that the files work in any Grafana. Variables also choose the cluster, the namespace and the instance, and the topic and
the group on pages with such labels. Every query is narrowed by those that its metric has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from kafscale.runtime.metric_table import EVERY_PROCESS, OWN, rows_of

WIDTH: Final = 24
HEIGHT: Final = 8
SOURCE: Final[Mapping[str, str]] = {"type": "prometheus", "uid": "${source}"}
SCHEMA_VERSION: Final = 39

JOBS: Final = "|".join(OWN)
LABELS: Final[Mapping[str, Sequence[str]]] = {
    row.exposed(service): row.labels for service in OWN for row in (*rows_of(service), *EVERY_PROCESS)
}
METRIC: Final = re.compile(r"\b((?:kafscale|kafka_consumergroup|process)_\w+)(?:\{([^}]*)\})?")
HISTOGRAM_SERIES: Final = re.compile(r"_(bucket|sum|count)$")
ALWAYS: Final = ("cluster", "namespace", "instance")
"""Labels that Prometheus adds: `instance` always, `namespace` on Kubernetes, `cluster` if its operator wants so."""
SOMETIMES: Final = ("topic", "group")
"""Labels of some metrics by which a reader wants to choose."""

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
        "templating": {"list": [_source_variable(), *_variables(board)]},
        "links": [{"type": "dashboards", "tags": ["kafscale"], "title": "KafScale", "asDropdown": True}],
        "panels": list(_laid_out(board.panels)),
    }


def _source_variable() -> dict[str, Any]:
    return {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}


def _variables(board: Dashboard) -> Iterator[dict[str, Any]]:
    exprs = [query.expr for panel in board.panels for query in panel.queries]
    names = [found[1] for expr in exprs for found in METRIC.finditer(expr)]
    yield _variable("cluster", "up", f'job=~"{JOBS}"')
    yield _variable("namespace", "up", f'job=~"{JOBS}", cluster=~"$cluster"')
    placed = 'cluster=~"$cluster", namespace=~"$namespace"'
    yield _variable("instance", "up", f'job=~"{JOBS}", {placed}')
    for label in SOMETIMES:
        having = [name for name in names if label in _labels_of(name)]
        if having:
            yield _variable(label, having[0], placed)


def _variable(label: str, metric: str, where: str) -> dict[str, Any]:
    """One or several values; "All" also means series without the label."""
    query = f"label_values({metric}{{{where}}}, {label})"
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": dict(SOURCE),
        "definition": query,
        "query": {"query": query, "refId": label},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def narrowed(expr: str) -> str:
    """The query for the chosen values of the variables that each of its metrics has as labels."""
    return METRIC.sub(lambda found: _selector(found[1], found[2] or ""), expr)


def _selector(name: str, written: str) -> str:
    # Other programs have metrics of processes too.
    matchers = [f'job=~"{JOBS}"'] if name.startswith("process_") else []
    chosen = (*ALWAYS, *(label for label in SOMETIMES if label in _labels_of(name)))
    matchers += [written] * bool(written) + [f'{label}=~"${label}"' for label in chosen]
    return f"{name}{{{', '.join(matchers)}}}"


def _labels_of(name: str) -> Sequence[str]:
    return LABELS.get(name) or LABELS.get(HISTOGRAM_SERIES.sub("", name), ())


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
                "expr": narrowed(query.expr),
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
