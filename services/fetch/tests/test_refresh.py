"""What is answered while the watch is late or dead, and while etcd cannot be read at all.

The watch is made deaf by throwing its news away, which looks to the service like a connection that is
silently dead; reads still work. etcd behind a silent proxy is the other half.
"""

import asyncio
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from kafscale.log.heads import HEAD_FEATURES, encode_head
from kafscale.log.manifests import MANIFEST_FEATURES
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.objects import MemoryStore
from kafscale.storage.schema import SCHEMA
from kafscale.storage.topics import Topic
from kafscale.store.v1 import store_pb2
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import Fault, FaultyStore, scripted
from kafscale.testkit.proxy import FaultProxy
from kafscale.wire.errors import ErrorCode

AGAIN_S = 30.0
LATEST = -1


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
async def topic(etcd, keyspace) -> Topic:
    return await create_topic(etcd, keyspace, "t", partitions=200)


@pytest.fixture
def log(etcd, keyspace, store, topic: Topic) -> LogBuilder:
    return LogBuilder(etcd, keyspace, store, topic)


async def test_an_empty_fetch_that_does_not_wait_sees_what_was_committed_before_it(
    etcd, keyspace, store, topic, log, serve, deafen
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, 3)
        await deafen(client)
        await log.append(records(2))
        assert bytes((await client.fetch(topic, 3)).records) == log.expected(3)


async def test_changes_of_other_partitions_prove_nothing_about_one_that_is_not_waited_for(
    etcd, keyspace, store, topic, log, serve, deafen
) -> None:
    """The watch delivers in order, and may be behind: its last change can be older than the request."""
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, 3)
        await deafen(client)
        await log.append(records(2))
        heads = client.service.heads
        heads._heard_ms = heads._clock.now_ms() + 60_000
        assert bytes((await client.fetch(topic, 3)).records) == log.expected(3)


async def test_a_fetch_reads_what_its_front_door_has_acked(
    etcd, keyspace, store, topic, log, serve, deafen
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, 3)
        await deafen(client)
        await log.append(records(2))
        async with asyncio.timeout(5):
            answer = await client.fetch(topic, 3, max_wait_ms=60_000, revision=log.revision)
        assert bytes(answer.records) == log.expected(3)


async def test_a_revision_that_the_watch_has_reached_costs_no_read(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        heads, key = client.service.heads, (topic.topic_id, 0)
        await client.fetch(topic, 0)
        await log.append(records(2))
        await until(lambda: heads.revision(key) >= log.revision)
        reads = heads.reads
        call = client.start_fetch(topic, 5, max_wait_ms=60_000, revision=log.revision)
        await until(lambda: client.service.fetch.held_requests == 1)
        call.cancel()
        assert heads.reads == reads


async def test_a_client_that_has_waited_at_another_instance_costs_no_read(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, 3)
        reads = client.service.heads.reads
        answer = await client.fetch(topic, 3, max_wait_ms=-500)
        assert (answer.error_code, bytes(answer.records)) == (ErrorCode.NONE, b"")
        assert client.service.heads.reads == reads


async def test_a_revision_that_etcd_never_reached_costs_one_look_and_no_more(
    etcd, keyspace, store, topic, log, serve
) -> None:
    """A front door that saw an etcd which was since restored to an older state."""
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client, asyncio.timeout(5):
        await client.fetch(topic, 0)
        reads = client.service.heads.reads
        answer = await client.fetch(topic, 3, max_wait_ms=150, revision=1 << 60)
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, 3)
        assert client.service.heads.reads == reads + 1


async def test_an_offset_past_a_stale_end_is_not_out_of_range(
    etcd, keyspace, store, topic, log, serve, deafen
) -> None:
    """Another instance served this client up to an end that this one has not heard of."""
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, 3)
        await deafen(client)
        await log.append(records(2))
        answer = await client.fetch(topic, 5)
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, 5)


async def test_a_segment_that_retention_took_unheard_is_out_of_range_and_no_alarm(
    etcd, keyspace, store, topic, log, serve, deafen
) -> None:
    for n in range(4):
        await log.append(records(3, label=f"s{n}-"))
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, 12)
        await deafen(client)
        await log.retain_from(6)
        below = await client.fetch(topic, 3)
        assert (below.error_code, below.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 6)
        assert bytes((await client.fetch(topic, 6)).records) == log.expected(6)
        assert client.service.reader.lost_segments == 0


async def test_latest_and_epoch_ends_are_never_stale(
    etcd, keyspace, store, topic, log, serve, deafen
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        assert (await client.list_offsets(topic, LATEST)).offset == 3
        await deafen(client)
        await log.append(records(2))
        assert (await client.list_offsets(topic, LATEST)).offset == 5
        await log.append(records(2))
        assert (await client.epoch_end(topic, 1)).end_offset == 7


async def test_a_newer_epoch_than_the_known_one_is_looked_up_before_it_is_refused(
    etcd, keyspace, store, topic, log, serve, deafen
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, 0)
        await deafen(client)
        await log.claim(2)
        assert (await client.fetch(topic, 0, leader_epoch=2)).error_code == ErrorCode.NONE
        assert (await client.fetch(topic, 0, leader_epoch=3)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_an_idle_reader_on_a_dead_watch_notices_within_seconds(
    etcd, keyspace, store, topic, log, serve, deafen, monkeypatch
) -> None:
    monkeypatch.setattr("kafscale.fetch.wait.CONFIRMED_MAX_MS", 200)
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, 3)
        await deafen(client)
        await log.append(records(2))
        async with asyncio.timeout(5):
            while not (answer := await client.fetch(topic, 3, max_wait_ms=150)).records:
                pass
        assert bytes(answer.records) == log.expected(3)


async def test_refreshes_of_many_partitions_share_transactions(etcd, keyspace, store, topic, serve) -> None:
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, 0)
        heads = client.service.heads
        reads = heads.reads
        keys = [(topic.topic_id, n) for n in range(100)]
        async with asyncio.TaskGroup() as tasks:
            for key in keys:
                tasks.create_task(heads.refresh([key]))
        assert heads.reads - reads == 2  # 60 partitions fit in one
        assert all(heads.revision(key) for key in keys)


async def test_a_refresh_never_answers_for_a_request_that_came_after_it_began(
    etcd, keyspace, store, topic, log, serve, deafen, monkeypatch
) -> None:
    async with serve(etcd, keyspace, store) as client:
        heads, key = client.service.heads, (topic.topic_id, 0)
        await heads.refresh([key])
        await deafen(client)
        read, went_out, go_on = heads._read, asyncio.Event(), asyncio.Event()

        async def slow_read(keys) -> None:
            await read(keys)
            went_out.set()
            await go_on.wait()

        monkeypatch.setattr(heads, "_read", slow_read)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(heads.refresh([key]))
            await went_out.wait()
            await log.append(records(2))
            second = tasks.create_task(heads.refresh([key]))
            go_on.set()
            await second
            assert heads.known(key).next == 2


async def test_a_partition_nobody_reads_is_dropped_and_comes_back_right(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store, fetch_idle_topic_ms=1_000) as client:
        heads, key = client.service.heads, (topic.topic_id, 0)
        await client.fetch(topic, 0)
        await until(lambda: heads._watched > 0)
        assert (heads.topics_followed, heads.partitions_held) == (1, 1)
        now_ms = heads._clock.now_ms()
        heads._clock = type("Later", (), {"now_ms": lambda self: now_ms + 5_000})()
        with heads.wakeup([key]):
            heads.drop_idle()
            assert heads.partitions_held == 1, "a held request keeps it"
        heads.drop_idle()
        assert (heads.topics_followed, heads.partitions_held) == (0, 0)
        await log.append(records(2))
        assert heads.revision(key) == 0, "what the watch says of others says nothing of this one"
        assert bytes((await client.fetch(topic, 3)).records) == log.expected(3)
        await log.append(records(2))
        await until(lambda: heads.known(key).next == 7)


async def test_a_request_for_more_partitions_than_are_kept_is_answered(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store, fetch_partitions=2) as client:
        for _ in range(2):
            call = client.start_fetch(topic, *[0] * 9)
            parts = (await call.fetched()).responses[0].partitions
            assert [part.error_code for part in parts] == [ErrorCode.NONE] * 9
            assert bytes(parts[0].records) == log.expected(0)
        # The watch begins with a read of all that is held, and none of it is dropped meanwhile.
        await until(lambda: client.service.heads._following is not None)
        await client.list_offsets(topic, LATEST, partitions=[100])
        assert client.service.heads.partitions_held == 2


async def test_an_etcd_that_was_restored_to_an_older_state_is_believed(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        heads, key = client.service.heads, (topic.topic_id, 0)
        await client.fetch(topic, 0)
        lost_revision = log.revision + 1_000_000
        heads._table.learn_head(key, encode_head(replace(log.head, next=99)), lost_revision)
        heads._watched = lost_revision
        assert (await client.fetch(topic, 0)).high_watermark == 99
        assert (await client.fetch(topic, 3)).high_watermark == 3
        assert heads.resyncs >= 1  # two reads that run at once both see it
        await until(lambda: heads.revision(key) >= log.revision)
        await log.append(records(2))
        await until(lambda: heads.known(key).next == 5)


async def test_a_deleted_and_recreated_topic_is_another_log(etcd, keyspace, store, topic, log, serve) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        assert bytes((await client.fetch(topic, 0)).records) == log.expected(0)
        await log.delete_head()
        await log.remove_objects()
        again = await create_topic(etcd, keyspace, "t", epoch_floor=1)
        relog = LogBuilder(etcd, keyspace, store, again, epoch=2)
        await relog.append(records(4, label="again"))
        await client.topics.refresh()
        assert bytes((await client.fetch(again, 0)).records) == relog.expected(0)
        assert (await client.fetch(topic, 0, version=13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


class TestEtcdSilent:
    """etcd neither answers nor breaks the connection."""

    @staticmethod
    async def until_known(client, topic) -> None:
        """The partition has been read from etcd. The 100 ms for that are few for a busy machine."""
        async with asyncio.timeout(AGAIN_S):
            while (await client.fetch(topic, 0)).error_code:
                pass

    @pytest.fixture
    async def proxy(self, etcd_server):
        url = urlsplit(etcd_server.endpoint)
        async with FaultProxy(url.hostname, url.port) as proxy:
            yield proxy

    @pytest.fixture
    async def far_etcd(self, proxy):
        client = EtcdClient.connect([f"http://{proxy.address}"])
        yield client
        proxy.heal()
        await client.close()

    async def test_committed_data_is_served_and_nothing_is_claimed_about_the_end(
        self, far_etcd, proxy, keyspace, store, topic, log, serve
    ) -> None:
        await log.append(records(3))
        async with serve(far_etcd, keyspace, store, fetch_refresh_timeout_ms=100) as client:
            await self.until_known(client, topic)
            proxy.silence()
            assert bytes((await client.fetch(topic, 0)).records) == log.expected(0)
            empty = await client.fetch(topic, 3)
            assert (empty.error_code, empty.high_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 3)
            assert (await client.fetch(topic, 9)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (
                await client.fetch(topic, 0, leader_epoch=7)
            ).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            latest = await client.list_offsets(topic, LATEST)
            assert (latest.error_code, latest.offset) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
            end = await client.epoch_end(topic, 1)
            assert (end.error_code, end.end_offset) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)

    async def test_a_partition_never_seen_is_unavailable_and_not_empty(
        self, far_etcd, proxy, keyspace, store, topic, serve
    ) -> None:
        async with serve(far_etcd, keyspace, store, fetch_refresh_timeout_ms=100) as client:
            proxy.silence()
            answer = await client.fetch(topic, 0)
            assert (answer.error_code, answer.high_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    async def test_unknown_topics_do_not_queue_for_an_etcd_that_is_silent(
        self, far_etcd, proxy, keyspace, store, serve, monkeypatch
    ) -> None:
        monkeypatch.setattr("kafscale.storage.topics.READ_TIMEOUT_S", 0.5)
        stranger = Topic(name="nobody", topic_id=b"n" * 16, partitions=1)
        async with serve(far_etcd, keyspace, store) as client:
            proxy.silence()
            async with asyncio.timeout(8), asyncio.TaskGroup() as tasks:  # one after another they take 10 s
                answers = [tasks.create_task(client.fetch(stranger, 0)) for _ in range(20)]
            codes = {answer.result().error_code for answer in answers}
            assert codes == {ErrorCode.NOT_LEADER_OR_FOLLOWER}, "nothing says that the topic is unknown"

    async def test_everything_is_as_before_when_etcd_speaks_again(
        self, far_etcd, proxy, keyspace, store, topic, log, serve
    ) -> None:
        await log.append(records(3))
        async with serve(far_etcd, keyspace, store, fetch_refresh_timeout_ms=100) as client:
            await self.until_known(client, topic)
            proxy.silence()
            assert (await client.fetch(topic, 3)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            await log.append(records(2))
            proxy.heal()
            async with asyncio.timeout(20):
                while (answer := await client.fetch(topic, 3)).error_code:
                    pass
            assert bytes(answer.records) == log.expected(3)


async def test_a_head_that_a_newer_version_wrote_is_refused_and_never_guessed_at(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append(records(3))
    newer = store_pb2.Head(schema=SCHEMA + HEAD_FEATURES + 1, next=7, lso=7)
    await etcd.put(keyspace.head(topic.topic_id, 0), newer.SerializeToString())
    async with serve(etcd, keyspace, store) as client:
        answer = await client.fetch(topic, 0)
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert (await client.list_offsets(topic, LATEST)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_with_the_store_down_what_is_in_memory_is_served_and_the_rest_is_retriable(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append(records(3))
    await log.append(records(3))
    async with serve(etcd, keyspace, store, readahead_segments=0) as client:
        await client.fetch(topic, 0, partition_max_bytes=1)
        store.plan = lambda operation, key: Fault.UNAVAILABLE
        assert bytes((await client.fetch(topic, 0)).records) == log.expected(0, 2)
        answer = await client.fetch(topic, 3)
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, 6)
        assert client.service.reader.lost_segments == 0, "no alarm: the store is down, nothing is lost"
        found = await client.list_offsets(topic, 1_000 + 1)
        assert found.error_code == ErrorCode.NONE
        assert (await client.list_offsets(topic, LATEST)).offset == 6
        store.plan = lambda operation, key: None
        assert bytes((await client.fetch(topic, 3)).records) == log.expected(3)


async def test_a_store_that_hangs_ends_in_a_retriable_error(etcd, keyspace, store, topic, log, serve) -> None:
    await log.append(records(3))
    store.plan = scripted(("get", ".kfs", Fault.HOLD))
    async with serve(etcd, keyspace, store, fetch_read_timeout_ms=50) as client:
        answer = await client.fetch(topic, 0)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        async with asyncio.timeout(AGAIN_S):  # 50 ms are few for a busy machine
            while (answer := await client.fetch(topic, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                continue
        assert bytes(answer.records) == log.expected(0)


async def test_a_read_that_the_watch_overtakes_is_no_restored_etcd(
    etcd, keyspace, store, topic, log, serve, until, monkeypatch
) -> None:
    """The answer is as old as the read, and the watch goes on meanwhile."""
    await log.append(records(3))
    real, overtaken = EtcdClient.ranges, []
    async with serve(etcd, keyspace, store) as client:
        heads, key = client.service.heads, (topic.topic_id, 0)
        await client.fetch(topic, 0)
        await until(lambda: heads._following is not None)

        async def ranges(self, reads, **how):
            found = await real(self, reads, **how)
            await log.append(records(1))
            await until(lambda: heads.revision(key) >= log.revision)
            overtaken.append(found[0].revision < heads.revision(key))
            return found

        monkeypatch.setattr(EtcdClient, "ranges", ranges)
        await heads.refresh([key])
        assert overtaken == [True]
        assert (heads.resyncs, heads.known(key).next) == (0, 4)


async def test_a_manifest_that_a_newer_version_wrote_harms_its_partition_alone(
    etcd, keyspace, store, topic, log, serve
) -> None:
    other = LogBuilder(etcd, keyspace, store, topic, partition=1)
    await other.append(records(3))
    for _ in range(3):
        await log.append(records(3))
    ref = await log.checkpoint(keep=1)
    newer = store_pb2.Manifest.FromString(await store.get(ref.key))
    newer.schema = SCHEMA + MANIFEST_FEATURES + 1
    await store.put(ref.key, [newer.SerializeToString()])
    async with serve(etcd, keyspace, store) as client, asyncio.timeout(AGAIN_S):
        answer = await client.fetch(topic, 0)
        assert (answer.error_code, bytes(answer.records)) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
        assert (await client.list_offsets(topic, 1_000)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert bytes((await client.fetch(topic, 6)).records) == log.expected(6)
        response = await client.start_fetch(topic, 6, 0).fetched()
        assert bytes(response.responses[0].partitions[1].records) == other.expected(0)
