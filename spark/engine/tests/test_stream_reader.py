"""What Spark asks of a stream, asked without Spark: a reader's answers over its life, and what a restarted one says."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from kafscale_spark.clusters import settings_of
from kafscale_spark.options import parse
from kafscale_spark.schemas import arrow_schema, records_schema
from kafscale_spark.spans import DataLoss
from kafscale_spark.streaming import RecordsStream
from lakes import World
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

Offsets = Mapping[str, int]


def stream(world: World, **options: object) -> RecordsStream:
    said = {name: str(value) for name, value in options.items()}
    request = parse({**world.options, "subscribe": "orders", **said})
    return RecordsStream(settings_of(request), request, arrow_schema(records_schema(True)))


async def latest(reader: RecordsStream, start: Offsets) -> dict[str, int]:
    return await asyncio.to_thread(reader.latestOffset, start, reader.getDefaultReadLimit())


async def rows(reader: RecordsStream, start: Offsets, end: Offsets) -> list[tuple[int, int]]:
    def read() -> list[tuple[int, int]]:
        found = []
        for split in reader.partitions(start, end):
            for batch in reader.read(split):
                found += list(zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True))
        return found

    return await asyncio.to_thread(read)


async def all_rows(world: World, reader: RecordsStream, start: Offsets) -> list[tuple[int, int]]:
    return await rows(reader, start, await latest(reader, start))


async def test_batches_hold_what_was_asked_for_and_then_all_is_read(world: World) -> None:
    one, two = await world.topic("orders", partitions=2)
    await world.append(one, 300)
    await world.append(two, 100)
    reader = stream(world, startingOffsets="earliest", maxOffsetsPerTrigger=150, targetBytes=1)
    start: Offsets = await asyncio.to_thread(reader.initialOffset)
    assert start == {"orders:0": 0, "orders:1": 0}
    sizes, seen = [], []
    while (end := await latest(reader, start)) != start:
        batch = await rows(reader, start, end)
        assert await rows(stream(world), start, end) == batch, "planned again, it is the same"
        sizes.append(len(batch))
        seen += batch
        start = end
    assert sizes == [150, 150, 100]
    assert sorted(seen) == [(0, offset) for offset in range(300)] + [(1, offset) for offset in range(100)]
    assert reader.reportLatestOffset() == {"orders:0": 300, "orders:1": 100}


async def test_a_stream_begins_at_the_end_and_never_passes_what_is_committed(world: World) -> None:
    (log,) = await world.topic("orders")
    await world.append(log, 10)
    reader = stream(world)
    start: Offsets = await asyncio.to_thread(reader.initialOffset)
    assert start == {"orders:0": 10}
    pending = await log.upload([log.batches[0].data])
    assert await latest(reader, start) == start, "what is uploaded is not there before it is committed"
    await log.commit([pending])
    assert await all_rows(world, reader, start) == [(0, offset) for offset in range(10, 15)]


async def test_few_records_wait_for_company_but_not_when_nothing_more_comes(world: World) -> None:
    (log,) = await world.topic("orders")
    reader = stream(world, minOffsetsPerTrigger=5)
    assert isinstance(reader.getDefaultReadLimit(), ReadMinRows)
    start: Offsets = {"orders:0": 0}
    await world.append(log, 3)
    assert await latest(reader, start) == start
    assert await asyncio.to_thread(reader.latestOffset, start, ReadAllAvailable()) == {"orders:0": 3}
    assert await latest(stream(world, minOffsetsPerTrigger=5, maxTriggerDelay="0s"), start) == {"orders:0": 3}
    await asyncio.to_thread(reader.prepareForTriggerAvailableNow)
    assert await latest(reader, start) == {"orders:0": 3}
    await world.append(log, 4)
    assert await latest(reader, start) == {"orders:0": 3}, "the target was set before"
    assert await latest(stream(world, minOffsetsPerTrigger=5), start) == {"orders:0": 7}


async def test_a_limit_of_sparks_own_is_kept(world: World) -> None:
    (log,) = await world.topic("orders")
    await world.append(log, 10)
    reader = stream(world)
    assert await asyncio.to_thread(reader.latestOffset, {"orders:0": 2}, ReadMaxRows(3)) == {"orders:0": 5}


async def test_a_partition_that_is_added_is_read_from_its_beginning(world: World) -> None:
    (log,) = await world.topic("orders")
    await world.append(log, 4)
    await world.append(await world.widen(log), 6)
    assert await all_rows(world, stream(world), {"orders:0": 4}) == [(1, offset) for offset in range(6)]


async def test_what_retention_took_is_lost_and_said(world: World) -> None:
    await world.filled("orders", segments=3)
    await world.logs["orders:0"].retain_from(20)
    start = {"orders:0": 10}
    with pytest.raises(
        DataLoss, match="records 10 to 19 of orders:0 were deleted before they were read. Set"
    ):
        await all_rows(world, stream(world), start)
    lenient = stream(world, failOnDataLoss=False)
    assert await all_rows(world, lenient, start) == [(0, offset) for offset in range(20, 30)]


async def test_a_topic_that_was_made_again_is_not_taken_for_the_old_one(world: World) -> None:
    await world.filled("orders")
    await world.logs["orders:0"].remove_objects()
    await world.filled("orders", segments=1)
    start = {"orders:0": 50}
    with pytest.raises(DataLoss, match="orders:0 ends at offset 10, before 50"):
        await all_rows(world, stream(world), start)
    lenient = stream(world, failOnDataLoss=False)
    assert await all_rows(world, lenient, start) == [(0, offset) for offset in range(10)]


async def test_a_partition_that_is_gone_is_lost(world: World) -> None:
    await world.filled("orders", segments=1)
    start = {"orders:0": 5, "orders:1": 7}
    with pytest.raises(DataLoss, match="orders:1 is gone"):
        await all_rows(world, stream(world), start)
    assert len(await all_rows(world, stream(world, failOnDataLoss=False), start)) == 5
