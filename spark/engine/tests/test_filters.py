"""A filter that is taken says of each row what Spark would; one that is not goes back as it came."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from kafscale_spark.filters import take
from pyspark.sql import datasource as spark

ROWS = pa.table(
    {
        "topic": ["a", "ab", "b"] * 4,
        "partition": pa.array([0, 1] * 6, pa.int32()),
        "offset": pa.array(range(12), pa.int64()),
    }
)
TOPIC, PARTITION, OFFSET, TIME = ("topic",), ("partition",), ("offset",), ("timestamp",)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("one", "law"),
    [
        (spark.EqualTo(TOPIC, "ab"), lambda row: row["topic"] == "ab"),
        (spark.EqualNullSafe(OFFSET, 3), lambda row: row["offset"] == 3),
        (spark.GreaterThan(OFFSET, 3), lambda row: row["offset"] > 3),
        (spark.GreaterThanOrEqual(OFFSET, 3), lambda row: row["offset"] >= 3),
        (spark.LessThan(PARTITION, 1), lambda row: row["partition"] < 1),
        (spark.LessThanOrEqual(OFFSET, 3), lambda row: row["offset"] <= 3),
        (spark.In(OFFSET, (1, 7, 90)), lambda row: row["offset"] in (1, 7)),
        (spark.Not(spark.In(OFFSET, (1, 7))), lambda row: row["offset"] not in (1, 7)),
        (spark.Not(spark.EqualTo(TOPIC, "a")), lambda row: row["topic"] != "a"),
        (spark.StringStartsWith(TOPIC, "a"), lambda row: row["topic"].startswith("a")),
        (spark.StringEndsWith(TOPIC, "b"), lambda row: row["topic"].endswith("b")),
        (spark.StringContains(TOPIC, "b"), lambda row: "b" in row["topic"]),
        (spark.IsNotNull(OFFSET), lambda row: True),
        (spark.IsNull(TOPIC), lambda row: False),
    ],
    ids=str,
)
def test_what_is_taken_is_decided_as_spark_would(one: spark.Filter, law: object) -> None:
    rows, segments, left = take([one])
    assert left == []
    assert rows is not None
    assert segments is not None
    assert callable(law)
    assert ROWS.filter(rows).to_pylist() == [row for row in ROWS.to_pylist() if law(row)]


@pytest.mark.parametrize(
    "one",
    [
        spark.EqualTo(("key",), b"k"),
        spark.IsNotNull(("value",)),
        spark.EqualTo(("headers", "key"), "k"),
        spark.In(OFFSET, (1, None)),
        spark.Not(spark.In(OFFSET, (1, None))),
        spark.EqualNullSafe(TOPIC, None),
        spark.LessThan(TIME, NOON),
        spark.Not(spark.GreaterThan(TIME, NOON)),
        spark.EqualTo(("timestampType",), 1),
    ],
    ids=str,
)
def test_what_is_not_ours_goes_back_and_leaves_nothing_out(one: spark.Filter) -> None:
    rows, segments, left = take([one])
    assert (rows, segments) == (None, None)
    assert left == [one]
    assert left[0] is one


@pytest.mark.parametrize(
    ("one", "oldest_us"),
    [
        (spark.GreaterThan(TIME, NOON), 0),
        (spark.GreaterThanOrEqual(TIME, NOON.replace(microsecond=1_500)), 1_000),
        (spark.EqualTo(TIME, NOON), 0),
        (spark.In(TIME, (NOON.replace(second=9), NOON)), 0),
    ],
    ids=str,
)
def test_a_time_chooses_segments_and_stays_sparks_to_check(one: spark.Filter, oldest_us: int) -> None:
    rows, segments, left = take([one, spark.GreaterThan(OFFSET, 5)])
    assert left == [one]
    assert rows is not None
    times = pa.array([NOON.replace(microsecond=oldest_us)] * 12, pa.timestamp("ms", "UTC"))
    assert ROWS.append_column("timestamp", times).filter(segments).num_rows == 6
    older = pa.array([datetime(2026, 1, 1, 11, tzinfo=UTC)] * 12, pa.timestamp("ms", "UTC"))
    assert ROWS.append_column("timestamp", older).filter(segments).num_rows == 0
