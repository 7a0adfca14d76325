"""A compacted log is served: gaps are passed over, and objects that go under a reader are found again.

What compaction publishes is made here by compaction itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from kafscale.lake.catalog import Lake
from kafscale.lake.compaction.run import Bounds, Round
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import Topic, encode_topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic
from kafscale.wire.message_sets import messages_in
from kafscale.wire.records import Codec, Record, records_in, split_batches

EARLIEST, MAX_TIMESTAMP = -2, -3
Row = tuple[int, int, bytes | None, bytes | None]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def topic(etcd: EtcdClient, keyspace: Keyspace) -> Topic:
    made = await create_topic(etcd, keyspace, "t")
    made = replace(made, configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    await etcd.put(keyspace.topic("t"), encode_topic(made))
    return made


@pytest.fixture
async def log(etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore, topic: Topic) -> LogBuilder:
    """Two epochs: in the first nothing stays, in the second some batches do, in part; two segments in the tail."""
    log = LogBuilder(etcd, keyspace, store, topic)
    for number in range(10):
        if number == 4:
            await log.claim(2)
        codec = (Codec.NONE, Codec.LZ4, Codec.GZIP)[number % 3]
        await log.append(some(number, 3), some(number, 2), codec=codec)
        if number == 5:
            await log.checkpoint()
    await log.checkpoint(keep=2)
    return log


def some(number: int, count: int) -> list[Record]:
    keys = 1 if number < 4 else 3
    return [
        Record(timestamp=1_000 + 10 * number + n, key=b"k%d" % (n % keys), value=b"v%d-%d" % (number, n))
        for n in range(count)
    ]


async def compact(etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore) -> None:
    done = await Round(Lake(etcd, keyspace, store), Bounds(grace_s=0), lambda *_: None).run()
    assert [outcome.trouble for outcome in done.outcomes] == [None]


def rows_in(record_set: bytes) -> list[Row]:
    return [
        (record.offset, record.timestamp, record.key, record.value)
        for header, batch in split_batches(record_set)
        for record in records_in(batch, header)
    ]


def left_of(log: LogBuilder) -> list[Row]:
    """By a dict: what compaction leaves."""
    rows = rows_in(b"".join(batch.data for batch in log.batches))
    reach = log.segments[-2].base
    newest = {key: offset for offset, _, key, _ in rows if offset < reach}
    return [row for row in rows if row[0] >= reach or row[0] >= newest[row[2]]]


async def read_on(client, topic: Topic, end: int, **options: int) -> list[Row]:
    """As a consumer does: after each answer it goes on behind the last batch that it was given."""
    rows: list[Row] = []
    offset = 0
    while offset < end:
        answer = await client.fetch(topic, offset, **options)
        assert answer.error_code == 0
        batches = split_batches(bytes(answer.records))
        assert batches, f"nothing at {offset}, and the reader is stuck"
        rows += [row for row in rows_in(bytes(answer.records)) if row[0] >= offset]
        offset = batches[-1][0].last_offset + 1
    return rows


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_from_any_offset_a_reader_is_led_on(
    etcd, keyspace, store, topic, log, serve, isolation_level: int
) -> None:
    await compact(etcd, keyspace, store)
    async with serve(etcd, keyspace, store) as client:
        for offset in range(log.next):
            answer = await client.fetch(topic, offset, isolation_level=isolation_level)
            assert answer.error_code == 0
            assert split_batches(bytes(answer.records))[0][0].last_offset >= offset
            found = [row for row in rows_in(bytes(answer.records)) if row[0] >= offset]
            assert found == [row for row in left_of(log) if row[0] >= offset]


@pytest.mark.parametrize("bytes_max", [1, 70, 400])
async def test_however_little_it_takes_at_once_a_reader_comes_to_the_end(
    etcd, keyspace, store, topic, log, serve, bytes_max: int
) -> None:
    await compact(etcd, keyspace, store)
    async with serve(etcd, keyspace, store) as client:
        found = await read_on(client, topic, log.next, partition_max_bytes=bytes_max, max_bytes=bytes_max)
        assert found == left_of(log)


@pytest.mark.parametrize("version", [0, 2])
async def test_old_clients_read_on_over_gaps(etcd, keyspace, store, topic, log, serve, version: int) -> None:
    await compact(etcd, keyspace, store)
    async with serve(etcd, keyspace, store) as client:
        offset, found = 0, []
        while offset < log.next:
            answer = await client.fetch(topic, offset, version=version)
            messages = [m for m in messages_in(bytes(answer.records)) if m.offset >= offset]
            assert messages, f"nothing at {offset}"
            found += [(m.offset, m.key, m.value) for m in messages]
            offset = messages[-1].offset + 1
        assert found == [(row[0], row[2], row[3]) for row in left_of(log)]


async def test_offsets_by_time_name_records_that_are_left(etcd, keyspace, store, topic, log, serve) -> None:
    await compact(etcd, keyspace, store)
    rows = left_of(log)
    async with serve(etcd, keyspace, store) as client:
        for timestamp in range(999, max(row[1] for row in rows) + 2):
            first = next(((row[0], row[1]) for row in rows if row[1] >= timestamp), (-1, -1))
            answer = await client.list_offsets(topic, timestamp)
            assert (answer.offset, answer.timestamp) == first, timestamp
        newest = max(rows, key=lambda row: row[1])
        answer = await client.list_offsets(topic, MAX_TIMESTAMP)
        assert (answer.offset, answer.timestamp) == newest[:2]
        assert (await client.list_offsets(topic, EARLIEST)).offset == 0


async def test_epochs_end_where_they_ended(etcd, keyspace, store, topic, log, serve) -> None:
    await compact(etcd, keyspace, store)
    async with serve(etcd, keyspace, store) as client:
        ends = [(await client.epoch_end(topic, epoch)).end_offset for epoch in (1, 2)]
        assert ends == [20, log.next]
        for header, _ in split_batches(bytes((await client.fetch(topic, 0)).records)):
            assert header.partition_leader_epoch == (1 if header.base_offset < 20 else 2)


async def test_readers_under_way_notice_nothing(etcd, keyspace, store, topic, log, serve) -> None:
    """No grace at all: objects and manifests go while they are being read, and are looked for again once."""
    before = rows_in(log.expected(0))
    async with serve(etcd, keyspace, store, cache_bytes=1) as client:
        assert await read_on(client, topic, log.next) == before
        compacting = asyncio.create_task(compact(etcd, keyspace, store))
        rounds = 0
        while not compacting.done() or rounds < 3:
            found = await read_on(client, topic, log.next, partition_max_bytes=300)
            assert [row for row in left_of(log) if row not in found] == []
            assert [row for row in found if row not in before] == []
            assert [row[0] for row in found] == sorted(row[0] for row in found)
            rounds += 1
        await compacting
        assert await read_on(client, topic, log.next) == left_of(log)
