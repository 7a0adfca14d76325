"""A scan whose objects are replaced while it reads: it returns each planned record once and no other, or it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pyarrow as pa
import pytest
from kafscale.lake.batches import scan_batches
from kafscale.lake.catalog import Lake, Log, read_lake, read_log
from kafscale.lake.columns import Wanted
from kafscale.lake.scan import LOOKS_MAX, Loss, offset_at, scan, scan_segments
from kafscale.lake.sources import scan_places
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore, ObjectNotFound, PreconditionFailed
from kafscale.storage.topics import Topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records

from .queries import query

SLICES = 12
EACH = 10
"""Records of a slice, in two batches."""
ALL = list(range(SLICES * EACH))
BASES = [offset for offset in ALL if offset % EACH in (0, 4)]


class Racing(MemoryStore):
    """Something happens before the read of this number."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.before: dict[int, Callable[[], Awaitable[object]]] = {}

    def at(self, read: int, happens: Callable[[], Awaitable[object]]) -> None:
        self.reads = 0
        self.before = {read: happens}

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        self.reads += 1
        happens = self.before.pop(self.reads, None)
        if happens is not None:
            await happens()
        return await super().get(key, if_match=if_match, start=start, end=end)


@pytest.fixture
def store() -> Racing:
    return Racing()


@pytest.fixture
def lake(etcd: EtcdClient, keyspace: Keyspace, store: Racing) -> Lake:
    return Lake(etcd, keyspace, store)


@pytest.fixture
async def builder(lake: Lake) -> LogBuilder:
    topic = await create_topic(lake.etcd, lake.keys, "orders")
    log = LogBuilder(lake.etcd, lake.keys, lake.store, topic, as_slices=True)
    for number in range(SLICES):
        some = records(EACH, timestamp=1_000 * number, label=f"s{number}-")
        await log.append(some[:4], some[4:])
    return log


async def settled(builder: LogBuilder) -> None:
    """Runs of four slices are segments now, their bundles are gone, and more was written."""
    for at in range(SLICES // 4):
        await builder.settle_run(at, 4)
    await builder.append(records(EACH, timestamp=1_000_000))


async def only(lake: Lake) -> Log:
    (log,) = await read_lake(lake)
    return log


async def column(batches: AsyncIterator[pa.RecordBatch], name: str = "offset") -> list[int]:
    return [value async for batch in batches for value in batch[name].to_pylist()]


@pytest.mark.parametrize("read", range(1, SLICES + 1))
async def test_records_of_settled_slices_are_returned_once(
    lake: Lake, store: Racing, builder: LogBuilder, read: int
) -> None:
    log = await only(lake)
    store.at(read, lambda: settled(builder))
    assert await column(scan(lake, log, Wanted())) == ALL


@pytest.mark.parametrize("read", [1, 4, 7, SLICES])
async def test_places_are_counted_once(lake: Lake, store: Racing, builder: LogBuilder, read: int) -> None:
    log = await only(lake)
    store.at(read, lambda: settled(builder))
    assert len(await column(scan_places(lake, log, log.segments), "partition")) == len(ALL)


@pytest.mark.parametrize("read", [1, 4, 7, SLICES])
async def test_batches_are_returned_once(lake: Lake, store: Racing, builder: LogBuilder, read: int) -> None:
    log = await only(lake)
    store.at(read, lambda: settled(builder))
    assert await column(scan_batches(lake, log, log.segments), "base_offset") == BASES


@pytest.mark.parametrize(
    "text",
    [
        "select count(*) as n from records",
        'select count(distinct "offset") as n from records where "offset" >= 0',
        "select sum(records)::bigint as n from batches",
    ],
)
async def test_a_query_counts_what_was_there_when_it_began(
    lake: Lake, builder: LogBuilder, text: str
) -> None:
    logs = await read_lake(lake)
    await settled(builder)
    assert (await query(lake, logs, text)).to_pylist() == [{"n": len(ALL)}]


async def test_parts_of_a_log_stay_apart(lake: Lake, builder: LogBuilder) -> None:
    """Tasks of Spark read neighbouring slices. Now one segment holds the slices of several tasks."""
    log = await only(lake)
    await settled(builder)
    parts = [log.segments[at : at + 3] for at in range(0, SLICES, 3)]
    batches = [base for part in parts for base in await column(scan_batches(lake, log, part), "base_offset")]
    assert batches == BASES


async def test_segments_that_were_not_chosen_are_not_read(
    lake: Lake, store: Racing, builder: LogBuilder
) -> None:
    log = await only(lake)
    await settled(builder)
    store.reads = 0
    found = await column(scan_segments(lake, log, (log.segments[1], log.segments[9]), Wanted()))
    assert set(ALL[10:20]) | set(ALL[90:100]) <= set(found)
    assert found == sorted(set(found))
    assert not set(found) & set(ALL[40:80])
    assert store.reads == 4, "each of two slices, and then each of two segments"


async def test_a_time_is_found_in_a_settled_segment(lake: Lake, builder: LogBuilder) -> None:
    log = await only(lake)
    await settled(builder)
    assert await offset_at(lake, log, 5_003) == 53
    assert await offset_at(lake, log, 1_000_000) is None


async def test_a_scan_may_look_as_often_as_it_makes_progress(lake: Lake, builder: LogBuilder) -> None:
    log = await only(lake)
    found = []
    batches = scan(lake, log, Wanted())
    for at in range(SLICES):
        await builder.settle_run(at, 1)
        found += (await anext(batches))["offset"].to_pylist()
        found += (await anext(batches))["offset"].to_pylist() if len(found) % EACH else []
    assert SLICES > LOOKS_MAX
    assert found + await column(batches) == ALL


async def test_what_is_gone_for_no_reason_is_an_error_at_last(
    lake: Lake, builder: LogBuilder, store: Racing, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await only(lake)
    await store.delete(builder.segment_key(log.segments[0]))
    looks = []

    async def counted(lake: Lake, topic: Topic, partition: int) -> Log:
        looks.append(partition)
        return await read_log(lake, topic, partition)

    monkeypatch.setattr("kafscale.lake.scan.read_log", counted)
    with pytest.raises(ObjectNotFound):
        await column(scan(lake, log, Wanted()))
    assert len(looks) == LOOKS_MAX - 1


async def test_who_accepts_a_loss_gets_what_is_left(lake: Lake, builder: LogBuilder) -> None:
    log = await only(lake)
    await settled(builder)
    await builder.retain_from(57)
    losses: list[Loss] = []
    found = await column(scan_segments(lake, log, log.segments, Wanted(), losses.append))
    assert (found, losses) == (ALL[54:], [Loss(0, 57)]), "54 to 59 are one batch"
    with pytest.raises(ObjectNotFound):
        await column(scan(lake, log, Wanted()))
    assert await column(scan(lake, log, Wanted(first=60))) == ALL[60:], "none of these was deleted"


async def test_another_topic_of_the_name_is_not_read(lake: Lake, builder: LogBuilder) -> None:
    log = await only(lake)
    await settled(builder)
    again = LogBuilder(
        lake.etcd, lake.keys, lake.store, await create_topic(lake.etcd, lake.keys, "orders"), epoch=9
    )
    await builder.remove_objects()
    for _ in range(SLICES):
        await again.append(records(EACH))
    losses: list[Loss] = []
    assert await column(scan_segments(lake, log, log.segments, Wanted(), losses.append)) == []
    assert losses == [Loss(0, None)]
    with pytest.raises((ObjectNotFound, PreconditionFailed)):
        await column(scan(lake, log, Wanted()))
