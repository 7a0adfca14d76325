"""The first unread record is found by two small reads, wherever it lies, and its time is right to the millisecond."""

from __future__ import annotations

import math
import random
from bisect import bisect_left

import pytest
from kafscale.lake.catalog import Lake, read_lake
from kafscale.lake.lag.first_unread import READ_BYTES
from kafscale.lake.lag.measure import Known, Lag, measure
from kafscale.lake.lag.positions import Commit
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.groups import CommittedOffset
from kafscale.storage.keys import Keyspace
from kafscale.storage.topics import DEFAULT_RETENTION_MS, Topic, encode_topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import CountingStore
from kafscale.wire.batches import crc32c
from kafscale.wire.records import Codec, Record, build_batch

HOUR_S = 3_600
DAY_S = 24 * HOUR_S
T0 = 1_700_000_000_000


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def lake(etcd: EtcdClient, keyspace: Keyspace, store: CountingStore) -> Lake:
    return Lake(etcd, keyspace, store)


async def lag_at(lake: Lake, topic: str, offset: int, now_ms: int, known: Known | None = None) -> Lag:
    logs = await read_lake(lake)
    store = lake.store
    assert isinstance(store, CountingStore)
    store.forget()
    commit = Commit(
        group="g", topic=topic, partition=0, offset=CommittedOffset(offset=offset, commit_ms=now_ms)
    )
    (lag,) = await measure(lake, logs, [commit], now_ms, known)
    return lag


async def test_a_slice_has_no_index_and_is_walked(lake: Lake, store: CountingStore) -> None:
    topic = await create_topic(lake.etcd, lake.keys, "t")
    log = LogBuilder(lake.etcd, lake.keys, store, topic, as_slices=True)
    batches = [records(20, timestamp=T0 + 20_000 * n, step_ms=1_000, size=900) for n in range(20)]
    seg = await log.append(*batches)
    assert seg.size > READ_BYTES
    for offset in (0, 1, 199, 399):
        lag = await lag_at(lake, "t", offset, T0 + 5_000_000)
        assert lag.time_ms == 5_000_000 - 1_000 * offset
        assert lag.bytes == len(log.expected(offset))


@pytest.mark.parametrize("codec", list(Codec))
async def test_a_large_segment_costs_its_index_and_one_range(
    lake: Lake, store: CountingStore, codec: Codec
) -> None:
    topic = await create_topic(lake.etcd, lake.keys, "t")
    log = LogBuilder(lake.etcd, lake.keys, store, topic)
    chance = random.Random(codec)
    batches = [
        [
            Record(timestamp=T0 + 1_000 * (20 * n + k), key=None, value=chance.randbytes(900))
            for k in range(20)
        ]
        for n in range(100)
    ]
    seg = await log.append(*batches, codec=codec)
    assert seg.size > 20 * READ_BYTES
    for offset in (0, 1, 777, 1_000, 1_985, 1_999):
        lag = await lag_at(lake, "t", offset, T0 + 5_000_000)
        assert lag.time_ms == 5_000_000 - 1_000 * offset
        assert lag.bytes == len(log.expected(offset))
        assert (len(store.read) <= 3, store.bytes_read < 3 * READ_BYTES) == (True, True)


async def test_a_batch_larger_than_one_read_is_read_as_a_whole(lake: Lake, store: CountingStore) -> None:
    topic = await create_topic(lake.etcd, lake.keys, "t")
    log = LogBuilder(lake.etcd, lake.keys, store, topic)
    await log.append(records(3, timestamp=T0), records(4, timestamp=T0 + 10, size=2 * READ_BYTES))
    assert (await lag_at(lake, "t", 5, T0 + 1_000)).time_ms == 1_000 - 12


def compacted(batch: bytes, last_delta: int) -> bytes:
    """The batch as compaction leaves it: it still covers the offsets up to there, though the records are gone."""
    changed = bytearray(batch)
    changed[23:27] = last_delta.to_bytes(4, "big")
    changed[17:21] = crc32c(memoryview(changed)[21:]).to_bytes(4, "big")
    return bytes(changed)


@pytest.mark.parametrize("gone", [1, 3])
async def test_after_compaction_the_next_record_that_is_left_is_the_first_unread(
    lake: Lake, gone: int
) -> None:
    """Of offsets 0 to 9 the first two are left, and nothing of the segments after it but the last."""
    topic = await create_topic(lake.etcd, lake.keys, "t")
    log = LogBuilder(lake.etcd, lake.keys, lake.store, topic)
    for _ in range(gone):
        await log.append_raw([compacted(build_batch(records(2, timestamp=T0)), 9)])
    await log.append(records(10, timestamp=T0 + 100))
    lag = await lag_at(lake, "t", 2, T0 + 1_000)
    assert lag.time_ms == 1_000 - (0 if gone > 1 else 100)
    assert (await lag_at(lake, "t", 10 * gone - 5, T0 + 1_000)).time_ms == 900


async def test_a_record_without_a_time_has_no_age(lake: Lake) -> None:
    topic = await create_topic(lake.etcd, lake.keys, "t")
    log = LogBuilder(lake.etcd, lake.keys, lake.store, topic)
    await log.append([Record(timestamp=-1, key=b"k", value=b"v")])
    await log.append(records(2, timestamp=T0))
    lag = await lag_at(lake, "t", 0, T0)
    assert (lag.records, lag.time_ms, lag.expires_in_ms) == (3, None, None)


async def test_a_segment_that_is_gone_leaves_the_time_unknown_and_the_rest_told(lake: Lake) -> None:
    topic = await create_topic(lake.etcd, lake.keys, "t")
    log = LogBuilder(lake.etcd, lake.keys, lake.store, topic)
    seg = await log.append(records(9))
    await lake.store.delete(log.segment_key(seg))
    lag = await lag_at(lake, "t", 4, T0)
    assert (lag.records, lag.bytes, lag.time_ms) == (5, seg.size, None)


async def test_who_has_not_moved_is_measured_without_reading(lake: Lake, store: CountingStore) -> None:
    topic = await create_topic(lake.etcd, lake.keys, "t")
    await LogBuilder(lake.etcd, lake.keys, store, topic).append(records(9, timestamp=T0))
    known = Known()
    first = await lag_at(lake, "t", 4, T0 + 100, known)
    assert store.read
    again = await lag_at(lake, "t", 4, T0 + 300, known)
    assert (first.time_ms, again.time_ms, len(store.read)) == (96, 296, 0)


async def test_what_is_remembered_is_bounded(lake: Lake) -> None:
    topic = await create_topic(lake.etcd, lake.keys, "t")
    await LogBuilder(lake.etcd, lake.keys, lake.store, topic).append(records(9, timestamp=T0))
    known = Known(entries_max=2)
    for offset in range(5):
        await lag_at(lake, "t", offset, T0, known)
    store = lake.store
    assert isinstance(store, CountingStore)
    await lag_at(lake, "t", 4, T0, known)
    assert store.read == []
    await lag_at(lake, "t", 0, T0, known)
    assert store.read


async def test_retention_by_size_leaves_room_for_what_may_still_be_written(lake: Lake) -> None:
    topic = await create_topic(lake.etcd, lake.keys, "t")
    log = LogBuilder(lake.etcd, lake.keys, lake.store, topic)
    segs = [await log.append(records(10, timestamp=T0 + 10 * n)) for n in range(4)]
    limited = Topic(
        name="t", topic_id=topic.topic_id, partitions=1, configs={"retention.bytes": str(segs[0].size * 5)}
    )
    await lake.etcd.put(lake.keys.topic("t"), encode_topic(limited))
    lag = await lag_at(lake, "t", 15, T0)
    assert lag.room_bytes == segs[0].size * 5 - segs[2].size - segs[3].size
    assert lag.expires_in_ms == DEFAULT_RETENTION_MS + 19


# -- what a table of samples would say instead ---------------------------------------------------------------------


def diurnal_times(days: int = 2, per_day: int = 3_000) -> list[int]:
    """Times in seconds of records whose rate follows the hour: ten times as many by day as by night."""
    grid = [1 + 0.82 * math.sin(2 * math.pi * second / DAY_S) for second in range(0, days * DAY_S, 60)]
    scale = per_day * days / sum(grid)
    times, owed = [], 0.0
    for minute, rate in enumerate(grid):
        owed += rate * scale
        times += [minute * 60 + k * 60 / max(1, int(owed)) for k in range(int(owed))]
        owed -= int(owed)
    return [round(time_s * 1000) for time_s in times]


def interpolated_lag_s(times_ms: list[int], committed: int, now_ms: int) -> float:
    """As tools do that keep the log's end at 60 moments of the last half hour, and extrapolate beyond them."""
    table = [(bisect_left(times_ms, now_ms - 30_000 * k), now_ms - 30_000 * k) for k in range(59, -1, -1)]
    (first_end, first_ms), (last_end, last_ms) = table[0], table[-1]
    for (end_a, ms_a), (end_b, ms_b) in zip(table, table[1:], strict=False):
        if end_a <= committed <= end_b and end_b > end_a:
            return (now_ms - (ms_a + (ms_b - ms_a) * (committed - end_a) / (end_b - end_a))) / 1000
    per_record_ms = (last_ms - first_ms) / max(1, last_end - first_end)
    return (now_ms - last_ms + (last_end - committed) * per_record_ms) / 1000


@pytest.mark.parametrize("behind_h", [2, 6])
async def test_the_exact_lag_is_right_where_interpolation_is_hours_off(lake: Lake, behind_h: int) -> None:
    """The load follows the day. The consumer makes no progress in its busy hours, and its lag is measured at night."""
    times = [T0 + ms for ms in diurnal_times()]
    topic = await create_topic(lake.etcd, lake.keys, "t")
    log = LogBuilder(lake.etcd, lake.keys, lake.store, topic)
    rows = [Record(timestamp=ms, key=None, value=b"v") for ms in times]
    for at in range(0, len(rows), 500):
        some = rows[at : at + 500]
        await log.append(*(some[n : n + 25] for n in range(0, len(some), 25)))
    now_ms = T0 + DAY_S * 1000 + 17 * HOUR_S * 1000
    end = bisect_left(times, now_ms)
    committed = bisect_left(times, now_ms - behind_h * HOUR_S * 1000)
    lag = await lag_at(lake, "t", committed, now_ms)
    assert lag.time_ms == now_ms - times[committed], "to the millisecond"
    guess_s = interpolated_lag_s(times[:end], committed, now_ms)
    error_s = abs(guess_s - (now_ms - times[committed]) / 1000)
    assert error_s > behind_h * HOUR_S / 4, f"interpolation is {error_s:.0f} s off"
