"""An owner settles: slices of bundles become a segment with an ordinary name, whatever is there already."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from kafscale.log.heads import Seg
from kafscale.log.places import place_of
from kafscale.log.segment import (
    FOOTER_SIZE,
    HEADER_SIZE,
    find_position,
    parse_index,
    verify_segment,
    walk_batches,
)
from kafscale.produce.log.model import PartitionId, SettleRun, StepDownReason
from kafscale.produce.log.settling import Kept, KeptBudget
from kafscale.produce.metrics import ProduceMetrics
from kafscale.produce.pieces import Pieces
from kafscale.produce.puts import Pace
from kafscale.produce.server import fresh_id
from kafscale.produce.settler import (
    LARGE_AT_ONCE_MAX,
    READS_AT_ONCE_MAX,
    SMALL_AT_ONCE_MAX,
    TURNS_MAX,
    Settler,
)
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.exposition import registry_of
from kafscale.runtime.metrics import Metrics
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import META_ATTEMPT, META_EPOCH, Keyspace, index_beside
from kafscale.storage.objects import Buffer, MemoryStore, PreconditionFailed
from kafscale.testkit.garbage import collector_off, cycles
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import Fault, FaultyStore, scripted
from kafscale.wire.batches import TIMESTAMP_NONE
from produce_harness import SEGMENTS, Cluster, batch

EPOCH = 7
"""Of the owner that settles; the slices are of epoch 1."""
LATE_S = 20.0


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def log(etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore) -> LogBuilder:
    """Three slices, each in a bundle of its own."""
    log = LogBuilder(etcd, keyspace, store, await create_topic(etcd, keyspace, "t"), as_slices=True)
    for size in (3, 1, 200):
        await log.append(records(size), records(2))
    return log


def settler(
    etcd: EtcdClient, store: MemoryStore | FaultyStore, keyspace: Keyspace, metrics: Metrics
) -> Settler:
    pace = Pace(store, SystemClock())
    return Settler(etcd, store, pace, keyspace, fresh_id, Pieces(), ProduceMetrics(metrics))


async def rewritten(
    store: MemoryStore | FaultyStore,
    keyspace: Keyspace,
    log: LogBuilder,
    slices: int | None = None,
    metrics: Metrics | None = None,
) -> Seg | StepDownReason | None:
    id_ = PartitionId(topic=log.topic.name, topic_id=log.topic.topic_id, partition=0)
    plan = SettleRun(plan=1, run=log.head.tail[:slices], epoch=EPOCH)
    return await settler(log._etcd, store, keyspace, metrics or Metrics("produce")).rewrite(
        id_, plan, Kept(KeptBudget(0))
    )


async def test_the_segment_has_the_batches_of_the_slices_and_an_index(
    store: MemoryStore, keyspace: Keyspace, log: LogBuilder
) -> None:
    seg = await rewritten(store, keyspace, log)
    assert isinstance(seg, Seg)
    key = keyspace.segment_key("t", 0, 0)
    assert place_of(keyspace, "t", 0, seg).key == key
    body = await store.get(key, if_match=seg.etag)
    found = verify_segment(body)
    assert body[HEADER_SIZE:-FOOTER_SIZE] == log.expected(0)
    assert (seg.base, seg.end, seg.size, seg.crc32c) == (0, log.next, len(body), found.footer.crc32c)
    assert (seg.records, seg.batches, seg.epoch) == (log.next, 6, 1), "the epoch of its batches"
    index = parse_index(await store.get(index_beside(key), if_match=seg.index_etag))
    assert find_position(index, log.next - 1) > HEADER_SIZE
    info = await store.head(key)
    assert info is not None
    assert info.metadata[META_EPOCH] == str(EPOCH), "that of the owner that settles"


async def test_two_plans_of_the_same_slices_write_other_bytes(
    store: MemoryStore, keyspace: Keyspace, log: LogBuilder
) -> None:
    """A late PUT of the first must not match what the second wrote; see docs/protocol/commit.md."""
    first, second = [await rewritten(store, keyspace, log) for _ in range(2)]
    assert isinstance(first, Seg)
    assert isinstance(second, Seg)
    assert first.etag != second.etag
    assert first.index_etag != second.index_etag
    assert replace(first, etag="", index_etag="") == replace(second, etag="", index_etag="")


def written_by(epoch: int) -> Mapping[str, str]:
    return {META_EPOCH: str(epoch), META_ATTEMPT: "ab" * 16}


@pytest.mark.parametrize(
    ("there", "outcome"),
    [
        (written_by(EPOCH - 1), None),
        (written_by(EPOCH), None),
        (written_by(EPOCH + 1), StepDownReason.FENCED),
        ({}, StepDownReason.FOREIGN_OBJECT),
    ],
    ids=["older epoch", "a plan before", "newer epoch", "foreign"],
)
@pytest.mark.parametrize("part", ["segment", "index"])
async def test_what_has_the_name_already(
    store: MemoryStore,
    keyspace: Keyspace,
    log: LogBuilder,
    there: Mapping[str, str],
    outcome: StepDownReason | None,
    part: str,
) -> None:
    name = keyspace.segment_key("t", 0, 0)
    name = name if part == "segment" else index_beside(name)
    etag = await store.put(name, (b"there before",), condition=None, metadata=there)
    done = await rewritten(store, keyspace, log)
    info = await store.head(name)
    assert info is not None
    if outcome is None:
        assert isinstance(done, Seg)
        assert info.etag == (done.etag if part == "segment" else done.index_etag) != etag
    else:
        assert done is outcome
        assert info.etag == etag, "it was written over"


async def test_a_put_whose_answer_was_lost_is_found_again(
    store: MemoryStore, keyspace: Keyspace, log: LogBuilder
) -> None:
    """The store applies a PUT and answers with an error; the next plan replaces what it left."""
    lost = FaultyStore(store, scripted(("put", ".kfs", Fault.DROP_REPLY)))
    assert await rewritten(lost, keyspace, log) is None
    assert await store.head(keyspace.segment_key("t", 0, 0)) is not None
    assert isinstance(await rewritten(store, keyspace, log), Seg)


async def test_a_late_put_of_a_longer_plan_replaces_nothing(
    store: MemoryStore, keyspace: Keyspace, log: LogBuilder
) -> None:
    """`segment.bytes` has changed twice: the first and the third plan have the same slices, and the PUT of the one
    between them arrives when the third may be committed. This is the model's mutation EQUAL_PLANS."""
    assert isinstance(await rewritten(store, keyspace, log, slices=1), Seg)
    puts = count()
    late = FaultyStore(
        store, lambda operation, _: Fault.LATE if operation == "put" and next(puts) == 1 else None
    )
    assert await rewritten(late, keyspace, log) is None
    assert late.late_count == 1
    third = await rewritten(store, keyspace, log, slices=1)
    assert isinstance(third, Seg)
    await late.deliver_late()
    info = await store.head(keyspace.segment_key("t", 0, 0))
    assert info is not None
    assert info.etag == third.etag


async def test_a_damaged_slice_is_not_copied(store: MemoryStore, keyspace: Keyspace, log: LogBuilder) -> None:
    damaged = replace(log.head.tail[1], crc32c=log.head.tail[1].crc32c ^ 1)
    log.head = replace(log.head, tail=(log.head.tail[0], damaged, log.head.tail[2]))
    metrics = Metrics("produce")
    assert await rewritten(store, keyspace, log, metrics=metrics) is None
    assert await store.head(keyspace.segment_key("t", 0, 0)) is None
    assert counted(metrics, "unreadable_slices_total") == 1


async def test_a_bundle_that_is_gone_is_counted_and_a_store_that_is_away_is_not(
    store: MemoryStore, keyspace: Keyspace, log: LogBuilder
) -> None:
    metrics = Metrics("produce")
    away = FaultyStore(store, scripted(("get", ".kfb", Fault.UNAVAILABLE)))
    assert await rewritten(away, keyspace, log, metrics=metrics) is None
    assert counted(metrics, "unreadable_slices_total") == 0
    metrics = Metrics("produce")
    await store.delete(place_of(keyspace, "t", 0, log.head.tail[1]).key)
    assert await rewritten(store, keyspace, log, metrics=metrics) is None
    assert counted(metrics, "unreadable_slices_total") == 1
    assert counted(metrics, "settled_bytes_total", source="store") == 0


async def lose(store: MemoryStore, key: str) -> FaultyStore:
    await store.delete(key)
    return FaultyStore(store)


async def write_over(store: MemoryStore, key: str) -> FaultyStore:
    await store.put(key, (b"another program's",), condition=None)
    return FaultyStore(store)


async def flip_a_bit(store: MemoryStore, key: str) -> FaultyStore:
    """Below the store: the etag is the committed one."""
    return FaultyStore(
        store, lambda operation, of: Fault.BIT_FLIP if (operation, of) == ("get", key) else None
    )


@pytest.mark.parametrize("damage", [lose, write_over, flip_a_bit])
async def test_a_lost_slice_whose_records_are_deleted_is_passed_over(
    store: MemoryStore,
    keyspace: Keyspace,
    log: LogBuilder,
    damage: Callable[[MemoryStore, str], Awaitable[FaultyStore]],
) -> None:
    """DeleteRecords is the way on after the loss of a bundle."""
    first, lost, last = log.head.tail
    damaged = await damage(store, log.segment_key(lost))
    await log.retain_from(lost.end, delete=False)
    metrics = Metrics("produce")
    seg = await rewritten(damaged, keyspace, log, metrics=metrics)
    assert isinstance(seg, Seg)
    body = await store.get(keyspace.segment_key("t", 0, 0), if_match=seg.etag)
    verify_segment(body)
    spans = [(span.offset, span.last_offset, span.leader_epoch, span.records) for span in walk_batches(body)]
    assert [span for span in spans if span[0] == lost.base] == [(lost.base, lost.last, 1, 0)]
    assert spans[0][0] == 0
    assert [each[0] for each in spans[1:]] == [each[1] + 1 for each in spans[:-1]], "no offset is missing"
    assert (seg.end, seg.records, seg.batches) == (log.next, log.next - lost.records, 5)
    assert (seg.min_ts, seg.max_ts) == (min(first.min_ts, last.min_ts), max(first.max_ts, last.max_ts))
    assert counted(metrics, "unreadable_slices_total") == 0
    assert counted(metrics, "settled_bytes_total", source="store") == first.size + last.size


async def test_a_run_of_which_all_is_lost_and_deleted_has_no_records_and_no_times(
    store: MemoryStore, keyspace: Keyspace, log: LogBuilder
) -> None:
    for seg in log.head.tail:
        await store.delete(log.segment_key(seg))
    await log.retain_from(log.next, delete=False)
    seg = await rewritten(store, keyspace, log)
    assert isinstance(seg, Seg)
    assert (seg.base, seg.end, seg.records, seg.batches) == (0, log.next, 0, 3)
    assert (seg.min_ts, seg.max_ts) == (TIMESTAMP_NONE, TIMESTAMP_NONE)


async def test_a_lost_slice_with_a_record_that_is_not_deleted_is_not_passed_over(
    store: MemoryStore, keyspace: Keyspace, log: LogBuilder
) -> None:
    lost = log.head.tail[1]
    await store.delete(log.segment_key(lost))
    await log.retain_from(lost.last, delete=False)
    metrics = Metrics("produce")
    assert await rewritten(store, keyspace, log, metrics=metrics) is None
    assert counted(metrics, "unreadable_slices_total") == 1
    assert await store.head(keyspace.segment_key("t", 0, 0)) is None


@pytest.mark.parametrize("damage", [lose, write_over, flip_a_bit])
async def test_a_plan_that_failed_begins_with_the_slice_that_failed_it_and_takes_no_place(
    store: MemoryStore,
    keyspace: Keyspace,
    log: LogBuilder,
    damage: Callable[[MemoryStore, str], Awaitable[FaultyStore]],
) -> None:
    """One bundle may have slices of thousands of partitions. Others settle meanwhile."""
    key = log.segment_key(log.head.tail[1])
    whole = await store.get(key)
    damaged = await damage(store, key)
    one = settler(log._etcd, damaged, keyspace, Metrics("produce"))
    id_ = PartitionId(topic=log.topic.name, topic_id=log.topic.topic_id, partition=0)
    plan, kept = SettleRun(plan=1, run=log.head.tail, epoch=EPOCH), Kept(KeptBudget(0))
    assert await one.rewrite(id_, plan, kept) is None
    damaged.requests.clear()
    for _ in range(SMALL_AT_ONCE_MAX):
        await one._small.acquire()
    async with asyncio.timeout(LATE_S):
        assert await one.rewrite(id_, plan, kept) is None
    assert damaged.requests == [("get", key)]
    for _ in range(SMALL_AT_ONCE_MAX):
        one._small.release()
    damaged.plan = lambda operation, of: None
    etag = await store.put(key, (whole,), condition=None)
    assert etag == log.head.tail[1].etag, "the version with the committed etag is restored"
    assert isinstance(await one.rewrite(id_, plan, kept), Seg)
    assert not one._lost


async def test_a_plan_that_failed_goes_on_when_the_records_of_its_lost_slice_are_deleted(
    store: MemoryStore, keyspace: Keyspace, log: LogBuilder
) -> None:
    lost = log.head.tail[1]
    await store.delete(log.segment_key(lost))
    one = settler(log._etcd, store, keyspace, Metrics("produce"))
    id_ = PartitionId(topic=log.topic.name, topic_id=log.topic.topic_id, partition=0)
    plan, kept = SettleRun(plan=1, run=log.head.tail, epoch=EPOCH), Kept(KeptBudget(0))
    assert await one.rewrite(id_, plan, kept) is None
    assert await one.rewrite(id_, plan, kept) is None
    await log.retain_from(lost.end, delete=False)
    assert isinstance(await one.rewrite(id_, plan, kept), Seg)


class Unconditional(MemoryStore):
    """Takes no condition of a segment for fulfilled."""

    puts = 0

    async def put(self, key: str, body: Sequence[Buffer], **how: Any) -> str:
        if not key.endswith(".kfs"):
            return await super().put(key, body, **how)
        self.puts += 1
        if self.puts == 1:
            return await super().put(key, body, condition=None, metadata=written_by(EPOCH - 1))
        raise PreconditionFailed(key, "it has another etag")


async def test_a_plan_fails_on_a_store_that_takes_no_condition_for_fulfilled(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    store = Unconditional()
    log = LogBuilder(etcd, keyspace, store, await create_topic(etcd, keyspace, "t"), as_slices=True)
    await log.append(records(2))
    await store.put(keyspace.segment_key("t", 0, 0), (b"there before",))
    assert await rewritten(store, keyspace, log) is None
    assert store.puts == 1 + TURNS_MAX


class Gathering(FaultyStore):
    """Holds each GET until `wanted` of them wait."""

    def __init__(self, inner: MemoryStore, wanted: int) -> None:
        super().__init__(inner)
        self.at_once = self.most = 0
        self._wanted = wanted
        self._all = asyncio.Event()

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        if self.at_once >= self._wanted:
            self._all.set()
        try:
            await self._all.wait()
            await asyncio.sleep(0)  # those behind the last one that was wanted begin as well
            return await super().get(key, if_match=if_match, start=start, end=end)
        finally:
            self.at_once -= 1


async def test_the_slices_of_a_run_are_read_together(
    store: MemoryStore, keyspace: Keyspace, log: LogBuilder
) -> None:
    async with asyncio.timeout(LATE_S):
        assert isinstance(await rewritten(Gathering(store, 3), keyspace, log), Seg)


async def test_many_small_plans_are_under_way_at_a_time(
    store: MemoryStore, keyspace: Keyspace, log: LogBuilder
) -> None:
    gathering = Gathering(store, 2 * LARGE_AT_ONCE_MAX * 3)
    one = settler(log._etcd, gathering, keyspace, Metrics("produce"))
    id_ = PartitionId(topic=log.topic.name, topic_id=log.topic.topic_id, partition=0)
    plans = [SettleRun(plan=n, run=log.head.tail, epoch=EPOCH) for n in range(2 * LARGE_AT_ONCE_MAX)]
    async with asyncio.timeout(LATE_S):
        await asyncio.gather(*(one.rewrite(id_, plan, Kept(KeptBudget(0))) for plan in plans))


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        (("get", ".kfb"), Fault.UNAVAILABLE),
        (("get", ".kfb"), Fault.BIT_FLIP),
        (("get", ".kfb"), Fault.TRUNCATE),
        (("put", ".kfs"), Fault.UNAVAILABLE),
    ],
)
async def test_settling_that_fails_leaves_no_reference_cycle(
    keyspace: Keyspace, store: MemoryStore, log: LogBuilder, place: tuple[str, str], fault: Fault
) -> None:
    """The bytes of a run would be in it, and nobody sees them go."""
    faulty = FaultyStore(store)
    await rewritten(faulty, keyspace, log)
    with collector_off():
        await cycles()  # of the first time
        faulty.plan = scripted((*place, fault))
        for _ in range(2):
            await asyncio.create_task(rewritten(faulty, keyspace, log))
        assert faulty.plan(*place) is None, "the fault was met"
        assert not await cycles()


async def test_reads_of_slices_have_a_bound(etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore) -> None:
    log = LogBuilder(etcd, keyspace, store, await create_topic(etcd, keyspace, "t"), as_slices=True)
    for _ in range(READS_AT_ONCE_MAX + 8):
        await log.append(records(1))
    gathering = Gathering(store, READS_AT_ONCE_MAX)
    async with asyncio.timeout(LATE_S):
        assert isinstance(await rewritten(gathering, keyspace, log), Seg)
    assert gathering.most == READS_AT_ONCE_MAX


def counted(metrics: Metrics, name: str, **labels: str) -> float | None:
    return registry_of(metrics.read()).get_sample_value(f"kafscale_produce_{name}", labels)


async def settled(cluster: Cluster, log: LogBuilder) -> None:
    async with asyncio.timeout(LATE_S):
        while any(seg.is_slice for seg in (await cluster.head(log.topic)).tail):
            await asyncio.sleep(0.01)


async def test_an_owner_settles_what_the_one_before_has_left(
    cluster: Cluster, etcd: EtcdClient, keyspace: Keyspace
) -> None:
    log = LogBuilder(etcd, keyspace, cluster.store, await create_topic(etcd, keyspace, "t"), as_slices=True)
    for number in range(5):
        await log.append(records(2), records(number + 1))
    before = await cluster.head(log.topic)
    node = await cluster.node(**SEGMENTS)
    answer = await node.send(log.topic, 0, batch(b"x"))
    assert answer.base_offset == log.next
    await settled(cluster, log)
    assert (await node.send(log.topic, 0, batch(b"y"))).base_offset == log.next + 1
    head = await cluster.head(log.topic)
    first = head.tail[0]
    assert (first.base, first.end) == (0, log.next)
    assert head.next == log.next + 2
    assert (
        head.bytes == sum(seg.size for seg in head.tail) < before.bytes + sum(s.size for s in head.tail[1:])
    )
    body = await cluster.store.get(keyspace.segment_key("t", 0, 0), if_match=first.etag)
    assert body[HEADER_SIZE:-FOOTER_SIZE] == log.expected(0)
    assert node.metric("settled_bytes_total", source="store") == before.bytes
    assert node.metric("settled_bytes_total", source="memory") == 0
    for seg in before.tail:
        await cluster.store.delete(place_of(keyspace, "t", 0, seg).key)
    other = await cluster.node(**SEGMENTS)
    await node.drain()
    async with asyncio.timeout(LATE_S):  # until the release has reached its view, and without any bundle
        epochs = count()  # a front door raises the lane's epoch after a refusal
        while (await other.send(log.topic, 0, batch(b"z"), lane_epoch=next(epochs))).error:
            await asyncio.sleep(0.01)


async def test_an_owner_that_is_fenced_while_it_settles_changes_nothing(
    cluster: Cluster, etcd: EtcdClient, keyspace: Keyspace
) -> None:
    log = LogBuilder(etcd, keyspace, cluster.store, await create_topic(etcd, keyspace, "t"), as_slices=True)
    await log.append(records(2))
    await cluster.store.put(
        keyspace.segment_key("t", 0, 0), (b"newer",), condition=None, metadata=written_by(99)
    )
    node = await cluster.node(**SEGMENTS)
    await node.send(log.topic, 0, batch(b"x"))
    async with asyncio.timeout(LATE_S):
        while node.metric("stepdowns_total", reason="fenced") == 0:
            await asyncio.sleep(0.01)
    assert (await cluster.head(log.topic)).tail[0].is_slice
