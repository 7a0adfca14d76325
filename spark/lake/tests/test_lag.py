"""Lag is right to the record and to the millisecond, whatever the log's shape, and says what is lost already."""

from __future__ import annotations

import pytest
from kafscale.lake.catalog import Lake, read_lake
from kafscale.lake.datasets import Asked
from kafscale.lake.lag.measure import Lag, measure
from kafscale.lake.lag.positions import read_commits
from kafscale.lake.sources import TableSource
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.groups import CommittedOffset, encode_committed
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.storage.slots import slot_of
from kafscale.storage.topics import DEFAULT_RETENTION_MS, Topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, marker, records, transactional
from kafscale.wire.records import Codec

T0 = 1_700_000_000_000
SEGMENTS, EACH = 5, 10


@pytest.fixture
def lake(etcd: EtcdClient, keyspace: Keyspace) -> Lake:
    return Lake(etcd, keyspace, MemoryStore())


async def built(lake: Lake) -> LogBuilder:
    """Fifty records in five segments of two batches; record n was written n seconds after T0."""
    topic = await create_topic(lake.etcd, lake.keys, "orders")
    log = LogBuilder(lake.etcd, lake.keys, lake.store, topic)
    for number in range(SEGMENTS):
        some = records(EACH, timestamp=T0 + 10_000 * number, step_ms=1_000)
        await log.append(some[:4], some[4:], codec=Codec(number))
    return log


async def commit(lake: Lake, topic: Topic, group: str, offset: int) -> None:
    key = lake.keys.committed(slot_of(group), group, topic.topic_id, 0)
    await lake.etcd.put(key, encode_committed(CommittedOffset(offset=offset, commit_ms=T0)))


async def lags(lake: Lake, now_ms: int = T0 + 100_000) -> list[Lag]:
    logs = await read_lake(lake)
    return await measure(lake, logs, await read_commits(lake, [log.topic for log in logs]), now_ms)


@pytest.mark.parametrize("offset", [0, 3, 4, 17, 49])
async def test_the_time_lag_is_the_age_of_the_first_record_that_was_not_read(lake: Lake, offset: int) -> None:
    log = await built(lake)
    await commit(lake, log.topic, "readers", offset)
    (lag,) = await lags(lake)
    assert (lag.records, lag.time_ms, lag.lost) == (50 - offset, 100_000 - 1_000 * offset, 0)
    assert lag.bytes == sum(len(batch.data) for batch in log.batches if batch.last >= offset) + sum(
        seg.size - sum(len(b.data) for b in log.batches if seg.base <= b.base <= seg.last)
        for seg in log.segments[offset // EACH + 1 :]
    )


async def test_a_read_committed_group_is_behind_by_what_is_below_the_open_transaction(lake: Lake) -> None:
    """And in front of a marker alone nothing is left for it. DeleteRecords may move the start past the transaction."""
    topic = await create_topic(lake.etcd, lake.keys, "orders")
    log = LogBuilder(lake.etcd, lake.keys, lake.store, topic)
    await log.append(records(5, timestamp=T0))
    await log.append_raw([transactional(7, records(3)), marker(7, commit=True)])
    await commit(lake, topic, "readers", 8)
    (lag,) = await lags(lake)
    assert (lag.log_end, lag.stable_end, lag.records, lag.stable_records) == (9, 9, 1, 1)
    assert (lag.is_empty, lag.readable, lag.time_ms) == (True, 0, None)
    await log.append_raw([transactional(7, records(4, timestamp=T0))])
    (lag,) = await lags(lake)
    assert (lag.log_end, lag.stable_end, lag.records, lag.stable_records) == (13, 9, 5, 1)
    assert (lag.is_empty, lag.readable, lag.time_ms) == (False, 1, 100_000)
    await commit(lake, topic, "readers", 11)
    (lag,) = await lags(lake)
    assert (lag.records, lag.stable_records, lag.readable) == (2, 0, 2)
    await log.retain_from(12)
    (lag,) = await lags(lake)
    assert (lag.log_start, lag.stable_end, lag.records, lag.stable_records) == (12, 12, 1, 0)


async def test_who_has_read_all_is_not_behind(lake: Lake) -> None:
    log = await built(lake)
    await commit(lake, log.topic, "readers", 50)
    (lag,) = await lags(lake)
    assert (lag.records, lag.bytes, lag.time_ms, lag.expires_in_ms) == (0, 0, None, None)


async def test_an_offset_beyond_the_end_is_ahead_by_so_much(lake: Lake) -> None:
    log = await built(lake)
    await commit(lake, log.topic, "readers", 540)
    (lag,) = await lags(lake)
    assert (lag.ahead, lag.records, lag.bytes, lag.time_ms, lag.lost) == (490, 0, 0, None, 0)


async def test_a_group_that_keeps_up_is_not_ahead_of_logs_that_were_read_before_it_committed(
    lake: Lake,
) -> None:
    log = await built(lake)
    source = TableSource(lake, await read_lake(lake))
    await log.append(records(EACH, timestamp=T0 + 60_000, step_ms=1_000))
    await commit(lake, log.topic, "readers", 60)
    columns = ("committed", "log_end", "ahead", "status")
    rows = [row async for batch in source.lag(Asked(columns, None)) for row in batch.to_pylist()]
    assert [tuple(row[name] for name in columns) for row in rows] == [(60, 60, 0, "OK")]


async def test_what_is_deleted_is_lost_and_no_lag(lake: Lake) -> None:
    log = await built(lake)
    await commit(lake, log.topic, "readers", 5)
    await log.retain_from(23)
    (lag,) = await lags(lake)
    assert (lag.lost, lag.records, lag.time_ms) == (18, 27, 77_000)


async def test_a_group_hears_when_its_next_records_will_be_gone(lake: Lake) -> None:
    log = await built(lake)
    await commit(lake, log.topic, "readers", 12)
    (lag,) = await lags(lake, now_ms=T0 + DEFAULT_RETENTION_MS)
    assert lag.expires_in_ms == 19_000, "when the newest record of that segment is too old"


async def test_groups_and_partitions_are_told_apart(lake: Lake) -> None:
    log = await built(lake)
    for group, offset in (("slow", 1), ("fast", 48)):
        await commit(lake, log.topic, group, offset)
    gone = await create_topic(lake.etcd, lake.keys, "gone")
    await commit(lake, gone, "slow", 7)
    await lake.etcd.delete(lake.keys.topic("gone"))
    found = await lags(lake)
    assert [(lag.group, lag.topic, lag.records) for lag in found] == [
        ("fast", "orders", 2),
        ("slow", "orders", 49),
    ]
