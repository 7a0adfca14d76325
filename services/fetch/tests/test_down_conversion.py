"""Fetch 0-3: batches are converted to message sets, and ListOffsets 0 as lists."""

import asyncio
import threading
from dataclasses import replace

import pytest
from kafscale.fetch import down_conversion
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import Topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import FaultyStore
from kafscale.wire.batches import pack_batch
from kafscale.wire.buffers import Steps
from kafscale.wire.errors import ErrorCode
from kafscale.wire.message_sets import message_sets_of, messages_in
from kafscale.wire.records import Codec, Record, build_batch, read_batch_header
from kafscale.wire.schema.fetch import FetchResponsePartition

LATEST, EARLIEST, FAR_AHEAD = -1, -2, 1 << 60
OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
async def topic(etcd: EtcdClient, keyspace: Keyspace) -> Topic:
    return await create_topic(etcd, keyspace, "t", partitions=3)


@pytest.fixture
def log(etcd: EtcdClient, keyspace: Keyspace, store: FaultyStore, topic: Topic) -> LogBuilder:
    return LogBuilder(etcd, keyspace, store, topic)


def converted(answer: FetchResponsePartition) -> list[tuple[int, int, bytes | None]]:
    assert answer.error_code == ErrorCode.NONE
    message_set = bytes(answer.records)
    return [(r.offset, r.timestamp, r.value) for r in messages_in(message_set)] if message_set else []


def at(*timestamps: int) -> list[Record]:
    return [Record(timestamp=t, key=b"k", value=b"v%d" % t) for t in timestamps]


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("codec", OLD_CODECS)
async def test_old_versions_get_message_sets_of_their_magic(
    etcd, keyspace, store, topic, log, serve, version: int, codec: Codec
) -> None:
    await log.append(at(100, 110), at(120), codec=codec)
    await log.append(at(130), codec=codec)
    async with serve(etcd, keyspace, store) as client:
        answer = await client.fetch(topic, 0, version=version)
        assert bytes(answer.records)[16] == (1 if version >= 2 else 0)
        times = [100, 110, 120, 130] if version >= 2 else [-1] * 4
        assert converted(answer) == list(
            zip(range(4), times, (b"v100", b"v110", b"v120", b"v130"), strict=True)
        )
        assert answer.high_watermark == 4
        from_the_middle = converted(await client.fetch(topic, 1, version=version))
        assert [offset for offset, _, _ in from_the_middle] == list(range(codec is Codec.NONE, 4))
        assert bytes((await client.fetch(topic, 4, version=version)).records) == b""
        assert bytes((await client.fetch(topic, 0, version=4)).records) == log.expected(0)


@pytest.mark.parametrize("version", range(4))
async def test_every_partition_gets_its_first_batch_whole(
    etcd, keyspace, store, topic, log, serve, version: int
) -> None:
    """Told, a batch of small records is several times as large: limits that it met before do not stop it."""
    other = LogBuilder(etcd, keyspace, store, topic, partition=1)
    for each in (log, other):
        for _ in range(3):
            await each.append([Record(timestamp=1, value=b"v") for _ in range(20)])
    limit = len(log.expected(0)) // 3
    async with serve(etcd, keyspace, store) as client:
        call = client.start_fetch(topic, 0, 0, version=version, partition_max_bytes=limit)
        parts = (await call.fetched()).responses[0].partitions
        assert [len(converted(part)) for part in parts] == [20, 20]
        assert all(len(bytes(part.records)) > limit for part in parts)


async def test_an_answer_is_bounded_by_its_limit_and_one_batch(
    etcd, keyspace, store, topic, log, serve, monkeypatch
) -> None:
    other = LogBuilder(etcd, keyspace, store, topic, partition=1)
    for each in (log, other):
        await each.append(*([records(10)] * 5))
    one = len(log.expected(0)) // 5
    monkeypatch.setattr("kafscale.fetch.handlers.fetch.CONVERTED_BYTES_MAX", one)
    async with serve(etcd, keyspace, store) as client:
        parts = (await client.start_fetch(topic, 0, 0, version=0).fetched()).responses[0].partitions
        assert [len(converted(part)) for part in parts] == [10, 0]


class Large:
    def __init__(self) -> None:
        self.begun = 0
        self.free = threading.Event()

    def message_sets_of(self, *args: object, **options: object) -> Steps[list[bytes]]:
        if "records_max" not in options:
            self.begun += 1
            while not self.free.is_set():
                yield
        return (yield from message_sets_of(*args, **options))


@pytest.fixture
def large(monkeypatch) -> Large:
    """A batch of more than one record is large; its conversion goes on until `free` is set."""
    monkeypatch.setattr(down_conversion, "ORDINARY_RECORDS", 1)
    large = Large()
    monkeypatch.setattr(down_conversion, "message_sets_of", large.message_sets_of)
    return large


async def test_large_batches_are_converted_one_at_a_time_and_ordinary_readers_pass_them(
    etcd, keyspace, store, topic, log, serve, until, large
) -> None:
    await log.append(at(1, 2, 3))
    other = LogBuilder(etcd, keyspace, store, topic, partition=1)
    await other.append(at(1))
    async with serve(etcd, keyspace, store) as client, asyncio.timeout(60):
        leaves = client.start_fetch(topic, 0, version=1)
        await until(lambda: large.begun == 1)
        stays = [client.start_fetch(topic, 0, version=1) for _ in range(2)]
        for _ in range(3):
            _, ordinary = (await client.start_fetch(topic, 3, 0, version=1).fetched()).responses[0].partitions
            assert len(converted(ordinary)) == 1
        assert large.begun == 1
        leaves.cancel()
        await until(lambda: large.begun == 2)
        large.free.set()
        for call in stays:
            (answer,) = (await call.fetched()).responses[0].partitions
            assert len(converted(answer)) == 3
        assert large.begun == 3


async def test_a_reader_that_waits_too_long_behind_large_batches_gets_a_retriable_error(
    etcd, keyspace, store, topic, log, serve, until, large, monkeypatch
) -> None:
    monkeypatch.setattr(down_conversion, "LARGE_WAIT_S", 0.2)
    await log.append(at(1, 2, 3))
    async with serve(etcd, keyspace, store) as client, asyncio.timeout(60):
        answers = [client.start_fetch(topic, 0, version=1) for _ in range(2)]
        for call in answers:
            (answer,) = (await call.fetched()).responses[0].partitions
            assert (answer.error_code, bytes(answer.records)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
        large.free.set()
        assert len(converted(await client.fetch(topic, 0, version=1))) == 3


async def test_zstd_is_refused_where_message_sets_cannot_hold_it(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append(at(1))
    await log.append(at(2), codec=Codec.ZSTD)
    async with serve(etcd, keyspace, store) as client:
        for version in range(4):
            assert len(converted(await client.fetch(topic, 0, version=version))) == 1
            refused = await client.fetch(topic, 1, version=version)
            assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            assert bytes(refused.records) == b""


async def test_a_batch_that_cannot_be_opened_is_an_error_of_its_partition(
    etcd, keyspace, store, topic, log, serve
) -> None:
    header = read_batch_header(build_batch(at(1), codec=Codec.GZIP))
    await log.append_raw([bytes(pack_batch(header, b"no gzip"))])
    other = LogBuilder(etcd, keyspace, store, topic, partition=1)
    await other.append(at(1))
    async with serve(etcd, keyspace, store) as client:
        first, second = (await client.start_fetch(topic, 0, 0, version=2).fetched()).responses[0].partitions
        assert first.error_code == ErrorCode.CORRUPT_MESSAGE
        assert len(converted(second)) == 1


async def test_offsets_before_a_time_are_the_starts_of_segments_newest_first(
    etcd, keyspace, store, topic, log, serve
) -> None:
    for n in range(4):
        seg = await log.upload([build_batch(at(7_000, 8_000))])
        await log.commit([replace(seg, created_ms=100 * n + 50)])
    await log.checkpoint(keep=1)
    await log.retain_from(1)
    async with serve(etcd, keyspace, store) as client:
        for timestamp, count, expected in (
            (LATEST, 1, [8]),
            (LATEST, 3, [8, 6, 4]),
            (LATEST, 100, [8, 6, 4, 2, 1]),
            (EARLIEST, 5, [1]),
            (250, 5, [4, 2, 1]),
            (250, 2, [4, 2]),
            (49, 5, []),
            (FAR_AHEAD, 2, [8, 6]),
            (LATEST, 0, []),
            (LATEST, -1, []),
            (-3, 5, []),
        ):
            found = await client.list_offsets(topic, timestamp, version=0, count=count)
            assert (found.error_code, found.old_style_offsets) == (0, expected), (timestamp, count)


async def test_an_empty_log_is_a_list_of_one_offset(etcd, keyspace, store, topic, serve) -> None:
    async with serve(etcd, keyspace, store) as client:
        for timestamp in (LATEST, EARLIEST):
            assert (await client.list_offsets(topic, timestamp, version=0, count=9)).old_style_offsets == [0]


async def test_a_list_of_offsets_has_an_end(etcd, keyspace, store, topic, log, serve, monkeypatch) -> None:
    monkeypatch.setattr("kafscale.fetch.handlers.list_offsets.OFFSETS_MAX", 2)
    for n in range(4):
        await log.append(at(n))
    async with serve(etcd, keyspace, store) as client:
        assert (await client.list_offsets(topic, LATEST, version=0, count=9)).old_style_offsets == [4, 3]
