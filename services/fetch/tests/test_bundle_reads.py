"""Partitions that are read here and whose records are in one bundle: one GET reads their slices."""

import asyncio
from dataclasses import replace

import pytest
from kafscale.fetch.cache import ENTRY_COST_BYTES
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import Topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import Fault, FaultyStore, scripted
from kafscale.wire.errors import ErrorCode

PARTITIONS = 12
BATCH = records(5, size=2_000)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
async def topic(etcd: EtcdClient, keyspace: Keyspace) -> Topic:
    return await create_topic(etcd, keyspace, "t", partitions=PARTITIONS)


@pytest.fixture
def logs(etcd: EtcdClient, keyspace: Keyspace, store: FaultyStore, topic: Topic) -> list[LogBuilder]:
    return [LogBuilder(etcd, keyspace, store, topic, n) for n in range(PARTITIONS)]


def gets(store: FaultyStore, suffix: str = ".kfb") -> int:
    return sum(1 for operation, key in store.requests if operation == "get" and key.endswith(suffix))


async def all_of(client, topic: Topic, offset: int = 0) -> list[tuple[int, bytes]]:
    """Error and records of every partition, from one request."""
    response = await client.start_fetch(topic, *[offset] * PARTITIONS).fetched()
    return [(part.error_code, bytes(part.records)) for part in response.responses[0].partitions]


def expected(logs: list[LogBuilder], offset: int = 0) -> list[tuple[int, bytes]]:
    return [(ErrorCode.NONE, log.expected(offset)) for log in logs]


async def test_one_request_for_twelve_partitions_reads_their_bundle_once(
    etcd, keyspace, store, topic, logs, serve
) -> None:
    first, *others = logs
    await first.append_with(*others, batch=BATCH)
    async with serve(etcd, keyspace, store) as client:
        assert await all_of(client, topic) == expected(logs)
        assert await all_of(client, topic) == expected(logs)
        assert gets(store) == 1
        assert registered(client) == (0, 1)


def registered(client) -> tuple[int, int]:
    counted = client.service.cache.counters
    return counted.reads_of_one_slice, counted.reads_of_many_slices


async def test_requests_that_wait_for_one_bundle_share_its_read(
    etcd, keyspace, store, topic, logs, serve, until
) -> None:
    """Twelve consumers of one partition each. The bundle wakes their requests one after the other."""
    first, *others = logs
    async with serve(etcd, keyspace, store) as client:
        calls = [client.start_fetch(topic, *[0] * n, 0, max_wait_ms=60_000) for n in range(PARTITIONS)]
        await until(lambda: client.service.fetch.held_requests == PARTITIONS)
        await first.append_with(*others, batch=BATCH)
        answers = await asyncio.gather(*(call.fetched() for call in calls))
        for n, answer in enumerate(answers):
            assert bytes(answer.responses[0].partitions[n].records) == logs[n].expected(0)
        assert gets(store) == 1


async def test_consumers_that_come_after_the_bundle_was_read_find_their_slices_read(
    etcd, keyspace, store, topic, logs, serve, until
) -> None:
    """Their answers before were on the way, so none of their requests waited."""
    first, *others = logs
    async with serve(etcd, keyspace, store) as client:
        assert await all_of(client, topic) == expected(logs)
        call = client.start_fetch(topic, 0, max_wait_ms=60_000)
        await until(lambda: client.service.fetch.held_requests == 1)
        await first.append_with(*others, batch=BATCH)
        assert bytes((await call.fetched()).responses[0].partitions[0].records) == first.expected(0)
        assert await all_of(client, topic) == expected(logs)
        assert registered(client) == (0, 1)


async def test_partitions_that_a_monitor_asks_for_are_not_read_with_each_bundle(
    etcd, keyspace, store, topic, logs, serve, until
) -> None:
    first, *others = logs
    async with serve(etcd, keyspace, store) as client:
        await client.list_offsets(topic, -1, partitions=range(PARTITIONS))
        call = client.start_fetch(topic, 0, max_wait_ms=60_000)
        await until(lambda: client.service.fetch.held_requests == 1)
        await first.append_with(*others, batch=BATCH)
        await call.fetched()
        assert client.service.cache.counters.loaded_bytes == first.segments[0].size


async def test_a_bundle_of_which_one_partition_is_read_here_is_read_by_its_range(
    etcd, keyspace, store, topic, logs, serve
) -> None:
    first, *others = logs
    await first.append_with(*others, batch=BATCH)
    async with serve(etcd, keyspace, store) as client:
        assert bytes((await client.fetch(topic, 0)).records) == first.expected(0)
        assert registered(client) == (1, 0)
        assert client.service.cache.counters.loaded_bytes == first.segments[0].size


async def test_slices_that_are_settled_are_not_read_for_another(
    etcd, keyspace, store, topic, logs, serve
) -> None:
    first, *others = logs
    await first.append_with(*others, batch=BATCH)
    for log in others:
        await log.settle()
    async with serve(etcd, keyspace, store) as client:
        assert await all_of(client, topic) == expected(logs)
        assert registered(client) == (1, 0)


async def test_slices_with_a_long_gap_between_them_are_read_alone(
    etcd, keyspace, store, topic, logs, serve
) -> None:
    """The partition between them is not read here."""
    left, between, right, *_ = logs
    await left.append_with(between, right, batch=records(3, size=100_000))
    async with serve(etcd, keyspace, store) as client:
        ends = [(log.partition, log) for log in (left, right)]
        for partition, log in ends:
            await client.list_offsets(topic, -1, partitions=[partition])
            assert client.service.heads.known((topic.topic_id, partition)).next == log.next
        assert bytes((await client.fetch(topic, 0)).records) == left.expected(0)
        assert registered(client) == (1, 0)


async def test_slices_that_are_settled_before_the_read_are_looked_at_again(
    etcd, keyspace, store, topic, logs, serve, until, deafen
) -> None:
    """The heads that are known name a bundle that is gone."""
    first, *others = logs
    segs = await first.append_with(*others, batch=BATCH)
    async with serve(etcd, keyspace, store) as client:
        for partition in range(PARTITIONS):
            await client.list_offsets(topic, -1, partitions=[partition])
        await deafen(client)
        for log in logs:
            await log.settle()
        await store.delete(keyspace.bundle_key(segs[0].bundle))
        store.requests.clear()
        assert await all_of(client, topic) == expected(logs)
        assert client.service.reader.lost_segments == 0
        assert gets(store) == 1


async def test_a_bundle_that_is_gone_and_still_named_is_an_alarm(
    etcd, keyspace, store, topic, logs, serve
) -> None:
    first, *others = logs
    segs = await first.append_with(*others, batch=BATCH)
    await store.delete(keyspace.bundle_key(segs[0].bundle))
    async with serve(etcd, keyspace, store) as client:
        answers = await all_of(client, topic)
        assert {error for error, _ in answers} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert client.service.reader.lost_segments == PARTITIONS
        assert client.service.cache.held_bytes == 0


async def test_a_damaged_slice_is_an_alarm_and_the_others_are_served(
    etcd, keyspace, store, topic, logs, serve
) -> None:
    first, second, *others = logs
    segs = await first.append_with(second, *others, batch=BATCH)
    await second.replace_segment(segs[1], replace(segs[1], crc32c=segs[1].crc32c ^ 1))
    async with serve(etcd, keyspace, store) as client:
        answers = await all_of(client, topic)
        assert answers[0] == (ErrorCode.NONE, first.expected(0))
        assert answers[1] == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
        assert answers[2:] == expected(logs)[2:]
        assert client.service.reader.lost_segments == 1
        assert gets(store) == 2, "a damaged transfer is read once more"


async def test_a_flipped_bit_in_a_bundle_is_read_again(etcd, keyspace, store, topic, logs, serve) -> None:
    first, *others = logs
    await first.append_with(*others, batch=BATCH)
    store.plan = scripted(("get", ".kfb", Fault.BIT_FLIP))
    async with serve(etcd, keyspace, store) as client:
        assert await all_of(client, topic) == expected(logs)
        assert client.service.reader.lost_segments == 0


async def test_the_whole_buffer_counts_until_the_last_of_its_slices_is_unused(
    etcd, keyspace, store, topic, logs, serve
) -> None:
    first, *others = logs
    segs = await first.append_with(*others, batch=BATCH)
    buffer = sum(seg.size for seg in segs) + PARTITIONS * ENTRY_COST_BYTES
    async with serve(etcd, keyspace, store, cache_bytes=buffer, readahead_segments=0) as client:
        cache = client.service.cache
        assert await all_of(client, topic) == expected(logs)
        assert cache.held_bytes == buffer
        body = await client.service.fetch(client.start_fetch(topic, 0).request)
        cache._evict(0)
        assert cache.held_bytes == buffer, "one answer pins all of it"
        del body
        await first.append(BATCH)
        assert bytes((await client.fetch(topic, 5)).records) == first.expected(5)
        assert cache.held_bytes == first.segments[-1].size + ENTRY_COST_BYTES


async def test_where_memory_is_short_a_slice_is_read_alone(etcd, keyspace, store, topic, logs, serve) -> None:
    first, *others = logs
    segs = await first.append_with(*others, batch=BATCH)
    keep = segs[0].size * 3
    async with serve(etcd, keyspace, store, cache_bytes=keep, readahead_segments=0) as client:
        for partition in range(PARTITIONS):
            await client.list_offsets(topic, -1, partitions=[partition])
        assert bytes((await client.fetch(topic, 0)).records) == first.expected(0)
        assert registered(client) == (1, 0)
        assert client.service.cache.held_bytes <= keep
        assert await all_of(client, topic) == expected(logs)


async def test_the_next_bundles_are_read_ahead_for_all_partitions(
    etcd, keyspace, store, topic, logs, serve, until
) -> None:
    first, *others = logs
    for _ in range(3):
        await first.append_with(*others, batch=BATCH)
    async with serve(etcd, keyspace, store, readahead_segments=2) as client:
        await client.start_fetch(topic, *[0] * PARTITIONS, partition_max_bytes=1).fetched()
        await until(lambda: gets(store) == 3)
        for offset in (5, 10):
            await client.start_fetch(topic, *[offset] * PARTITIONS, partition_max_bytes=1).fetched()
        assert await all_of(client, topic) == expected(logs)
        assert gets(store) == 3
