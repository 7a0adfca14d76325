"""Reading logs as they are committed: what is there, what is left out unread, what came between."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from kafscale.lake.catalog import Lake, Log, read_lake
from kafscale.lake.columns import Wanted
from kafscale.lake.heads import CorruptSegment
from kafscale.lake.scan import placed, scan
from kafscale.log.segment import FOOTER, FOOTER_MAGIC, FOOTER_SIZE
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore, ObjectNotFound, PreconditionFailed
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import CountingStore
from kafscale.wire.batches import crc32c
from kafscale.wire.records import Codec


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def lake(etcd: EtcdClient, keyspace: Keyspace, store: CountingStore) -> Lake:
    return Lake(etcd, keyspace, store)


async def built(lake: Lake, segments: int = 5, *, partitions: int = 1, as_slices: bool = False) -> LogBuilder:
    """Ten records in each segment, a second apart; codecs take turns."""
    topic = await create_topic(lake.etcd, lake.keys, "orders", partitions=partitions)
    log = LogBuilder(lake.etcd, lake.keys, lake.store, topic, as_slices=as_slices)
    for number in range(segments):
        some = records(10, timestamp=10_000 * number, step_ms=1_000, label=f"s{number}-")
        await log.append(some[:4], some[4:], codec=Codec(number % 5))
    return log


async def only(lake: Lake) -> Log:
    (log,) = await read_lake(lake)
    return log


async def offsets(lake: Lake, log: Log, wanted: Wanted | None = None) -> list[int]:
    batches = [batch async for batch in scan(lake, log, wanted or Wanted())]
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


@pytest.mark.parametrize("as_slices", [False, True])
async def test_a_log_is_its_manifests_and_its_tail(lake: Lake, as_slices: bool) -> None:
    builder = await built(lake, as_slices=as_slices)
    assert await offsets(lake, await only(lake)) == list(range(50))
    await builder.checkpoint(keep=2)
    log = await only(lake)
    assert (log.start, log.end) == (0, 50)
    assert await offsets(lake, log) == list(range(50))


async def test_partitions_that_nobody_wrote_to_are_empty_logs(lake: Lake) -> None:
    await built(lake, partitions=3)
    logs = await read_lake(lake)
    assert [(log.partition, log.end) for log in logs] == [(0, 50), (1, 0), (2, 0)]
    assert await offsets(lake, logs[1]) == []
    assert await read_lake(lake, ["other"]) == []


async def test_nothing_below_the_start_or_behind_the_committed_end_is_read(
    lake: Lake, store: CountingStore
) -> None:
    builder = await built(lake)
    await builder.retain_from(23)
    log = await only(lake)
    await builder.append(records(10))
    store.read.clear()
    assert await offsets(lake, log) == list(range(23, 50))
    assert len(store.read) == 3


async def test_ten_offsets_cost_the_segments_that_hold_them(lake: Lake, store: CountingStore) -> None:
    await built(lake, segments=30)
    log = await only(lake)
    store.read.clear()
    assert await offsets(lake, log, Wanted(first=155, end=165)) == list(range(155, 165))
    assert len(store.read) == 2


async def test_a_reader_that_was_overtaken_by_deletion_is_told(lake: Lake, store: CountingStore) -> None:
    builder = await built(lake)
    log = await only(lake)
    await builder.retain_from(20)
    with pytest.raises(ObjectNotFound):
        await offsets(lake, log)


async def test_another_object_of_the_name_is_not_taken(lake: Lake, store: CountingStore) -> None:
    builder = await built(lake)
    log = await only(lake)
    key = builder.segment_key(log.segments[1])
    await store.delete(key)
    await store.put(key, [b"something else"])
    with pytest.raises(PreconditionFailed):
        await offsets(lake, log)


async def test_damage_is_refused_where_it_is(lake: Lake, store: CountingStore) -> None:
    builder = await built(lake)
    log = await only(lake)
    key = builder.segment_key(log.segments[0])
    body = bytearray(await store.get(key))
    body[120] ^= 1

    class Damaged(MemoryStore):
        async def get(self, key: str, **how: object) -> bytes:
            return bytes(body)

    with pytest.raises(CorruptSegment, match="checksum"):
        await offsets(Lake(lake.etcd, lake.keys, Damaged()), log)


async def test_rows_know_their_place(lake: Lake) -> None:
    await built(lake, segments=1)
    log = await only(lake)
    batches = [placed(batch, log) async for batch in scan(lake, log, Wanted())]
    table = pa.Table.from_batches(batches)
    assert set(table["topic"].to_pylist()) == {"orders"}
    assert set(table["partition"].to_pylist()) == {0}
    assert table.num_rows == 10


async def test_batches_that_stand_elsewhere_than_their_segment_are_refused(
    lake: Lake, store: CountingStore
) -> None:
    """A segment's offsets are under no checksum of a batch. Here its own checksum, and the commit record, agree."""
    builder = await built(lake)
    log = await only(lake)
    body = bytearray(await store.get(builder.segment_key(log.segments[1])))
    body[32 + 7] += 1
    end = len(body) - FOOTER_SIZE
    body[end:] = FOOTER.pack(checksum := crc32c(bytes(body[32:end])), log.segments[1].last, FOOTER_MAGIC)
    displaced = replace(log.segments[1], crc32c=checksum)
    log = replace(log, segments=(log.segments[0], displaced, *log.segments[2:]))

    class Displaced(MemoryStore):
        async def get(self, key: str, **how: object) -> bytes:
            return bytes(body)

    with pytest.raises(CorruptSegment, match="its place"):
        await offsets(Lake(lake.etcd, lake.keys, Displaced()), log, Wanted(first=10, end=20))
