"""Fetch answers exactly the committed bytes, from the batch that holds the offset on, within its limits."""

from dataclasses import replace

import pytest
from kafscale.fetch.handlers.fetch import session_error
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import Topic, TopicState, encode_topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import FaultyStore
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Codec, build_batch, split_batches
from kafscale.wire.schema import fetch as api

LATEST = -1


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
async def topic(etcd: EtcdClient, keyspace: Keyspace) -> Topic:
    return await create_topic(etcd, keyspace, "t", partitions=3)


@pytest.fixture
def log(
    etcd: EtcdClient, keyspace: Keyspace, store: FaultyStore, topic: Topic, as_slices: bool
) -> LogBuilder:
    return LogBuilder(etcd, keyspace, store, topic, as_slices=as_slices)


@pytest.fixture
def gets(store: FaultyStore):
    """How often segments and slices were read."""

    def count() -> int:
        data = (".kfs", ".kfb")
        return sum(1 for operation, key in store.requests if operation == "get" and key.endswith(data))

    return count


async def test_a_fetch_in_the_middle_of_a_batch_returns_the_whole_batch(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append(records(5), records(5), records(5))
    async with serve(etcd, keyspace, store) as client:
        for offset in range(15):
            answer = await client.fetch(topic, offset)
            assert answer.error_code == ErrorCode.NONE
            assert bytes(answer.records) == log.expected(offset)
            assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (15, 15, 0)


async def test_fifty_segments_are_joined_in_one_answer_and_read_once_each(
    etcd, keyspace, store, topic, log, serve, gets
) -> None:
    for n in range(50):
        await log.append(records(2, label=f"s{n}-"))
    async with serve(etcd, keyspace, store) as client:
        answer = await client.fetch(topic, 1)
        assert bytes(answer.records) == log.expected(0)
        assert gets() == 50
        assert bytes((await client.fetch(topic, 37)).records) == log.expected(36)
        assert gets() == 50


async def test_three_thousand_small_segments_are_read_in_few_answers(
    etcd, keyspace, store, topic, log, serve
) -> None:
    """Their list stands in manifests, as after a restart."""
    for chunk in range(100):
        segs = []
        for _ in range(30):
            seg = await log.upload(
                [build_batch(records(1, label=f"{chunk}-"))], base=log.next if not segs else segs[-1].end
            )
            segs.append(seg)
        await log.commit(segs)
        await log.checkpoint()
    async with serve(etcd, keyspace, store, fetch_join_segments=512) as client:
        offset, answers, seen = 0, 0, []
        while offset < log.next:
            answer = await client.fetch(topic, offset)
            seen.append(bytes(answer.records))
            answers += 1
            offset = _end(seen[-1])
        assert b"".join(seen) == log.expected(0)
        assert answers == -(-3_000 // 512)


def _end(record_set: bytes) -> int:
    return split_batches(memoryview(record_set))[-1][0].last_offset + 1


async def test_an_answer_joins_manifests_and_tail_without_a_seam(
    etcd, keyspace, store, topic, log, serve
) -> None:
    for n in range(12):
        await log.append(records(3, label=f"s{n}-"))
        if n in (3, 7):
            await log.checkpoint(keep=1)
    async with serve(etcd, keyspace, store) as client:
        for offset in range(log.next):
            assert bytes((await client.fetch(topic, offset)).records) == log.expected(offset), offset


async def test_partition_max_bytes_is_soft_for_the_first_batch_and_hard_for_the_rest(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append(records(5, size=100), records(5, size=100))
    await log.append(records(5, size=100))
    first, second = len(log.batches[0].data), len(log.batches[1].data)
    async with serve(etcd, keyspace, store) as client:
        for limit, batches in [
            (0, 1), (1, 1), (first, 1), (first + second - 1, 1), (first + second, 2), (1 << 20, 3),
        ]:  # fmt: skip
            answer = await client.fetch(topic, 0, partition_max_bytes=limit)
            assert bytes(answer.records) == b"".join(b.data for b in log.batches[:batches]), limit


async def test_the_response_limit_spans_partitions_and_lets_one_batch_through(
    etcd, keyspace, store, topic, log, serve
) -> None:
    second = LogBuilder(etcd, keyspace, store, topic, 1)
    third = LogBuilder(etcd, keyspace, store, topic, 2)
    await second.append(records(5, size=100))
    await third.append(records(5, size=100))
    size = len(second.batches[0].data)
    async with serve(etcd, keyspace, store) as client:
        for limit, sizes in [(1, [0, size, 0]), (2 * size - 1, [0, size, 0]), (2 * size, [0, size, size])]:
            response = await client.start_fetch(topic, 0, 0, 0, max_bytes=limit).fetched()
            parts = response.responses[0].partitions
            assert [len(part.records) for part in parts] == sizes, limit
            assert [part.partition_index for part in parts] == [0, 1, 2]


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_version_answers_its_own_layout(
    etcd, keyspace, store, topic, log, serve, version
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        response = await client.start_fetch(topic, 0, 0, version=version).fetched()
        answered = response.responses[0]
        assert (answered.topic == topic.name) == (version < 13)
        assert (answered.topic_id == topic.topic_id) == (version >= 13)
        full, empty = answered.partitions
        assert bytes(full.records) == log.expected(0)
        assert full.high_watermark == full.last_stable_offset == 3
        assert empty.records is not None
        assert len(empty.records) == 0
        assert (empty.error_code, empty.high_watermark) == (0, 0)


async def test_read_committed_has_an_empty_list_of_aborted_transactions_and_stops_at_the_stable_offset(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        committed = await client.fetch(topic, 0, isolation_level=1)
        assert committed.aborted_transactions == []
        assert bytes(committed.records) == log.expected(0)
        assert (await client.fetch(topic, 0)).aborted_transactions is None


@pytest.mark.parametrize("offset", [-1, -2, 4, 1 << 40])
async def test_only_offsets_outside_the_log_are_out_of_range(
    etcd, keyspace, store, topic, log, serve, offset: int
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        answer = await client.fetch(topic, offset, max_wait_ms=5_000)
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert client.errors == [ErrorCode.OFFSET_OUT_OF_RANGE], "counted once"
        assert len(answer.records) == 0
        assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (3, 3, 0)


async def test_the_end_of_the_log_is_an_empty_success(etcd, keyspace, store, topic, log, serve) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        answer = await client.fetch(topic, 3)
        assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 3, 3)
        assert answer.records is not None
        assert len(answer.records) == 0


async def test_a_partition_nobody_has_claimed_is_an_empty_log(etcd, keyspace, store, topic, serve) -> None:
    async with serve(etcd, keyspace, store) as client:
        answer = await client.fetch(topic, 0)
        assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (0, 0, 0)


async def test_unknown_topics_and_partitions_are_named_so(etcd, keyspace, store, topic, serve) -> None:
    stranger = Topic(name="nobody", topic_id=b"n" * 16, partitions=1)
    async with serve(etcd, keyspace, store) as client:
        by_name = await client.fetch(stranger, 0)
        assert by_name.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (by_name.high_watermark, by_name.last_stable_offset) == (-1, -1)
        by_id = await client.fetch(stranger, 0, version=13)
        assert by_id.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        response = await client.start_fetch(topic, 0, 0, 0, 0).fetched()
        codes = [part.error_code for part in response.responses[0].partitions]
        assert codes == [0, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_topic_that_is_being_deleted_is_unknown_already(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        await etcd.put(keyspace.topic("t"), encode_topic(replace(topic, state=TopicState.DELETING)))
        await client.topics.refresh()
        assert (await client.fetch(topic, 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await client.fetch(topic, 0, version=13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_topic_made_a_moment_ago_is_found(etcd, keyspace, store, serve) -> None:
    async with serve(etcd, keyspace, store) as client:
        fresh = await create_topic(etcd, keyspace, "fresh")
        assert (await client.fetch(fresh, 0)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("held", "code"), [(7, 0), (5, 0), (4, 74), (0, 74), (8, 75), (-1, 0)])
async def test_an_epoch_is_refused_that_is_of_an_earlier_topic_or_of_the_future(
    etcd, keyspace, store, serve, held: int, code: int
) -> None:
    topic = await create_topic(etcd, keyspace, "made-again", epoch_floor=4)
    log = LogBuilder(etcd, keyspace, store, topic, epoch=5)
    await log.append(records(3))
    await log.claim(7)
    async with serve(etcd, keyspace, store) as client:
        answer = await client.fetch(topic, 0, version=9, leader_epoch=held)
        assert answer.error_code == code
        assert bool(answer.records) == (code == 0)
        assert (await client.list_offsets(topic, LATEST, leader_epoch=held)).error_code == code
        assert (await client.epoch_end(topic, 5, leader_epoch=held)).error_code == code


async def test_an_epoch_of_an_earlier_topic_is_refused_before_the_first_claim(
    etcd, keyspace, store, serve
) -> None:
    topic = await create_topic(etcd, keyspace, "made-again", epoch_floor=4)
    async with serve(etcd, keyspace, store) as client:
        answer = await client.fetch(topic, 3, version=9, leader_epoch=4)
        assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("version", [4, 9, 10])
async def test_zstd_is_served_to_all_that_read_record_batches(
    etcd, keyspace, store, topic, log, serve, version: int
) -> None:
    await log.append(records(3))
    await log.append(records(3), codec=Codec.ZSTD)
    async with serve(etcd, keyspace, store) as client:
        for offset in (0, 3):
            answer = await client.fetch(topic, offset, version=version)
            assert (answer.error_code, bytes(answer.records)) == (0, log.expected(offset))


@pytest.mark.parametrize(
    ("session", "code"), [((0, 0), 0), ((0, -1), 0), ((9, 0), 0), ((9, -1), 0), ((9, 3), 70)]
)
async def test_no_session_is_ever_granted_or_believed(
    etcd, keyspace, store, topic, log, serve, session: tuple[int, int], code: int
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        response = await client.start_fetch(topic, 0, session=session).fetched()
        assert (response.session_id, response.error_code) == (0, code)
        assert bool(response.responses) == (code == 0)


async def test_retention_moves_the_start_and_what_is_below_is_out_of_range(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    for n in range(4):
        await log.append(records(3, label=f"s{n}-"))
    await log.checkpoint(keep=1)
    async with serve(etcd, keyspace, store) as client:
        assert bytes((await client.fetch(topic, 0)).records) == log.expected(0)
        await log.retain_from(6)
        key = (topic.topic_id, 0)
        await until(lambda: client.service.heads.known(key).log_start == 6)
        below = await client.fetch(topic, 5)
        assert (below.error_code, below.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 6)
        assert bytes((await client.fetch(topic, 6)).records) == log.expected(6)


async def test_a_malformed_body_fails_its_request_alone(etcd, keyspace, store, topic, log, serve) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        call = client.send(ApiKey.FETCH, 11, [b"\xff" * 9])
        await call.sink.answered
        assert call.sink.status == ReplyStatus.FAILED
        assert bytes((await client.fetch(topic, 0)).records) == log.expected(0)


async def test_a_request_for_nothing_is_answered_at_once(etcd, keyspace, store, topic, serve) -> None:
    async with serve(etcd, keyspace, store) as client:
        body = api.encode_request(api.FetchRequest(max_wait_ms=60_000, min_bytes=1), 12)
        response = await client.send(ApiKey.FETCH, 12, body).fetched()
        assert (response.error_code, response.responses) == (0, [])


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_is_served_whatever_id_it_closes(epoch: int) -> None:
    assert session_error(epoch) is ErrorCode.NONE


@pytest.mark.parametrize("epoch", [1, 2, 2**31 - 1, -2])
def test_an_incremental_request_never_finds_its_session(epoch: int) -> None:
    assert session_error(epoch) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
