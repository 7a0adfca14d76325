"""Segments in memory: read ahead, bounded, pinned by answers; and what is not the committed object is never served."""

from dataclasses import replace

import pytest
from kafscale.fetch.cache import ENTRY_COST_BYTES
from kafscale.fetch.log_table import LogTable
from kafscale.log.heads import encode_meta
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import Topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import Fault, FaultyStore, scripted
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
async def topic(etcd: EtcdClient, keyspace: Keyspace) -> Topic:
    return await create_topic(etcd, keyspace, "t", partitions=3)


@pytest.fixture
def log(etcd: EtcdClient, keyspace: Keyspace, store: FaultyStore, topic: Topic) -> LogBuilder:
    return LogBuilder(etcd, keyspace, store, topic)


@pytest.fixture
def gets(store: FaultyStore):
    """How often segments were read, by the base offset in their names."""

    def count(base: int | None = None) -> int:
        suffix = ".kfs" if base is None else f"{base:020d}.kfs"
        return sum(1 for operation, key in store.requests if operation == "get" and key.endswith(suffix))

    return count


async def test_the_next_segments_are_read_ahead_of_a_reader_who_left_some(
    etcd, keyspace, store, topic, log, serve, gets, until
) -> None:
    for n in range(6):
        await log.append(records(5, size=200, label=f"s{n}-"))
    async with serve(etcd, keyspace, store, readahead_segments=2) as client:
        await client.fetch(topic, 0, partition_max_bytes=1)
        await until(lambda: gets() == 3)
        assert [gets(base) for base in (0, 5, 10, 15)] == [1, 1, 1, 0]
        assert client.service.cache.counters.readaheads == 2
        await client.fetch(topic, 5, partition_max_bytes=1)
        await until(lambda: gets(15) == 1)
        assert gets(5) == 1


async def test_the_segment_that_a_reader_stands_in_does_not_count_as_read_ahead(
    etcd, keyspace, store, topic, log, serve, gets, until
) -> None:
    for n in range(6):
        await log.append(records(5, size=200, label=f"s{n}-"), records(5, size=200))
    async with serve(etcd, keyspace, store, readahead_segments=2) as client:
        await client.fetch(topic, 0, partition_max_bytes=1)
        await until(lambda: gets() == 3)
        assert [gets(base) for base in (0, 10, 20, 30)] == [1, 1, 1, 0]


async def test_when_memory_runs_out_half_way_the_answer_ends_there(
    etcd, keyspace, store, topic, log, serve
) -> None:
    for n in range(4):
        await log.append(records(5, size=1_000_000, label=f"s{n}-"))
    async with serve(etcd, keyspace, store, cache_bytes=0, memory_bytes=16 << 20) as client:
        answer = await client.fetch(topic, 0, partition_max_bytes=50 << 20)
        assert answer.error_code == ErrorCode.NONE
        assert bytes(answer.records) == log.expected(0, 9)


async def test_what_is_read_ahead_and_not_asked_for_takes_half_of_the_memory_at_most(
    etcd, keyspace, store, topic, log, serve, gets, until
) -> None:
    for n in range(12):
        await log.append(records(10, size=1_000, label=f"s{n}-"))
    size = log.segments[0].size + ENTRY_COST_BYTES
    async with serve(etcd, keyspace, store, cache_bytes=8 * size, readahead_segments=10) as client:
        await client.fetch(topic, 0, partition_max_bytes=1)
        assert client.service.cache.counters.readaheads == 4
        await until(lambda: gets() == 5)
        await client.fetch(topic, 10, partition_max_bytes=1)
        assert client.service.cache.counters.readaheads == 5, "one was asked for and made room for one"
        await until(lambda: gets() == 6)
        assert gets(10) == 1


async def test_what_was_read_longest_ago_goes_first(etcd, keyspace, store, topic, log, serve, gets) -> None:
    for n in range(4):
        await log.append(records(10, size=1_000, label=f"s{n}-"))
    size = log.segments[0].size + ENTRY_COST_BYTES
    async with serve(etcd, keyspace, store, cache_bytes=3 * size, readahead_segments=0) as client:
        for offset in (0, 10, 0, 20, 30, 0, 10):
            await client.fetch(topic, offset, partition_max_bytes=1)
        assert [gets(base) for base in (0, 10, 20, 30)] == [1, 2, 1, 1]


async def test_memory_holds_no_more_than_its_budget_however_much_is_read(
    etcd, keyspace, store, topic, log, serve
) -> None:
    for n in range(20):
        await log.append(records(10, size=1_000, label=f"s{n}-"))
    keep = 60_000
    async with serve(etcd, keyspace, store, cache_bytes=keep, readahead_segments=4) as client:
        cache = client.service.cache
        for offset in range(0, log.next, 10):
            answer = await client.fetch(topic, offset, partition_max_bytes=25_000)
            assert bytes(answer.records) == log.expected(offset, offset + 19)
            assert cache.held_bytes <= keep
        assert cache.counters.evictions > 0


async def test_an_answer_under_way_pins_its_segments_and_its_end_frees_them(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append(records(10, size=1_000))
    async with serve(etcd, keyspace, store, cache_bytes=0) as client:
        body = await client.service.fetch(client.start_fetch(topic, 0).request)
        assert client.service.cache.held_bytes > 10_000
        assert log.expected(0) in b"".join(body)
        del body
        # The other answer, the one that went out by itself, is gone as well.
        assert bytes((await client.fetch(topic, 0)).records) == log.expected(0)
        assert client.service.cache.held_bytes == 0


async def test_when_answers_hold_all_memory_a_read_is_refused_with_a_retriable_code(
    etcd, keyspace, store, topic, log, serve
) -> None:
    second = LogBuilder(etcd, keyspace, store, topic, 1)
    await log.append(records(10, size=1_000_000))
    await second.append(records(10, size=1_000_000))
    async with serve(etcd, keyspace, store, cache_bytes=0, memory_bytes=16 << 20) as client:
        held = await client.service.fetch(client.start_fetch(topic, 0).request)
        response = await client.start_fetch(topic, 10, 0).fetched()
        assert response.responses[0].partitions[1].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.service.cache.counters.refused == 1
        del held
        response = await client.start_fetch(topic, 10, 0).fetched()
        assert bytes(response.responses[0].partitions[1].records) == second.expected(0)


async def test_a_flipped_bit_is_read_again_and_never_served(etcd, keyspace, store, topic, log, serve) -> None:
    await log.append(records(5))
    async with serve(etcd, keyspace, store) as client:
        store.plan = scripted(("get", ".kfs", Fault.BIT_FLIP))
        assert bytes((await client.fetch(topic, 0)).records) == log.expected(0)
        assert client.service.cache.counters.corrupt == 1
        assert client.service.reader.lost_segments == 0


@pytest.mark.parametrize("fault", [Fault.BIT_FLIP, Fault.TRUNCATE])
async def test_an_object_that_stays_corrupt_is_an_alarm_and_a_retriable_error(
    etcd, keyspace, store, topic, log, serve, fault: Fault
) -> None:
    await log.append(records(5))
    await log.append(records(5))
    store.plan = lambda operation, key: fault if operation == "get" and key.endswith("5.kfs") else None
    async with serve(etcd, keyspace, store) as client:
        # The intact segment before it is served without it.
        assert bytes((await client.fetch(topic, 0)).records) == log.expected(0, 4)
        answer = await client.fetch(topic, 5)
        assert (answer.error_code, len(answer.records)) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
        assert client.service.reader.lost_segments == 1
        assert client.service.cache.held_bytes < 10_000


@pytest.mark.parametrize("index", ["intact", "missing", "rubbish", "another segment's"])
async def test_a_segment_of_many_batches_is_searched_by_its_index_and_without_a_good_one_by_walking(
    etcd, keyspace, store, topic, log, serve, monkeypatch, index: str
) -> None:
    monkeypatch.setattr("kafscale.fetch.loads.INDEX_WORTH_BATCHES", 2)
    await log.append(records(150), records(120), records(40), records(30))
    key = keyspace.index_key(topic.name, 0, 0)
    if index == "missing":
        await store.delete(key)
    elif index == "rubbish":
        await store.put(key, [b"rubbish"])
    elif index != "intact":
        await log.append(records(120), records(130), records(70))
        await store.put(key, [await store.get(keyspace.index_key(topic.name, 0, 340))])
    async with serve(etcd, keyspace, store) as client:
        for offset in (0, 149, 150, 269, 270, 309, 310, 339):
            answer = await client.fetch(topic, offset, partition_max_bytes=1)
            assert bytes(answer.records) == log.expected(offset, offset), offset
        assert ("get", key) in store.requests
        assert client.service.cache.counters.corrupt == (index != "intact")


async def test_a_replaced_object_is_explained_by_newer_metadata(
    etcd, keyspace, store, topic, log, serve
) -> None:
    """The head that is known names an etag that is gone; etcd names the new one."""
    seg = await log.append(records(5))
    async with serve(etcd, keyspace, store) as client:
        heads = client.service.heads
        assert (await client.fetch(topic, 5)).error_code == ErrorCode.NONE
        stale = heads.known
        await log.remove_objects()
        log.batches.clear()
        rewritten = await log.upload([build_batch(records(1, label="again"))] * 5, base=0)
        old = stale((topic.topic_id, 0))
        heads.known = lambda key: old if heads.refreshes == refreshes else stale(key)
        refreshes = heads.refreshes
        await log.replace_segment(seg, rewritten)
        answer = await client.fetch(topic, 0)
        assert bytes(answer.records) == log.expected(0)
        assert heads.refreshes == refreshes + 1
        assert client.service.reader.lost_segments == 0


async def test_an_object_that_etcd_still_names_but_is_gone_is_an_alarm(
    etcd, keyspace, store, topic, log, serve
) -> None:
    seg = await log.append(records(5))
    await store.delete(log.segment_key(seg))
    async with serve(etcd, keyspace, store) as client:
        answer = await client.fetch(topic, 0)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.service.reader.lost_segments == 1
        assert client.service.heads.refreshes >= 1


async def test_an_overwritten_object_is_an_alarm_and_is_not_served(
    etcd, keyspace, store, topic, log, serve
) -> None:
    seg = await log.append(records(5))
    await store.put(log.segment_key(seg), [b"something else"])
    async with serve(etcd, keyspace, store) as client:
        answer = await client.fetch(topic, 0)
        assert (answer.error_code, len(answer.records)) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
        assert client.service.reader.lost_segments == 1


async def test_the_other_half_of_a_checkpoint_lists_segments_twice_and_serves_them_once(
    etcd, keyspace, store, topic, log, serve, monkeypatch
) -> None:
    for n in range(4):
        await log.append(records(3, label=f"s{n}-"))
    await log.checkpoint(keep=3)
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, 12)
        heads, key = client.service.heads, (topic.topic_id, 0)
        with monkeypatch.context() as patch:
            patch.setattr(LogTable, "learn_head", lambda self, *known: None)
            await log.checkpoint(keep=1)
            with heads.wakeup([key]) as wakeup:
                while heads.known(key).meta.manifest_end != 9:
                    wakeup.clear()
                    await wakeup.wait(1_000)
        assert heads.known(key).tail_start == 3
        for offset in range(12):
            assert bytes((await client.fetch(topic, offset)).records) == log.expected(offset)


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("keep", [0, 1])
async def test_offsets_that_no_manifest_lists_are_an_alarm_and_are_never_passed_over(
    etcd, keyspace, store, topic, log, serve, lost: int, keep: int
) -> None:
    """A meta that lost one of its manifests; nothing that is read again shows it."""
    for n in range(3):
        await log.append([Record(timestamp=100 * n + at, value=b"v") for at in range(3)])
        await log.checkpoint()
    if keep:
        await log.append([Record(timestamp=300, value=b"v")] * 3)
    hole = range(3 * lost, 3 * lost + 3)
    left = tuple(chunk for chunk in log.meta.chunks if chunk.first != hole.start)
    damaged = replace(log.meta, chunks=left)
    await etcd.put(keyspace.meta(topic.topic_id, 0), encode_meta(damaged))
    async with serve(etcd, keyspace, store) as client:
        for offset in range(log.next):
            answer = await client.fetch(topic, offset)
            if offset in hole:
                assert (answer.error_code, bytes(answer.records)) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
            else:
                last = hole.start - 1 if offset < hole.start else log.next - 1
                assert bytes(answer.records) == log.expected(offset, last)
        assert client.service.reader.lost_segments == len(hole)
        for timestamp in (100 * lost + 1, 100 * lost + 50, 1_000):
            found = await client.list_offsets(topic, timestamp)
            assert (found.error_code, found.offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
