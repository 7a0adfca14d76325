"""Held requests: woken by commits, answered at their deadline, freed when nobody waits for them."""

import asyncio
from dataclasses import replace

import pytest
from kafscale.storage.keys import prefix_end
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import Topic, TopicState, encode_topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import Fault, FaultyStore, scripted
from kafscale.wire.errors import ErrorCode


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
async def topic(etcd, keyspace) -> Topic:
    return await create_topic(etcd, keyspace, "t", partitions=2)


@pytest.fixture
def log(etcd, keyspace, store, topic: Topic) -> LogBuilder:
    return LogBuilder(etcd, keyspace, store, topic)


async def test_a_commit_wakes_every_reader_and_its_segment_is_read_once(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store, readahead_segments=0) as client:
        calls = [client.start_fetch(topic, 3, max_wait_ms=60_000) for _ in range(20)]
        await until(lambda: client.service.fetch.held_requests == 20)
        store.requests.clear()
        reads = client.service.heads.reads
        await log.append(records(2, label="new"))
        async with asyncio.timeout(5):
            answers = [(await call.fetched()).responses[0].partitions[0] for call in calls]
        assert {bytes(answer.records) for answer in answers} == {log.expected(3)}
        assert [answer.high_watermark for answer in answers] == [5] * 20
        assert [key for operation, key in store.requests if operation == "get"] == [
            keyspace.segment_key("t", 0, 3)
        ]
        assert client.service.heads.reads == reads, "woken by the watch, not by asking"
        assert client.service.fetch.held_requests == 0


async def test_a_commit_to_any_of_its_partitions_wakes_a_reader(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    other = LogBuilder(etcd, keyspace, store, topic, 1)
    async with serve(etcd, keyspace, store) as client:
        call = client.start_fetch(topic, 0, 0, max_wait_ms=60_000)
        await until(lambda: client.service.fetch.held_requests == 1)
        await other.append(records(2))
        async with asyncio.timeout(5):
            first, second = (await call.fetched()).responses[0].partitions
        assert (first.high_watermark, second.high_watermark) == (0, 2)
        assert bytes(second.records) == other.expected(0)


async def test_less_than_min_bytes_is_held_until_more_comes(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    await log.append(records(3))
    size = len(log.expected(0))
    async with serve(etcd, keyspace, store) as client:
        call = client.start_fetch(topic, 0, max_wait_ms=60_000, min_bytes=2 * size)
        await until(lambda: client.service.fetch.held_requests == 1)
        assert client.service.cache.held_bytes == 0, "what is not enough is not read yet"
        await log.append(records(3))
        async with asyncio.timeout(5):
            answer = (await call.fetched()).responses[0].partitions[0]
        assert bytes(answer.records) == log.expected(0)


async def test_a_commit_that_is_not_enough_leaves_the_reader_held(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    await log.append(records(3))
    size = len(log.expected(0))
    async with serve(etcd, keyspace, store) as client:
        heads, key = client.service.heads, (topic.topic_id, 0)
        call = client.start_fetch(topic, 0, max_wait_ms=60_000, min_bytes=4 * size)
        for _ in range(2):
            await until(lambda: client.service.fetch.held_requests == 1)
            await log.append(records(3))
            await until(lambda: heads.known(key).next == log.next)
        await until(lambda: client.service.fetch.held_requests == 1)
        await log.append(records(3))
        async with asyncio.timeout(5):
            assert bytes((await call.fetched()).responses[0].partitions[0].records) == log.expected(0)


async def test_min_bytes_count_from_the_batch_of_the_offset_and_not_from_its_segment(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    await log.append(*[records(3) for _ in range(10)])
    size = len(log.batches[0].data)
    async with serve(etcd, keyspace, store, cache_bytes=0) as client:
        call = client.start_fetch(topic, 27, max_wait_ms=60_000, min_bytes=2 * size)
        await until(lambda: client.service.fetch.held_requests == 1)
        assert client.service.cache.counters.loads == 1
        assert client.service.cache.held_bytes == 0, "a held request pins nothing"
        await log.append(records(3))
        async with asyncio.timeout(5):
            assert bytes((await call.fetched()).responses[0].partitions[0].records) == log.expected(27)


async def test_min_bytes_beyond_what_the_limits_let_in_do_not_hold_a_full_answer(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append(records(3, size=500), records(3, size=500))
    async with serve(etcd, keyspace, store) as client:
        async with asyncio.timeout(5):
            answer = await client.fetch(
                topic, 0, max_wait_ms=60_000, min_bytes=1 << 20, partition_max_bytes=2_000
            )
        assert bytes(answer.records) == log.expected(0, 2)


async def test_at_its_deadline_a_reader_gets_what_there_is(etcd, keyspace, store, topic, log, serve) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        empty = await client.fetch(topic, 3, max_wait_ms=150)
        assert (empty.error_code, empty.high_watermark, len(empty.records)) == (0, 3, 0)
        some = await client.fetch(topic, 0, max_wait_ms=50, min_bytes=1 << 20)
        assert bytes(some.records) == log.expected(0)


async def test_an_error_in_one_partition_ends_the_wait_of_all(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client, asyncio.timeout(5):
        response = await client.start_fetch(topic, 3, 99, max_wait_ms=60_000).fetched()
        assert [part.error_code for part in response.responses[0].partitions] == [
            ErrorCode.NONE,
            ErrorCode.OFFSET_OUT_OF_RANGE,
        ]


async def test_a_new_owner_does_not_disturb_a_held_reader(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    """Else every consumer would read the metadata after each claim, and franz-go may wait for five seconds first."""
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        call = client.start_fetch(topic, 3, max_wait_ms=60_000, leader_epoch=1)
        await until(lambda: client.service.fetch.held_requests == 1)
        await log.claim(2)
        await log.append(records(2))
        async with asyncio.timeout(5):
            answer = (await call.fetched()).responses[0].partitions[0]
        assert (answer.error_code, bytes(answer.records)) == (ErrorCode.NONE, log.expected(3))


async def test_retention_past_a_held_reader_ends_its_wait(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        call = client.start_fetch(topic, 2, max_wait_ms=60_000, min_bytes=1 << 20)
        await until(lambda: client.service.fetch.held_requests == 1)
        await log.retain_from(3)
        async with asyncio.timeout(5):
            answer = (await call.fetched()).responses[0].partitions[0]
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 3)


async def test_a_cancelled_request_frees_its_wait(etcd, keyspace, store, topic, log, serve, until) -> None:
    async with serve(etcd, keyspace, store) as client:
        call = client.start_fetch(topic, 0, max_wait_ms=60_000)
        await until(lambda: client.service.fetch.held_requests == 1)
        call.cancel()
        await until(lambda: client.service.fetch.held_requests == 0)
        await until(lambda: (topic.topic_id, 0) not in client.service.heads._table._listeners)
        await log.append(records(1))
        assert not call.sink.answered.done()


async def test_a_cancel_while_a_segment_is_read_frees_its_memory(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    await log.append(records(3))
    store.plan = scripted(("get", ".kfs", Fault.HOLD))
    async with serve(etcd, keyspace, store, cache_bytes=0) as client:
        call = client.start_fetch(topic, 0)
        await until(lambda: client.service.cache.held_bytes > 0)
        call.cancel()
        store.release()
        await until(lambda: client.service.cache.held_bytes == 0)


async def test_past_its_bound_a_request_is_throttled_and_not_held(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    async with serve(etcd, keyspace, store, fetch_held_requests=2) as client:
        calls = [client.start_fetch(topic, 0, max_wait_ms=60_000) for _ in range(2)]
        await until(lambda: client.service.fetch.held_requests == 2)
        response = await client.start_fetch(topic, 0, max_wait_ms=60_000).fetched()
        assert response.throttle_time_ms > 0
        assert len(response.responses[0].partitions[0].records) == 0
        await log.append(records(1))
        for call in calls:
            assert (await call.fetched()).throttle_time_ms == 0


async def test_a_drain_answers_what_is_held_and_holds_nothing_more(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    async with serve(etcd, keyspace, store) as client, asyncio.timeout(10):
        call = client.start_fetch(topic, 0, max_wait_ms=60_000)
        await until(lambda: client.service.fetch.held_requests == 1)
        client.service.fetch.drain()
        assert (await call.fetched()).responses[0].partitions[0].error_code == ErrorCode.NONE
        assert (await client.fetch(topic, 0, max_wait_ms=60_000)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("known", [True, False])
async def test_a_held_fetch_of_a_topic_that_is_deleted_hears_so(
    etcd, keyspace, store, topic, log, serve, until, monkeypatch, known: bool
) -> None:
    """Its log is gone, and an offset that is out of range of nothing would reset the reader. The watch of topics may
    be later than the watch of logs: then the topics are read."""
    await log.append(records(5))
    async with serve(etcd, keyspace, store) as client:
        view = client.topics.view
        call = client.start_fetch(topic, 5, max_wait_ms=60_000)
        await until(lambda: client.service.fetch.held_requests == 1)
        with monkeypatch.context() as patch:
            if not known:
                patch.setattr(view, "_apply", lambda *_: None)
            deleting = replace(topic, state=TopicState.DELETING)
            put = await etcd.put(keyspace.topic(topic.name), encode_topic(deleting))
            if known:
                await client.topics.wait_revision(put.revision, 5.0)
            for prefix in (keyspace.heads_prefix(topic.topic_id), keyspace.metas_prefix(topic.topic_id)):
                await etcd.delete(prefix, range_end=prefix_end(prefix))
            async with asyncio.timeout(10):
                (answer,) = (await call.fetched()).responses[0].partitions
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_offset_of_a_partition_that_was_never_written_is_out_of_range(
    etcd, keyspace, store, topic, serve
) -> None:
    async with serve(etcd, keyspace, store) as client, asyncio.timeout(10):
        for _ in range(3):
            assert (await client.fetch(topic, 5)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
