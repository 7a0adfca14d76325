"""Records that were deleted are gone for every question, also when the log starts within a segment or a batch."""

import pytest
from kafscale.log.heads import Meta
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import Topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import FaultyStore
from kafscale.wire.batches import crc32c
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Codec, Record, build_batch

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
async def topic(etcd, keyspace) -> Topic:
    return await create_topic(etcd, keyspace, "t", partitions=2)


@pytest.fixture
def log(etcd, keyspace, store, topic: Topic, as_slices: bool) -> LogBuilder:
    return LogBuilder(etcd, keyspace, store, topic, epoch=3, as_slices=as_slices)


def at(*timestamps: int) -> list[Record]:
    return [Record(timestamp=t, key=b"k", value=b"v%d" % t) for t in timestamps]


async def test_every_answer_agrees_wherever_the_log_starts(etcd, keyspace, store, topic, log, serve) -> None:
    """In a manifest, in the tail, at and within batches, and at the end; epochs 3 and 5 wrote six records each."""
    for epoch in (3, 5):
        await log.claim(epoch)
        await log.append(at(10, 20), at(30, 40))
        await log.append(at(50, 60))
    await log.checkpoint(keep=1)
    for start in range(13):
        await log.retain_from(start, delete=False)
        async with serve(etcd, keyspace, store) as client:
            earliest = await client.list_offsets(topic, EARLIEST)
            epoch = 3 if start < 6 else 5
            assert (earliest.offset, earliest.leader_epoch) == (start, epoch)
            assert (await client.list_offsets(topic, LATEST)).offset == 12
            by_time = await client.list_offsets(topic, 0)
            assert by_time.offset == (start if start < 12 else -1)
            late = await client.list_offsets(topic, 60)
            assert late.offset == next((offset for offset in (5, 11) if offset >= start), -1)
            for offset in range(13):
                answer = await client.fetch(topic, offset)
                assert (answer.high_watermark, answer.log_start_offset) == (12, start)
                assert answer.error_code == (OUT_OF_RANGE if offset < start else ErrorCode.NONE)
                assert bytes(answer.records) == (log.expected(offset) if start <= offset < 12 else b"")
            for asked, end in {3: 6, 4: 6, 5: 12}.items():
                assert (await client.epoch_end(topic, asked)).end_offset == end, "the history is never pruned"


async def test_a_log_may_start_somewhere_before_its_first_checkpoint(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append(records(4))
    assert log.meta == Meta()
    await log.retain_from(3, delete=False)
    async with serve(etcd, keyspace, store) as client:
        assert (await client.fetch(topic, 2)).error_code == OUT_OF_RANGE
        assert bytes((await client.fetch(topic, 3)).records) == log.expected(3)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
async def test_the_newest_record_is_one_that_is_left(
    etcd, keyspace, store, topic, log, serve, codec: Codec
) -> None:
    """Commit records tell the newest timestamp of a whole segment, headers that of a whole batch."""
    times = [900, 100, 300, 800, 200, 700, 700, 50]
    await log.append(at(*times[:3]), at(*times[3:5]), codec=codec)
    await log.append(at(*times[5:]), codec=codec)
    for start in range(len(times)):
        await log.retain_from(start, delete=False)
        left = times[start:]
        newest = start + left.index(max(left))
        async with serve(etcd, keyspace, store) as client:
            found = await client.list_offsets(topic, MAX_TIMESTAMP)
            assert (found.offset, found.timestamp) == (newest, times[newest]), start
    await log.retain_from(len(times), delete=False)
    async with serve(etcd, keyspace, store) as client:
        assert (await client.list_offsets(topic, MAX_TIMESTAMP)).offset == -1


async def test_a_batch_that_cannot_be_opened_counts_with_its_header(
    etcd, keyspace, store, topic, log, serve
) -> None:
    broken = bytearray(build_batch(at(500, 600), codec=Codec.ZSTD))
    broken[61] ^= 0xFF
    broken[17:21] = crc32c(memoryview(broken)[21:]).to_bytes(4, "big")
    await log.append_raw([bytes(broken), build_batch(at(100))])
    await log.retain_from(1, delete=False)
    async with serve(etcd, keyspace, store) as client:
        found = await client.list_offsets(topic, MAX_TIMESTAMP)
        assert (found.error_code, found.offset, found.timestamp) == (0, 1, 600)


async def test_objects_below_the_start_may_be_gone_and_nothing_is_lost(
    etcd, keyspace, store, topic, log, serve
) -> None:
    for n in range(4):
        await log.append(at(100 * n, 100 * n + 50))
    await log.checkpoint(keep=2)
    await log.retain_from(5)
    async with serve(etcd, keyspace, store) as client:
        assert (await client.fetch(topic, 4)).error_code == OUT_OF_RANGE
        assert bytes((await client.fetch(topic, 5)).records) == log.expected(5)
        for kind, offset in ((EARLIEST, 5), (0, 5), (LATEST, 8), (MAX_TIMESTAMP, 7)):
            assert (await client.list_offsets(topic, kind)).offset == offset, kind
        assert client.service.reader.lost_segments == 0


async def test_who_deleted_records_does_not_see_them_again_however_late_the_watch_is(
    etcd, keyspace, store, topic, log, serve, deafen
) -> None:
    await log.append(records(4))
    await log.append(records(4))
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, 2)
        await deafen(client)
        await log.retain_from(6, delete=False)
        assert (await client.fetch(topic, 2)).error_code == ErrorCode.NONE, "nobody told this reader"
        told = log.revision
        below = await client.fetch(topic, 2, log_start_revision=told)
        assert (below.error_code, below.log_start_offset) == (OUT_OF_RANGE, 6)


async def test_a_view_that_has_seen_a_commit_has_seen_the_start_that_was_moved_before_it(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    """One watch covers heads and metas, in the order of their revisions."""
    await log.append(records(4))
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, 0)
        heads, key = client.service.heads, (topic.topic_id, 0)
        reads = heads.reads
        await log.retain_from(2, delete=False)
        told = log.revision
        await log.append(records(1))
        await until(lambda: heads.revision(key) > told)
        assert (heads.known(key).log_start, heads.reads) == (2, reads)
        below = await client.fetch(topic, 1, log_start_revision=told)
        assert (below.error_code, below.log_start_offset) == (OUT_OF_RANGE, 2)


async def test_the_start_is_asked_for_once_and_not_with_every_fetch(
    etcd, keyspace, store, topic, log, serve, deafen
) -> None:
    await log.append(records(4))
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, 0)
        await deafen(client)
        await log.retain_from(2, delete=False)
        told = log.revision
        reads = client.service.heads.reads
        for _ in range(3):
            answer = await client.fetch(topic, 3, log_start_revision=told)
            assert (answer.error_code, answer.log_start_offset) == (ErrorCode.NONE, 2)
        assert client.service.heads.reads == reads + 1


async def test_the_news_of_the_watch_spare_the_question(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    await log.append(records(4))
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, 0)
        await log.retain_from(2, delete=False)
        told = log.revision
        key = (topic.topic_id, 0)
        await until(lambda: client.service.heads.revision(key) >= told)
        reads = client.service.heads.reads
        answer = await client.fetch(topic, 3, log_start_revision=told)
        assert (answer.log_start_offset, client.service.heads.reads) == (2, reads)
