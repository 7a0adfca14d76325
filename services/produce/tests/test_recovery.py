"""What a new owner learns of the producers before it: the headers of the log, deleted records included."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from kafscale.lake.catalog import Lake, read_lake
from kafscale.lake.compaction.run import Bounds, Round
from kafscale.produce.log.model import PartitionId
from kafscale.produce.log.producers import ProducerBounds, ProducerTable, Repeat
from kafscale.produce.recovery import LogDamaged, Recovery
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import encode_topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, marker, records, transactional
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import build_batch

PRODUCERS = 3


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(params=[False, True], ids=["segments", "slices"])
async def log(
    etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore, request: pytest.FixtureRequest
) -> LogBuilder:
    """A segment, or a slice of a bundle, of two records by each of three producers; no checkpoint yet."""
    topic = await create_topic(etcd, keyspace, "t")
    log = LogBuilder(etcd, keyspace, store, topic, as_slices=request.param)
    for producer in range(PRODUCERS):
        batch = build_batch(records(2), producer_id=producer, producer_epoch=0, base_sequence=0)
        await log.append_raw([batch])
    return log


async def recovered(log: LogBuilder, store: MemoryStore, keyspace: Keyspace) -> ProducerTable:
    id_ = PartitionId(topic=log.topic.name, topic_id=log.topic.topic_id, partition=0)
    return await Recovery(store, keyspace).producers(id_, log.head, log.meta)


async def test_a_batch_is_recognised_after_its_records_were_deleted(
    log: LogBuilder, store: MemoryStore, keyspace: Keyspace
) -> None:
    """Its producer may never have heard of its commit: without memory the repeat would stand there twice."""
    await log.retain_from(log.next, delete=False)
    table = await recovered(log, store, keyspace)
    for producer in range(PRODUCERS):
        known = table.judge(producer, 0, 0, 1)
        assert isinstance(known, Repeat)
        assert known.base == 2 * producer


async def test_what_retention_took_below_the_start_is_not_missed(
    log: LogBuilder, store: MemoryStore, keyspace: Keyspace
) -> None:
    await log.retain_from(4)
    assert [producer in await recovered(log, store, keyspace) for producer in range(PRODUCERS)] == [
        False,
        False,
        True,
    ]


async def test_what_is_known_to_be_gone_is_not_even_looked_for(
    log: LogBuilder, store: MemoryStore, keyspace: Keyspace
) -> None:
    """A writer of old may still put an object under the name of a segment that retention deleted."""
    await log.retain_from(4)
    await log.sweep(4)
    await store.put(log.segment_key(log.segments[0]), [b"late"])
    assert 2 in await recovered(log, store, keyspace)


async def test_a_segment_that_is_visible_in_part_must_be_there(
    log: LogBuilder, store: MemoryStore, keyspace: Keyspace
) -> None:
    await log.retain_from(3, delete=False)
    await store.delete(log.segment_key(log.segments[1]))
    with pytest.raises(LogDamaged):
        await recovered(log, store, keyspace)


async def test_another_object_in_the_place_of_a_deleted_segment_is_damage(
    log: LogBuilder, store: MemoryStore, keyspace: Keyspace
) -> None:
    await log.retain_from(log.next, delete=False)
    await store.put(log.segment_key(log.segments[0]), [b"something else"])
    with pytest.raises(LogDamaged):
        await recovered(log, store, keyspace)


@pytest.mark.parametrize("seed", range(6))
async def test_compaction_leaves_each_producer_its_last_sequence(
    etcd: EtcdClient, store: MemoryStore, keyspace: Keyspace, seed: int
) -> None:
    """Although the snapshot makes recovery pass over what manifests list: here there is none, and all is replayed."""
    chance = random.Random(seed)
    topic = replace(await create_topic(etcd, keyspace, "t"), configs={"cleanup.policy": "compact"})
    await etcd.put(keyspace.topic("t"), encode_topic(topic))
    log = LogBuilder(etcd, keyspace, store, topic)
    sequences: Counter[int] = Counter()
    last: dict[int, tuple[int, int]] = {}  # producer -> offset and size of its last batch
    for _ in range(8):
        base, batches = log.next, []
        for _ in range(chance.randint(1, 4)):
            producer, count = chance.randrange(4), chance.randint(1, 3)
            sequence = sequences[producer]
            made = records(count, label=str(base))
            batches.append(build_batch(made, producer_id=producer, producer_epoch=0, base_sequence=sequence))
            sequences[producer] += count
            last[producer] = base, count
            base += count
        await log.append_raw(batches)
    await log.checkpoint(keep=1)
    before = await recovered(log, store, keyspace)
    lake = Lake(etcd, keyspace, store)
    done = await Round(lake, Bounds(grace_s=0), lambda *_: None, lambda: 1_000).run()
    assert done.outcomes[0].tally.after.records < done.outcomes[0].tally.before.records
    log.meta = (await read_lake(lake))[0].meta
    after = await recovered(log, store, keyspace)
    for producer, (base, count) in last.items():
        end = sequences[producer]
        for table in (before, after):
            assert table.judge(producer, 0, end, end) is ErrorCode.NONE
            assert table.judge(producer, 0, end + 1, end + 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            known = table.judge(producer, 0, end - count, end - 1)
            assert isinstance(known, Repeat)
            assert known.base == base


async def test_markers_raise_epochs_and_open_transactions_are_held(
    log: LogBuilder, store: MemoryStore, keyspace: Keyspace
) -> None:
    """Of producer 0 the marker of an abort raised the epoch; producer 1 has a transaction open, and the bounds have
    room for one producer."""
    await log.append_raw([transactional(1, records(1), sequence=2), transactional(0, records(2), sequence=2)])
    await log.append_raw([marker(0, commit=False, epoch=1)])
    table = await recovered(log, store, keyspace)
    assert table.judge(0, 0, 4, 4) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert table.judge(0, 1, 0, 0) is ErrorCode.NONE
    assert table.judge(1, 0, 3, 3) is ErrorCode.NONE
    entry = table.entry(0, log.next)
    assert entry is not None
    assert (entry.epoch, entry.batches, entry.coordinator_epoch) == (1, (), 0)
    id_ = PartitionId(topic=log.topic.name, topic_id=log.topic.topic_id, partition=0)
    bounded = Recovery(store, keyspace, ProducerBounds(ids_max=1))
    left = await bounded.producers(id_, log.head, log.meta)
    assert 1 in left
