"""ListOffsets and OffsetForLeaderEpoch agree with a log's history."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
from kafscale.fetch import offsets
from kafscale.fetch.handlers.list_offsets import KNOWN_FROM
from kafscale.fetch.offsets import (
    LIES_MAX,
    OPENED_AT_ONCE,
    OPENED_BYTES_MAX,
    OPENED_RECORDS_MAX,
    STEP_RECORDS,
)
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import Topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import FaultyStore
from kafscale.wire.batches import crc32c, pack_batch
from kafscale.wire.compression import compress
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Codec, Record, build_batch, has_valid_crc, read_batch_header

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
FAR = 1 << 60


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


async def test_latest_and_earliest_of_a_log_with_a_past(etcd, keyspace, store, topic, log, serve) -> None:
    for epoch in (3, 5, 6):
        await log.claim(epoch)
        await log.append(records(4))
    await log.checkpoint(keep=1)
    await log.retain_from(5)
    await log.claim(8)
    async with serve(etcd, keyspace, store) as client:
        latest = await client.list_offsets(topic, LATEST)
        assert (latest.offset, latest.timestamp, latest.leader_epoch) == (12, -1, 8)
        for kind in (EARLIEST, EARLIEST_LOCAL):
            earliest = await client.list_offsets(topic, kind)
            assert (earliest.offset, earliest.timestamp, earliest.leader_epoch) == (5, -1, 5)


async def test_an_empty_log_starts_and_ends_at_zero(etcd, keyspace, store, topic, serve) -> None:
    async with serve(etcd, keyspace, store) as client:
        assert (await client.list_offsets(topic, LATEST)).offset == 0
        assert (await client.list_offsets(topic, EARLIEST)).offset == 0
        for kind in (MAX_TIMESTAMP, 0, 1_000):
            nowhere = await client.list_offsets(topic, kind)
            assert (nowhere.error_code, nowhere.offset, nowhere.timestamp) == (0, -1, -1)


@pytest.mark.parametrize("codec", list(Codec))
async def test_by_time_is_the_first_record_at_or_after_it_in_every_codec(
    etcd, keyspace, store, topic, log, serve, codec: Codec
) -> None:
    await log.append(at(100, 110, 120), at(130, 140, 150), codec=codec)
    await log.append(at(160, 170, 180), codec=codec)
    await log.checkpoint(keep=1)
    await log.append(at(190, 200), codec=codec)
    times = [*range(100, 201, 10)]
    async with serve(etcd, keyspace, store) as client:
        for wanted in [0, 99, *times, *(t + 1 for t in times)]:
            found = await client.list_offsets(topic, wanted)
            expected = next(((n, t) for n, t in enumerate(times) if t >= wanted), (-1, -1))
            assert found.error_code == ErrorCode.NONE
            assert (found.offset, found.timestamp) == expected, wanted
            assert found.leader_epoch == (3 if expected[0] >= 0 else -1)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_of_a_log_that_takes_its_own_time_only_that_time_counts(
    etcd, keyspace, store, topic, log, serve, codec: Codec
) -> None:
    for stamp in (1_000, 2_000):
        await log.append_raw([build_batch(at(9_000, 5), codec=codec, log_append_time_ms=stamp)])
    async with serve(etcd, keyspace, store) as client:
        for wanted, expected in (
            (5, (0, 1_000)),
            (1_000, (0, 1_000)),
            (1_001, (2, 2_000)),
            (2_001, (-1, -1)),
            (MAX_TIMESTAMP, (2, 2_000)),
        ):
            found = await client.list_offsets(topic, wanted)
            assert (found.offset, found.timestamp) == expected, wanted


async def test_by_time_is_right_when_timestamps_are_out_of_order(
    etcd, keyspace, store, topic, log, serve
) -> None:
    times = [500, 100, 300, 700, 200, 900, 50]
    await log.append(at(*times[:3]), at(*times[3:5]))
    await log.append(at(*times[5:]))
    async with serve(etcd, keyspace, store) as client:
        for wanted in (0, 100, 400, 500, 501, 700, 701, 900):
            found = await client.list_offsets(topic, wanted)
            expected = next((n, t) for n, t in enumerate(times) if t >= wanted)
            assert (found.offset, found.timestamp) == expected, wanted
        assert (await client.list_offsets(topic, 901)).offset == -1
        newest = await client.list_offsets(topic, MAX_TIMESTAMP)
        assert (newest.offset, newest.timestamp) == (5, 900)


async def test_by_time_reads_only_segments_that_can_hold_it(etcd, keyspace, store, topic, log, serve) -> None:
    for n in range(6):
        await log.append(at(100 * n, 100 * n + 50))
    async with serve(etcd, keyspace, store) as client:
        store.requests.clear()
        assert (await client.list_offsets(topic, 420)).offset == 9
        assert [key for _, key in store.requests] == [log.segment_key(log.segments[4])]


async def test_by_time_never_answers_below_the_log_start(etcd, keyspace, store, topic, log, serve) -> None:
    await log.append(at(100, 110, 120), at(130, 140))
    await log.retain_from(2)
    async with serve(etcd, keyspace, store) as client:
        found = await client.list_offsets(topic, 0)
        assert (found.offset, found.timestamp) == (2, 120)


async def test_the_newest_is_the_first_record_with_the_greatest_timestamp(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append(at(100, 900, 300), at(900, 100))
    await log.checkpoint()
    await log.append(at(900))
    async with serve(etcd, keyspace, store) as client:
        newest = await client.list_offsets(topic, MAX_TIMESTAMP)
        assert (newest.offset, newest.timestamp, newest.leader_epoch) == (1, 900, 3)


async def test_log_append_time_counts_for_every_record_of_its_batch(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append_raw([build_batch(at(10, 20), log_append_time_ms=t) for t in (1_000, 2_000)])
    async with serve(etcd, keyspace, store) as client:
        found = await client.list_offsets(topic, 1_001)
        assert (found.offset, found.timestamp) == (2, 2_000)


async def test_a_batch_that_cannot_be_opened_answers_its_first_offset(
    etcd, keyspace, store, topic, log, serve
) -> None:
    """Its CRC is right, its compressed body is rubbish: brokers that store batches unread accept it."""
    broken = bytearray(build_batch(at(500, 600), codec=Codec.ZSTD))
    broken[61] ^= 0xFF

    broken[17:21] = crc32c(memoryview(broken)[21:]).to_bytes(4, "big")
    assert has_valid_crc(read_batch_header(broken), broken)
    await log.append_raw([build_batch(at(100)), bytes(broken)])
    async with serve(etcd, keyspace, store) as client:
        found = await client.list_offsets(topic, 550)
        assert (found.error_code, found.offset, found.timestamp) == (0, 1, 600)


def liar(timestamp: int, *, count: int, said: int, codec: Codec = Codec.ZSTD) -> bytes:
    """A small batch of many records of `timestamp`, whose header says that the newest is of the time `said`."""
    body = bytes((12, 0, 0, 0, 1, 1, 0)) * count  # no delta, no key, no value, no header
    header = msgspec.structs.replace(
        read_batch_header(build_batch(at(timestamp))),
        attributes=int(codec),
        max_timestamp=said,
        last_offset_delta=count - 1,
        records_count=count,
    )
    return bytes(pack_batch(header, compress(codec, body)))


@pytest.mark.parametrize("count", [OPENED_RECORDS_MAX + STEP_RECORDS, OPENED_BYTES_MAX // 7 + 1])
async def test_a_batch_that_takes_too_much_answers_its_first_offset_and_nobody_waits_for_it(
    etcd, keyspace, store, topic, log, serve, until, count: int
) -> None:
    """A few kilobytes that are millions of records: its own request ends at a limit, others are answered meanwhile."""
    await log.append(at(100))
    await log.append_raw([liar(100, count=count, said=FAR)])
    other = LogBuilder(etcd, keyspace, store, topic, 1, epoch=3)
    await other.append(at(100, 200))
    async with serve(etcd, keyspace, store) as client, asyncio.timeout(60):
        assert (await client.list_offsets(topic, LATEST)).offset == count + 1
        begun = client.service.batch_thread.pieces
        asked = asyncio.create_task(client.list_offsets(topic, FAR - 1))
        await until(lambda: client.service.batch_thread.pieces > begun)
        assert (await client.list_offsets(topic, 150, partitions=(1,))).offset == 1
        if count < OPENED_BYTES_MAX // 7:
            assert not asked.done()
        found = await asked
        assert (found.error_code, found.offset, found.timestamp) == (0, 1, FAR)


async def test_a_batch_that_took_too_much_is_not_opened_again(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append_raw([liar(100, count=OPENED_RECORDS_MAX + STEP_RECORDS, said=FAR)])
    async with serve(etcd, keyspace, store) as client, asyncio.timeout(60):
        assert (await client.list_offsets(topic, FAR - 1)).offset == 0
        begun = client.service.batch_thread.pieces
        answers = await asyncio.gather(*(client.list_offsets(topic, FAR - n) for n in range(8)))
        assert [found.offset for found in answers] == [0] * 8
        assert client.service.batch_thread.pieces - begun == 8, "each asks whether it was refused"


async def test_a_search_of_an_ordinary_batch_waits_for_no_large_one(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    batches = 2 * OPENED_AT_ONCE
    bomb = liar(100, count=OPENED_RECORDS_MAX + STEP_RECORDS, said=FAR)
    for _ in range(batches):
        await log.append_raw([bomb])
    other = LogBuilder(etcd, keyspace, store, topic, 1, epoch=3)
    await other.append(at(100, 200))
    async with serve(etcd, keyspace, store) as client, asyncio.timeout(120):
        begun = client.service.batch_thread.pieces
        asked = [asyncio.create_task(client.list_offsets(topic, FAR - n)) for n in range(batches)]
        await until(lambda: client.service.batch_thread.pieces > begun)
        for _ in range(5):
            assert (await client.list_offsets(topic, 150, partitions=(1,))).offset == 1
        assert not any(one.done() for one in asked)
        await asyncio.gather(*asked)


async def test_a_header_that_promises_too_much_is_passed_and_many_of_them_are_not(
    etcd, keyspace, store, topic, log, serve, until
) -> None:
    for lies in (1, LIES_MAX + 4):
        part = int(lies > 1)
        lied = LogBuilder(etcd, keyspace, store, topic, part, epoch=3)
        await lied.append_raw([liar(100, count=3, said=FAR, codec=Codec.NONE)] * lies)
        await lied.append(at(FAR))
    async with serve(etcd, keyspace, store) as client:
        assert (await client.list_offsets(topic, FAR)).offset == 3
        limited = await client.list_offsets(topic, FAR, partitions=(1,))
        assert (limited.offset, limited.timestamp) == (3 * LIES_MAX, FAR)


async def test_a_log_that_starts_inside_its_newest_batch_is_no_lie(
    etcd, keyspace, store, topic, log, serve, monkeypatch
) -> None:
    monkeypatch.setattr("kafscale.fetch.offsets.LIES_MAX", 1)
    await log.append(at(900, 100, 100))
    await log.append(at(100, 900))
    await log.retain_from(1, delete=False)
    async with serve(etcd, keyspace, store) as client:
        assert (await client.list_offsets(topic, 500)).offset == 4


async def test_a_batch_is_opened_in_turns_and_only_as_far_as_needed(
    etcd, keyspace, store, topic, log, serve, monkeypatch
) -> None:
    await log.append(at(*range(100, 100 + 3 * STEP_RECORDS)))
    seen = []
    real = offsets.places_in

    def places_in(*args: object, **options: object) -> Iterator[tuple[int, int]]:
        for place in real(*args, **options):
            seen.append(place)
            yield place

    monkeypatch.setattr(offsets, "places_in", places_in)
    async with serve(etcd, keyspace, store) as client:
        assert (await client.list_offsets(topic, 100 + STEP_RECORDS + 1)).offset == STEP_RECORDS + 1
        assert len(seen) == 2 * STEP_RECORDS


async def test_nothing_is_tiered(etcd, keyspace, store, topic, log, serve) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        for kind in (LATEST_TIERED, PENDING_UPLOAD):
            nowhere = await client.list_offsets(topic, kind)
            assert (nowhere.error_code, nowhere.offset, nowhere.leader_epoch) == (0, -1, -1)


@pytest.mark.parametrize("version", range(1, 12))
async def test_special_timestamps_are_known_from_their_version_on(
    etcd, keyspace, store, topic, log, serve, version: int
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        for kind in range(-7, 0):
            answer = await client.list_offsets(topic, kind, version=version)
            known = version >= KNOWN_FROM.get(kind, 99)
            assert answer.error_code == (0 if known else ErrorCode.UNSUPPORTED_VERSION), kind
        assert (await client.list_offsets(topic, LATEST, version=version)).offset == 3


async def test_a_partition_named_twice_is_an_invalid_request(
    etcd, keyspace, store, topic, log, serve
) -> None:
    async with serve(etcd, keyspace, store) as client:
        answer = await client.list_offsets(topic, LATEST, partitions=(0, 0))
        assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_offsets_of_unknown_partitions_and_wrong_epochs(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        unknown = await client.list_offsets(topic, LATEST, partitions=(7,))
        assert (unknown.error_code, unknown.offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        for held, code in ((0, 0), (2, 0), (4, 75), (3, 0)):
            assert (await client.list_offsets(topic, LATEST, leader_epoch=held)).error_code == code
            assert (await client.epoch_end(topic, 3, leader_epoch=held)).error_code == code
        assert (
            await client.epoch_end(topic, 3, partition=7)
        ).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_epoch_begins_where_it_did_and_not_where_the_tail_does(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append(records(10))
    await log.claim(5)
    for _ in range(3):
        await log.append(records(10))
    await log.checkpoint(keep=1)
    async with serve(etcd, keyspace, store) as client:
        assert (await client.epoch_end(topic, 3)).end_offset == 10


async def test_epochs_that_only_the_tail_lists_are_known(etcd, keyspace, store, topic, log, serve) -> None:
    """The head lists the newest 16 itself; the tail may hold segments of more."""
    for epoch in range(3, 27):
        await log.claim(epoch)
        await log.append(records(10))
    async with serve(etcd, keyspace, store) as client:
        for moved in (False, True):
            if moved:
                await log.checkpoint(keep=20)
            for epoch in range(3, 27):
                end = await client.epoch_end(topic, epoch)
                assert (end.leader_epoch, end.end_offset) == (epoch, 10 * (epoch - 2))


@pytest.mark.parametrize("version", range(5))
async def test_an_epoch_ends_where_the_next_one_with_records_begins(
    etcd, keyspace, store, topic, log, serve, version: int
) -> None:
    """Epochs 3, 5, 6 and 9 wrote four records each; 4, 7, 8 and 10 wrote none."""
    for epoch in (3, 5, 6, 9):
        await log.claim(epoch)
        await log.append(records(4))
    await log.claim(10)
    async with serve(etcd, keyspace, store) as client:
        for epoch, expected in {
            2: (2, 0), 3: (3, 4), 4: (3, 4), 5: (5, 8), 6: (6, 12), 8: (6, 12), 9: (9, 16), 10: (10, 16),
            11: (-1, -1), 1 << 30: (-1, -1),
        }.items():  # fmt: skip
            end = await client.epoch_end(topic, epoch, version=version)
            told = (expected[0] if version else -1, expected[1])  # v0 answers the offset alone
            assert (end.error_code, end.leader_epoch, end.end_offset) == (0, *told), epoch


async def test_the_whole_history_is_known_beyond_what_the_head_keeps(
    etcd, keyspace, store, topic, log, serve
) -> None:
    for epoch in range(3, 43):
        await log.claim(epoch)
        await log.append(records(2))
        if epoch % 8 == 0:
            await log.checkpoint(keep=2)
    assert len(log.head.epochs) == 16
    async with serve(etcd, keyspace, store) as client:
        for epoch in range(3, 43):
            end = await client.epoch_end(topic, epoch)
            assert (end.leader_epoch, end.end_offset) == (epoch, 2 * (epoch - 2)), epoch


async def test_epochs_of_which_no_record_is_left_end_where_they_ended(
    etcd, keyspace, store, topic, log, serve
) -> None:
    """KAFKA-19902: consumers that ask for such an epoch would otherwise be reset to the log start."""
    for epoch in range(3, 43):
        await log.claim(epoch)
        await log.append(records(2))
        if epoch % 8 == 0:
            await log.checkpoint(keep=2)
    for start in (20, 50, 74):  # one chunk goes, then three, then the last
        await log.retain_from(start)
        await log.sweep(start)
        async with serve(etcd, keyspace, store) as client:
            for epoch in range(3, 43):
                end = await client.epoch_end(topic, epoch)
                assert (end.error_code, end.leader_epoch, end.end_offset) == (0, epoch, 2 * (epoch - 2)), (
                    epoch
                )
            assert (await client.list_offsets(topic, EARLIEST)).offset == start
            answer = await client.fetch(topic, start)
            assert bytes(answer.records).startswith(log.expected(start, start))
            assert (await client.fetch(topic, start - 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.meta.chunks == ()


async def test_a_log_without_an_owner_yet_has_the_epoch_of_its_first_one(
    etcd, keyspace, store, serve
) -> None:
    """So a client that has read it is right before and after the first claim."""
    for name, floor in (("first", 0), ("made-again", 4)):
        topic = await create_topic(etcd, keyspace, name, epoch_floor=floor)
        first = floor + 1
        async with serve(etcd, keyspace, store) as client:
            for claimed in (False, True):
                if claimed:
                    await LogBuilder(etcd, keyspace, store, topic, epoch=first).append(records(2))
                for timestamp, offset in ((LATEST, 2 if claimed else 0), (EARLIEST, 0)):
                    answer = await client.list_offsets(topic, timestamp, leader_epoch=first)
                    assert (answer.error_code, answer.offset, answer.leader_epoch) == (0, offset, first)
                end = await client.epoch_end(topic, first)
                assert (end.leader_epoch, end.end_offset) == (first, 2 if claimed else 0)
                end = await client.epoch_end(topic, first + 1)
                assert (end.error_code, end.leader_epoch, end.end_offset) == (0, -1, -1)
                ahead = await client.list_offsets(topic, LATEST, leader_epoch=first + 1)
                assert ahead.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
                zero = await client.list_offsets(topic, LATEST, leader_epoch=0)
                assert zero.error_code == (ErrorCode.FENCED_LEADER_EPOCH if floor else ErrorCode.NONE)


async def test_no_epoch_has_no_end(etcd, keyspace, store, topic, log, serve) -> None:
    await log.append(records(2))
    async with serve(etcd, keyspace, store) as client:
        end = await client.epoch_end(topic, -1)
        assert (end.error_code, end.leader_epoch, end.end_offset) == (0, -1, -1)
