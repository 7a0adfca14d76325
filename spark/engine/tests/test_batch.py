"""A query's rows are what the lake holds, and cost no more segments than they need."""

from __future__ import annotations

import contextlib
import warnings
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from kafscale.lake.catalog import read_lake
from kafscale.lake.columns import Wanted
from kafscale.lake.scan import scan
from kafscale.wire.records import Codec, Record, build_batch
from lakes import World
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords

CONNECTOR = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
HEADERS = (("trace", b"\x00\xff"), ("empty", None), ("trace", b""))


def offsets(found: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in found.select("offset").collect())


def at(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("timestamp '%Y-%m-%d %H:%M:%SZ'")


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
async def test_rows_are_what_the_lake_and_kafka_python_read(
    world: World, spark: SparkSession, codec: Codec
) -> None:
    (log,) = await world.topic("orders")
    some = [
        Record(timestamp=1_700_000_000_123, key=b"k", value=b"v" * 300, headers=HEADERS),
        Record(timestamp=1_700_000_000_124, key=None, value=b""),
        Record(timestamp=1_700_000_000_125, key=b"", value=None),
    ]
    await log.append(some * 40, some, codec=codec)
    found = world.read(spark, subscribe="orders")
    assert {field.name: field.dataType.simpleString() for field in found.schema.fields} == CONNECTOR
    rows = [row.asDict(recursive=True) for row in found.orderBy("offset").collect()]
    (read,) = await read_lake(world.lake)
    lake = pa.Table.from_batches([batch async for batch in scan(world.lake, read, Wanted())]).to_pylist()
    assert [{**row, "timestamp": row["timestamp"].astimezone(UTC)} for row in rows] == [
        {**row, "topic": "orders", "partition": 0, "headers": row["headers"] or None} for row in lake
    ]
    theirs = [record for batch in MemoryRecords(log.expected(0)) for record in batch]
    assert [
        (
            row["offset"],
            row["key"],
            row["value"],
            [(each["key"], each["value"]) for each in row["headers"] or ()],
        )
        for row in rows
    ] == [(record.offset, record.key, record.value, list(record.headers)) for record in theirs]


@pytest.mark.parametrize(
    ("where", "segments", "answer"),
    [
        ("offset between 18 and 20", (1, 2), [18, 19, 20]),
        ("offset in (3, 44)", (0, 4), [3, 44]),
        ("offset < 4", (0,), [0, 1, 2, 3]),
        (f"timestamp >= {at(45)}", (4,), [45, 46, 47, 48, 49]),
        (f"timestamp > {at(38)} and timestamp < {at(41)}", (3, 4), [39, 40]),
        ("offset >= 48 and length(value) > 0", (4,), [48, 49]),
        ("not (offset >= 2) or offset = 2", (0, 1, 2, 3, 4), [0, 1, 2]),
        ("topic = 'other'", (), []),
        ("topic like 'ord%' and offset = 7", (0,), [7]),
        ("partition <> 0", (), []),
        ("partition = 0 and offset is not null and offset <=> 11", (1,), [11]),
        ("offset > 100", (), []),
    ],
)
async def test_what_cannot_hold_an_answer_is_not_read(
    world: World, spark: SparkSession, where: str, segments: tuple[int, ...], answer: list[int]
) -> None:
    await world.filled("orders")
    found = world.read(spark).where(where)
    for number, path in enumerate(world.segments()):
        if number not in segments:
            path.unlink()
    assert offsets(found) == answer


async def test_a_filter_that_was_taken_is_not_checked_again(world: World, spark: SparkSession) -> None:
    await world.filled("orders")
    found = world.read(spark).where(f"topic = 'orders' and offset > 3 and timestamp > {at(9)}")
    plan = found._jdf.queryExecution().executedPlan().toString()
    (condition,) = [line for line in plan.splitlines() if " Filter " in line]
    assert "timestamp" in condition
    assert "topic" not in condition
    assert "offset" not in condition
    assert offsets(found) == list(range(10, 50))


async def test_narrow_schemas_read_their_columns_alone(world: World, spark: SparkSession) -> None:
    await world.filled("orders")
    reader = spark.read.format("kafscale").options(**world.options)
    found = reader.schema("timestamp timestamp, offset long").load().where("offset = 12")
    (row,) = found.collect()
    assert (row.asDict().keys(), row["offset"], row["timestamp"].timestamp()) == (
        {"timestamp": 0, "offset": 0}.keys(),
        12,
        12.0,
    )
    with pytest.raises(PySparkException, match="there is no column value string"):
        reader.schema("value string").load().collect()


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({"startingOffsets": '{"orders": {"0": 12}}'}, range(12, 50)),
        ({"startingOffsets": '{"orders": {"0": -2}}', "endingOffsets": '{"orders": {"0": 5}}'}, range(5)),
        ({"startingTimestamp": 30_000}, range(30, 50)),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"0": 12500}}', "endingTimestamp": 20_000},
            range(13, 20),
        ),
        ({"startingTimestamp": 60_000, "startingOffsetsByTimestampStrategy": "latest"}, range(0)),
        ({"endingTimestamp": 60_000}, range(50)),
    ],
)
async def test_a_query_starts_and_ends_where_it_is_told(
    world: World, spark: SparkSession, options: dict[str, object], answer: range
) -> None:
    await world.filled("orders")
    assert offsets(world.read(spark, subscribe="orders", **options)) == list(answer)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"startingOffset": "earliest"}, "there is no option startingoffset"),
        ({"subscribe": "nobody"}, "topic 'nobody' does not exist"),
        ({"subscribe": "orders", "subscribePattern": "o.*"}, "exclude each other"),
        ({"assign": '{"orders": [7]}'}, "orders has 2 partitions"),
        ({"subscribe": "orders", "startingOffsets": '{"orders": {"0": 1}}'}, "see orders:1"),
        ({"startingOffsets": "latest"}, "cannot start at the latest"),
        ({"startingTimestamp": 60_000_000}, "no record as new"),
        ({"table": "nothing"}, "there is no table nothing"),
        ({"kafscale.nonsense": "1"}, "there is no setting nonsense"),
        ({"targetBytes": "0"}, "at least 1"),
        (
            {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 99, "1": 0}}'},
            "orders:0 ends at offset 20",
        ),
    ],
)
async def test_a_callers_mistake_is_told_in_words(
    world: World, spark: SparkSession, options: dict[str, object], why: str
) -> None:
    await world.filled("orders", segments=2, partitions=2)
    with pytest.raises((PySparkException, AnalysisException), match=why):
        world.read(spark, **options).collect()


async def test_partitions_are_shared_out_by_bytes(world: World, spark: SparkSession) -> None:
    await world.filled("orders", partitions=2)
    size = world.segments()[0].stat().st_size
    assert world.read(spark, targetBytes=1).rdd.getNumPartitions() == 10
    assert world.read(spark).rdd.getNumPartitions() == 2
    assert 2 < world.read(spark, targetBytes=2 * size + 100).rdd.getNumPartitions() < 10
    one = world.read(spark, assign='{"orders": [1]}', targetBytes=1)
    assert {row["partition"] for row in one.collect()} == {1}


async def test_a_query_sees_the_end_of_when_it_was_planned(world: World, spark: SparkSession) -> None:
    await world.filled("orders", segments=1)
    found = world.read(spark)
    assert found.count() == 10
    await world.append(world.logs["orders:0"], 5)
    assert world.read(spark).count() == 15


async def test_what_was_deleted_before_it_was_read_is_lost_data(world: World, spark: SparkSession) -> None:
    await world.filled("orders")
    await world.logs["orders:0"].retain_from(20)
    assert offsets(world.read(spark)) == list(range(20, 50))
    early = {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 5}}'}
    with pytest.raises(PySparkException, match="records 5 to 19 of orders:0 were deleted"):
        world.read(spark, **early).collect()
    assert offsets(world.read(spark, failOnDataLoss=False, **early)) == list(range(20, 50))


async def test_times_that_spark_cannot_hold_are_null(world: World, spark: SparkSession) -> None:
    (log,) = await world.topic("orders")
    await log.append_raw([build_batch([Record(timestamp=1 << 62, key=None, value=b"far")])])
    await world.append(log, 2)
    rows = world.read(spark).orderBy("offset").collect()
    assert [row["timestamp"] is None for row in rows] == [True, False, False]


async def test_tables_say_what_is_stored(world: World, spark: SparkSession) -> None:
    await world.filled("orders", partitions=2)
    await world.filled("bills", segments=1)
    for path in world.segments():
        path.unlink()
    topics = {row["topic"]: row["partitions"] for row in world.read(spark, table="topics").collect()}
    assert topics == {"orders": 2, "bills": 1}
    ends = world.read(spark, table="partitions", subscribe="orders").collect()
    assert [(row["partition"], row["log_end"], row["segments"]) for row in ends] == [(0, 50, 5), (1, 50, 5)]
    segments = world.read(spark, table="segments").where("topic = 'orders' and partition = 1")
    assert [row["base_offset"] for row in segments.collect()] == [0, 10, 20, 30, 40]


async def test_sql_reads_through_a_view(world: World, spark: SparkSession) -> None:
    await world.filled("orders", partitions=2)
    options = ", ".join(f"'{name}' '{value}'" for name, value in world.options.items())
    with contextlib.ExitStack() as stack:
        for name in ("records", "partitions"):
            spark.sql(f"create temporary view {name} using kafscale options ({options}, 'table' '{name}')")
            stack.callback(spark.catalog.dropTempView, name)
        (row,) = spark.sql(
            "select count(*) as n, max(p.log_end) as log_end from records r join partitions p "
            "on r.topic = p.topic and r.partition = p.partition where r.offset >= 45"
        ).collect()
    assert (row["n"], row["log_end"]) == (10, 50)
