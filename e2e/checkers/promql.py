"""Checks queries against the table of metrics: every metric is exported, and has every label that the query names.

A query is parsed as Prometheus parses it. An outer expression or a legend cannot use a label that an inner aggregation
drops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import promql_parser as promql
from kafscale.runtime.metric_table import EVERY_PROCESS, OWN, MetricRow, rows_of

OWNED: Final = frozenset({"job", "instance", "namespace", "cluster"})
"""What Prometheus adds to every series: `namespace` on Kubernetes, and `cluster` if somebody configures it."""
UP: Final = "up"
LEGEND_LABEL: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")
ALERT_LABEL: Final = re.compile(r"\$labels\.(\w+)")
HISTOGRAM_SERIES: Final = ("_bucket", "_sum", "_count")


class BadQuery(Exception):
    """The query names a metric or a label that no service exports."""


@dataclass(frozen=True, slots=True)
class Names:
    """The known series, with their labels."""

    series: Mapping[str, frozenset[str]]

    def labels_of(self, name: str) -> frozenset[str]:
        if name not in self.series:
            raise BadQuery(f"{name} is exported by nobody")
        return self.series[name] | OWNED


def exported() -> Names:
    """All series of the table, and `up`."""
    series: dict[str, frozenset[str]] = {UP: frozenset()}
    for service in OWN:
        for row in (*rows_of(service), *EVERY_PROCESS):
            series |= _series(row, service)
    return Names(series)


def _series(row: MetricRow, service: str) -> dict[str, frozenset[str]]:
    name, labels = row.exposed(service), frozenset(row.labels)
    if row.kind != "histogram":
        return {name: labels}
    return {name + end: labels | ({"le"} if end == "_bucket" else set()) for end in HISTOGRAM_SERIES}


def labels_of_query(query: str, names: Names) -> frozenset[str]:
    """The labels that the query's result may have. Raises BadQuery."""
    try:
        parsed = promql.parse(query)
    except ValueError as error:
        raise BadQuery(f"{query}: {error}") from error
    return _labels(parsed, names)


def counters_chosen(query: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The counters of which a query names one series by its labels, and those labels."""
    for selector in _selectors(promql.parse(query)):
        chosen = {
            matcher.name: matcher.value
            for matcher in selector.matchers.matchers
            if matcher.op == promql.MatchOp.Equal
        }
        if chosen and selector.name is not None and selector.name.endswith("_total"):
            yield selector.name, chosen


def matchers_of(query: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Each metric that a query selects, with what it says of each label."""
    for selector in _selectors(promql.parse(query)):
        assert selector.name is not None, selector
        yield selector.name, {matcher.name: matcher.value for matcher in selector.matchers.matchers}


def _selectors(expr: Any) -> Iterator[promql.VectorSelector]:
    match expr:
        case promql.VectorSelector():
            yield expr
        case promql.MatrixSelector():
            yield expr.vector_selector
        case promql.BinaryExpr():
            yield from chain(_selectors(expr.lhs), _selectors(expr.rhs))
        case promql.Call():
            yield from chain.from_iterable(map(_selectors, expr.args))
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr() | promql.AggregateExpr():
            yield from _selectors(expr.expr)


def check_text(text: str, pattern: re.Pattern[str], labels: frozenset[str]) -> None:
    """A legend or a summary may use only existing labels. Raises BadQuery."""
    missing = {*pattern.findall(text)} - labels
    if missing:
        raise BadQuery(f"{text!r} tells {sorted(missing)}, and the query leaves {sorted(labels)}")


def _labels(expr: Any, names: Names) -> frozenset[str]:
    match expr:
        case promql.VectorSelector():
            return _selected(expr, names)
        case promql.MatrixSelector():
            return _selected(expr.vector_selector, names)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return _labels(expr.expr, names)
        case promql.AggregateExpr():
            return _aggregated(expr, names)
        case promql.BinaryExpr():
            return _joined(expr, names)
        case promql.Call():
            return _called(expr, names)
        case promql.NumberLiteral() | promql.StringLiteral():
            return frozenset()
        case _:
            raise BadQuery(f"{expr}: {type(expr).__name__} is not understood here")


def _selected(selector: promql.VectorSelector, names: Names) -> frozenset[str]:
    if selector.name is None:
        raise BadQuery(f"{selector} has no name")
    labels = names.labels_of(selector.name)
    _known({matcher.name for matcher in selector.matchers.matchers}, labels, selector)
    return labels


def _aggregated(expr: promql.AggregateExpr, names: Names) -> frozenset[str]:
    inner = _labels(expr.expr, names)
    wanted = frozenset(expr.modifier.labels) if expr.modifier is not None else frozenset()
    _known(wanted, inner, expr)
    operation = str(expr).partition(" ")[0].partition("(")[0]
    if operation in ("topk", "bottomk"):
        return inner
    if operation == "count_values":
        return wanted | {expr.param.val}  # type: ignore[union-attr]
    return wanted


def _joined(expr: promql.BinaryExpr, names: Names) -> frozenset[str]:
    left, right = _labels(expr.lhs, names), _labels(expr.rhs, names)
    matching = expr.modifier.matching if expr.modifier is not None else None
    if matching is not None:
        _known(set(matching.labels), left & right, expr)
    if _is_scalar(expr.rhs):
        return left
    return right if _is_scalar(expr.lhs) else left & right


def _is_scalar(expr: Any) -> bool:
    """A number has no labels and removes none."""
    match expr:
        case promql.NumberLiteral():
            return True
        case promql.Call():
            return expr.func.name in ("time", "scalar")
        case promql.BinaryExpr():
            return _is_scalar(expr.lhs) and _is_scalar(expr.rhs)
        case _:
            return False


def _called(call: promql.Call, names: Names) -> frozenset[str]:
    arguments = [_labels(argument, names) for argument in call.args]
    if call.func.name == "histogram_quantile":
        if "le" not in arguments[-1]:
            raise BadQuery(f"{call} has lost its buckets")
        return arguments[-1] - {"le"}
    return frozenset().union(*arguments)


def _known(wanted: set[str] | frozenset[str], there: frozenset[str], where: object) -> None:
    missing = set(wanted) - there
    if missing:
        raise BadQuery(f"{where}: no label {sorted(missing)} among {sorted(there)}")
