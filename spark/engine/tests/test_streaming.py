"""Micro-batches: each record once, as many as were asked for, over restarts, and never past the committed end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lakes import World
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

TIMEOUT_S = 300


class Sink:
    """What a query wrote, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[int, int]]] = []

    def take(self, frame: DataFrame, _number: int) -> None:
        rows = frame.select("partition", "offset").collect()
        self.batches.append(sorted((row["partition"], row["offset"]) for row in rows))

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]

    @property
    def rows(self) -> list[tuple[int, int]]:
        return sorted(row for batch in self.batches for row in batch)


@contextmanager
def started(
    world: World,
    spark: SparkSession,
    sink: Sink,
    checkpoint: Path,
    forever: bool,
    **options: object,
) -> Iterator[StreamingQuery]:
    said = {name: str(value) for name, value in options.items()}
    frame = spark.readStream.format("kafscale").options(**world.options, subscribe="orders", **said).load()
    writer = frame.writeStream.foreachBatch(sink.take).option("checkpointLocation", str(checkpoint))
    writer = (
        writer.trigger(processingTime="100 milliseconds") if forever else writer.trigger(availableNow=True)
    )
    query = writer.start()
    try:
        yield query
    finally:
        query.stop()


def ran(world: World, spark: SparkSession, checkpoint: Path, **options: object) -> Sink:
    """A query over all that is there now."""
    sink = Sink()
    with started(world, spark, sink, checkpoint, False, **options) as query:
        assert query.awaitTermination(TIMEOUT_S)
    return sink


def rows(partition: int, first: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(first, end)]


async def test_batches_have_the_size_that_was_asked_for_and_a_restart_goes_on(
    world: World, spark: SparkSession, tmp_path: Path
) -> None:
    one, two = await world.topic("orders", partitions=2)
    await world.append(one, 300)
    await world.append(two, 100)
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 150}
    sink = ran(world, spark, tmp_path / "checkpoint", **limits)
    assert sink.sizes == [150, 150, 100]
    assert sink.rows == [*rows(0, 0, 300), *rows(1, 0, 100)]
    await world.append(two, 50)
    again = ran(world, spark, tmp_path / "checkpoint", **limits)
    assert again.rows == rows(1, 100, 150)


async def test_a_stream_follows_what_is_committed_from_its_end_on(
    world: World, spark: SparkSession, tmp_path: Path
) -> None:
    (log,) = await world.topic("orders")
    await world.append(log, 10)
    sink = Sink()
    with started(world, spark, sink, tmp_path / "checkpoint", True, minOffsetsPerTrigger=5) as query:
        query.processAllAvailable()
        assert sink.rows == [], "it starts at the end"
        await world.append(log, 3)
        query.processAllAvailable()
        assert sink.rows == [], "too few to begin with"
        await world.append(log, 4)
        pending = await log.upload([log.batches[-1].data], base=log.next)
        query.processAllAvailable()
        assert sink.rows == rows(0, 10, 17), "what is uploaded is not there before it is committed"
        await log.commit([pending])
        await world.append(log, 5)
        query.processAllAvailable()
    assert sink.rows == rows(0, 10, log.next)


async def test_a_partition_that_is_added_is_read_from_its_beginning(
    world: World, spark: SparkSession, tmp_path: Path
) -> None:
    (log,) = await world.topic("orders")
    await world.append(log, 4)
    assert ran(world, spark, tmp_path / "checkpoint", startingOffsets="earliest").rows == rows(0, 0, 4)
    await world.append(await world.widen(log), 6)
    assert ran(world, spark, tmp_path / "checkpoint").rows == rows(1, 0, 6)


async def test_what_retention_took_is_lost_and_said(
    world: World, spark: SparkSession, tmp_path: Path
) -> None:
    await world.filled("orders", segments=1)
    log = world.logs["orders:0"]
    checkpoint = tmp_path / "checkpoint"
    assert ran(world, spark, checkpoint, startingOffsets="earliest").rows == rows(0, 0, 10)
    await world.append(log, 10)
    await world.append(log, 10)
    await log.retain_from(20)
    with pytest.raises(
        StreamingQueryException, match="records 10 to 19 of orders:0 were deleted before they were read"
    ):
        ran(world, spark, checkpoint)
    assert ran(world, spark, checkpoint, failOnDataLoss=False).rows == rows(0, 20, 30)


async def test_a_topic_that_was_made_again_is_not_taken_for_the_old_one(
    world: World, spark: SparkSession, tmp_path: Path
) -> None:
    await world.filled("orders")
    checkpoint = tmp_path / "checkpoint"
    assert len(ran(world, spark, checkpoint, startingOffsets="earliest").rows) == 50
    await world.logs["orders:0"].remove_objects()
    await world.filled("orders", segments=1)
    with pytest.raises(StreamingQueryException, match="orders:0 ends at offset 10, before 50"):
        ran(world, spark, checkpoint)
    assert ran(world, spark, checkpoint, failOnDataLoss=False).rows == rows(0, 0, 10)
