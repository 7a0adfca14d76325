"""What a task makes of objects that go while it reads: what moved is found, what was deleted is lost data."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pyarrow as pa
import pytest
from kafscale.lake.catalog import read_lake
from kafscale.log.heads import Aborted
from kafscale.storage.objects import ObjectNotFound
from kafscale.testkit.logbuilder import LogBuilder, marker, records, transactional
from kafscale_spark.options import Request
from kafscale_spark.schemas import arrow_schema, records_schema
from kafscale_spark.spans import DataLoss, Span
from kafscale_spark.splits import Ask, Split, read, split
from lakes import World

SCHEMA = arrow_schema(records_schema(True))
SEGMENTS, COUNT = 9, 10


async def planned(world: World, target_bytes: int = Request().target_bytes) -> list[Split]:
    (log,) = await read_lake(world.lake)
    return split([Span(log=log, first=log.start, end=log.stable_end)], None, target_bytes)


async def begun(world: World, *, fail: bool = True) -> tuple[list[int], AsyncIterator[pa.RecordBatch]]:
    """A task that has read its first segment."""
    await world.filled("orders", segments=SEGMENTS, count=COUNT)
    (one,) = await planned(world)
    batches = read(world.lake, one, Ask(schema=SCHEMA, fail_on_data_loss=fail))
    return (await anext(batches))["offset"].to_pylist(), batches


async def rest(batches: AsyncIterator[pa.RecordBatch]) -> list[int]:
    return [offset async for batch in batches for offset in batch["offset"].to_pylist()]


async def moved(world: World, log: LogBuilder) -> None:
    """Every segment under a name of its own, as compaction leaves it; the old objects are gone."""
    for seg in list(log.segments):
        body = await world.lake.store.get(log.segment_key(seg))
        key = f"{world.lake.keys.namespace}/@kafscale/elsewhere/{seg.base}.kfs"
        etag = await world.lake.store.put(key, [body])
        await log.replace_segment(seg, replace(seg, key=key, etag=etag))
        await world.lake.store.delete(world.lake.keys.segment_key("orders", 0, seg.base))


async def test_what_was_rewritten_is_read_from_where_it_is_now_and_once(world: World) -> None:
    seen, batches = await begun(world)
    await moved(world, world.logs["orders:0"])
    assert seen + await rest(batches) == list(range(SEGMENTS * COUNT))


async def test_what_was_deleted_is_lost_and_said(world: World) -> None:
    _, batches = await begun(world)
    await world.logs["orders:0"].retain_from(80)
    with pytest.raises(DataLoss, match=r"records \d+ to 79 of orders:0 were deleted while they were read"):
        await rest(batches)


async def test_who_does_not_mind_goes_on_behind_what_was_deleted(world: World) -> None:
    seen, batches = await begun(world, fail=False)
    await world.logs["orders:0"].retain_from(80)
    offsets = seen + await rest(batches)
    assert offsets[-10:] == list(range(80, 90))
    assert offsets[:-10] == list(range(len(offsets) - 10))
    assert len(offsets) < SEGMENTS * COUNT


async def test_a_topic_that_is_deleted_and_made_again_is_not_read_for_the_old_one(world: World) -> None:
    _, batches = await begun(world)
    await world.logs["orders:0"].remove_objects()
    (again,) = await world.topic("orders")
    await again.claim(2)  # epochs of a name never restart, so no etag is that of an old object
    for _ in range(SEGMENTS):
        await world.append(again, COUNT)
    with pytest.raises(DataLoss, match="topic orders was deleted while it was read"):
        await rest(batches)


async def test_an_object_that_is_missing_for_no_reason_is_the_stores_word(world: World) -> None:
    _, batches = await begun(world)
    world.segments()[8].unlink()
    with pytest.raises(ObjectNotFound):
        await rest(batches)


async def test_a_task_knows_of_aborted_transactions_that_others_read_of(world: World) -> None:
    """Producer 7 writes in the first two segments and aborts in the third. Nothing of that concerns the last one."""
    (log,) = await world.topic("orders")
    await log.append_raw([transactional(7, records(2))])
    await log.append_raw([transactional(7, records(2)), transactional(8, records(1))])
    await log.append_raw([marker(7, commit=False), marker(8, commit=True)])
    await log.append(records(2))
    splits = await planned(world, target_bytes=1)
    assert [[seg.base for seg in each.segments] for each in splits] == [[0], [2], [5], [7]]
    aborted = (Aborted(producer_id=7, first=0, last=5),)
    assert [each.log.aborted for each in splits] == [aborted, aborted, aborted, ()]
