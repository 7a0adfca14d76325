"""Spark's filters as conditions that Arrow understands. Pure.

A filter on topic, partition or offset is checked here for each row, so Spark does not check it again. A filter on the
timestamp prunes segments, and Spark checks the rows, because its times are finer than a log's. Spark alone checks all
other filters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark

EXACT: Final = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
_NEVER_NULL: Final = frozenset({*EXACT, "timestamp"})
_MS: Final = pa.timestamp("ms", "UTC")


def take(
    filters: Iterable[spark.Filter],
) -> tuple[pc.Expression | None, pc.Expression | None, list[spark.Filter]]:
    """The condition checked for each row, the condition that prunes segments, and the filters left to Spark."""
    exact: list[pc.Expression] = []
    coarse: list[pc.Expression] = []
    left: list[spark.Filter] = []
    for each in filters:
        condition = _exact(each)
        if condition is not None:
            exact.append(condition)
            continue
        since = _since(each)
        if since is not None:
            coarse.append(since)
        left.append(each)
    return _all(exact), _all([*exact, *coarse]), left


def _all(conditions: Sequence[pc.Expression]) -> pc.Expression | None:
    return reduce(lambda one, other: one & other, conditions) if conditions else None


def _exact(one: spark.Filter) -> pc.Expression | None:
    """None: Spark has to check this filter."""
    if isinstance(one, spark.Not):
        inner = _exact(one.child)
        return None if inner is None else ~inner
    column = getattr(one, "attribute", None)
    if column is None or len(column) != 1:
        return None
    (name,) = column
    if isinstance(one, spark.IsNotNull | spark.IsNull) and name in _NEVER_NULL:
        return pc.scalar(isinstance(one, spark.IsNotNull))
    if name not in EXACT:
        return None
    field, kind = pc.field(name), EXACT[name]
    match one:
        case spark.In(value=values):
            return None if None in values else field.isin(pa.array(values, kind))
        case spark.StringStartsWith(value=part):
            return pc.starts_with(field, part)
        case spark.StringEndsWith(value=part):
            return pc.ends_with(field, part)
        case spark.StringContains(value=part):
            return pc.match_substring(field, part)
    value = getattr(one, "value", None)
    return None if value is None else _compared(one, field, pa.scalar(value, kind))


def _compared(one: spark.Filter, field: pc.Expression, value: pa.Scalar) -> pc.Expression | None:
    match one:
        case spark.EqualTo() | spark.EqualNullSafe():
            return field == value
        case spark.LessThan():
            return field < value
        case spark.LessThanOrEqual():
            return field <= value
        case spark.GreaterThan():
            return field > value
        case spark.GreaterThanOrEqual():
            return field >= value
        case _:
            return None


def _since(one: spark.Filter) -> pc.Expression | None:
    """The least timestamp of a row for which this is true. Segments record only their newest timestamp."""
    if getattr(one, "attribute", None) != ("timestamp",):
        return None
    match one:
        case spark.EqualTo(value=value) | spark.EqualNullSafe(value=value):
            oldest = value
        case spark.GreaterThan(value=value) | spark.GreaterThanOrEqual(value=value):
            oldest = value
        case spark.In(value=values):
            oldest = min((value for value in values if value is not None), default=None)
        case _:
            return None
    if not isinstance(oldest, datetime) or oldest.tzinfo is None:
        return None
    return pc.field("timestamp") >= pa.scalar(oldest, pa.timestamp("us", "UTC")).cast(_MS, safe=False)
