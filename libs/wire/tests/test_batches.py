"""Batches from the outside: what is refused and with which of Kafka's codes, and what placing one changes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.wire.batches import RECORDS_MAX, crc32c, pack_batch
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.records import (
    HEADER_SIZE,
    BatchHeader,
    Codec,
    Record,
    build_batch,
    has_valid_crc,
    patch_batch,
    placed_batch,
    read_batch_header,
    records_in,
    split_batches,
    stamp_log_append_time,
    validate_batch,
)
from wire_values import quick

RECORDS = [Record(timestamp=1_700_000_000_000 + n, key=b"k%d" % n, value=b"v" * n) for n in range(5)]
LAST_SEQUENCE = (1 << 31) - 1


def bent(**changes: Any) -> tuple[BatchHeader, bytes]:
    """A sound batch with header fields changed and its CRC made right again."""
    batch = build_batch(RECORDS, producer_id=7, producer_epoch=1, base_sequence=0)
    header = msgspec.structs.replace(read_batch_header(batch), **changes)
    body = bytes(pack_batch(header, batch[HEADER_SIZE:]))
    return read_batch_header(body), body


def verdict(**changes: Any) -> ErrorCode:
    return validate_batch(*bent(**changes))


def test_a_header_is_read_field_by_field() -> None:
    batch = build_batch(
        RECORDS, base_offset=100, leader_epoch=9, producer_id=7, producer_epoch=1, base_sequence=3
    )
    header = read_batch_header(b"before" + batch, 6)
    assert (header.base_offset, header.last_offset, header.size) == (100, 104, len(batch))
    assert (header.partition_leader_epoch, header.magic, header.attributes) == (9, 2, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_000_004)
    assert (header.last_offset_delta, header.records_count) == (4, 5)
    assert header.crc == crc32c(batch[21:])
    with pytest.raises(WireError):
        read_batch_header(batch, 1 + len(batch) - HEADER_SIZE)


def test_attributes_say_codec_and_kind() -> None:
    for codec in Codec:
        header = read_batch_header(build_batch(RECORDS, codec=codec, transactional=True))
        assert header.codec is codec
        assert (header.is_transactional, header.is_control, header.is_log_append_time) == (True, False, False)
    header = read_batch_header(build_batch(RECORDS, control=True, log_append_time_ms=5))
    assert (header.is_transactional, header.is_control, header.is_log_append_time) == (False, True, True)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_sound_batch_of_any_codec_is_accepted(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    assert validate_batch(read_batch_header(batch), memoryview(batch)) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"magic": 0}, ErrorCode.INVALID_RECORD),
        ({"magic": 1}, ErrorCode.INVALID_RECORD),
        ({"magic": 3}, ErrorCode.CORRUPT_MESSAGE),
        ({"magic": -1}, ErrorCode.CORRUPT_MESSAGE),
        ({"records_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"records_count": -5, "last_offset_delta": -6}, ErrorCode.INVALID_RECORD),
        ({"records_count": 4}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 5}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"records_count": 1 << 30, "last_offset_delta": (1 << 30) - 1}, ErrorCode.INVALID_RECORD),
        ({"base_offset": 1}, ErrorCode.INVALID_RECORD),
        ({"base_offset": -1}, ErrorCode.INVALID_RECORD),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 6}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 7}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 0x08}, ErrorCode.INVALID_TIMESTAMP),
        ({"attributes": 0x10}, ErrorCode.INVALID_REQUEST),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x30}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x40}, ErrorCode.INVALID_RECORD),
        ({"base_timestamp": -2}, ErrorCode.NONE),
        ({"max_timestamp": -(1 << 63)}, ErrorCode.NONE),
        ({"base_sequence": -1}, ErrorCode.INVALID_RECORD),
        ({"producer_epoch": -1}, ErrorCode.INVALID_RECORD),
        ({"producer_id": -2}, ErrorCode.INVALID_RECORD),
        ({"base_sequence": LAST_SEQUENCE}, ErrorCode.NONE),
        ({"base_timestamp": -1, "max_timestamp": -1}, ErrorCode.NONE),
        ({"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}, ErrorCode.NONE),
        ({"producer_id": -1, "base_sequence": 0}, ErrorCode.NONE),
        ({"partition_leader_epoch": 1 << 30}, ErrorCode.NONE),
        ({}, ErrorCode.NONE),
    ],
)
def test_each_wrong_field_has_its_code(changes: dict[str, int], code: ErrorCode) -> None:
    assert verdict(**changes) is code


def test_a_transactional_batch_is_taken_only_where_transactions_work_and_only_with_a_producer() -> None:
    header, batch = bent(attributes=0x10)
    assert validate_batch(header, batch, transactions=True) is ErrorCode.NONE
    header, batch = bent(attributes=0x10, producer_id=-1, producer_epoch=-1, base_sequence=-1)
    assert validate_batch(header, batch, transactions=True) is ErrorCode.INVALID_RECORD


def test_as_many_records_as_fit_and_not_one_more() -> None:
    batch = build_batch([Record(timestamp=0)] * 10)
    assert len(batch) == HEADER_SIZE + 10 * 7
    assert validate_batch(read_batch_header(batch), batch) is ErrorCode.NONE
    header = msgspec.structs.replace(read_batch_header(batch), records_count=11, last_offset_delta=10)
    more = bytes(pack_batch(header, batch[HEADER_SIZE:]))
    assert validate_batch(read_batch_header(more), more) is ErrorCode.INVALID_RECORD


def test_a_compressed_batch_may_claim_a_million_records_and_not_one_more() -> None:
    """What it holds is not known before somebody opens it, and then each of them is walked."""
    for count, code in ((RECORDS_MAX, ErrorCode.NONE), (RECORDS_MAX + 1, ErrorCode.INVALID_RECORD)):
        header, batch = bent(attributes=int(Codec.ZSTD), records_count=count, last_offset_delta=count - 1)
        assert validate_batch(header, batch) is code


@given(st.integers(21, 10_000), st.integers(1, 255))
@quick(100)
def test_any_bit_changed_under_the_crc_is_found(place: int, flip: int) -> None:
    batch = bytearray(build_batch(RECORDS))
    place = 21 + place % (len(batch) - 21)
    batch[place] ^= flip
    header = read_batch_header(batch)
    assert not has_valid_crc(header, batch)
    assert validate_batch(header, batch) is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_that_is_not_as_long_as_it_says_is_corrupt() -> None:
    batch = build_batch(RECORDS)
    header = read_batch_header(batch)
    for wrong in (batch[:-1], batch + b"\x00", batch[:HEADER_SIZE], b""):
        assert validate_batch(header, wrong) is ErrorCode.CORRUPT_MESSAGE


def test_several_batches_are_cut_where_they_end() -> None:
    batches = [build_batch(RECORDS[: n + 1], codec=codec) for n, codec in enumerate(Codec)]
    cut = split_batches(memoryview(b"".join(batches)))
    assert [bytes(view) for _, view in cut] == batches
    assert [header.records_count for header, _ in cut] == [1, 2, 3, 4, 5]
    assert split_batches(b"") == []


def message_set(magic: int) -> bytes:
    """The header of an old message: offset, size, CRC, magic, attributes."""
    return struct.pack(">qiIbb", 0, 40, 0, magic, 0) + bytes(34)


@pytest.mark.parametrize(
    ("record_set", "code"),
    [
        (message_set(0), ErrorCode.INVALID_RECORD),
        (message_set(1), ErrorCode.INVALID_RECORD),
        (message_set(3), ErrorCode.CORRUPT_MESSAGE),
        (message_set(-1), ErrorCode.CORRUPT_MESSAGE),
        (b"\x00", ErrorCode.CORRUPT_MESSAGE),
        (bytes(16) + b"\x02", ErrorCode.CORRUPT_MESSAGE),
        (build_batch(RECORDS)[:-1], ErrorCode.CORRUPT_MESSAGE),
        (build_batch(RECORDS) + b"\x00", ErrorCode.CORRUPT_MESSAGE),
        (build_batch(RECORDS) + message_set(1), ErrorCode.INVALID_RECORD),
    ],
)
def test_a_record_set_that_is_not_batches_end_to_end_is_refused(record_set: bytes, code: ErrorCode) -> None:
    with pytest.raises(WireError) as caught:
        split_batches(record_set)
    assert caught.value.code is code


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 48, (1 << 31) - 1])
def test_a_batch_length_that_is_negative_too_short_or_huge_is_refused(length: int) -> None:
    batch = bytearray(build_batch(RECORDS))
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(WireError):
        split_batches(batch)
    assert validate_batch(read_batch_header(batch), batch) is ErrorCode.CORRUPT_MESSAGE


@given(st.binary(max_size=200))
@quick(300)
def test_any_bytes_are_batches_or_a_wire_error(data: bytes) -> None:
    for record_set in (data, data[:16] + b"\x02" + data[17:]):
        try:
            cut = split_batches(record_set)
        except WireError:
            continue
        assert sum(header.size for header, _ in cut) == len(record_set)
        assert all(validate_batch(header, view) is not ErrorCode.NONE for header, view in cut)


@pytest.mark.parametrize("place", [patch_batch, None])
def test_placing_a_batch_changes_offset_and_epoch_and_leaves_the_crc_right(
    place: Callable[[bytearray, int, int], None] | None,
) -> None:
    batch = build_batch(RECORDS, codec=Codec.LZ4)
    if place is None:
        head, rest = placed_batch(read_batch_header(batch), memoryview(batch), 1 << 40, 12)
        assert rest.obj is batch
        placed = head + bytes(rest)
    else:
        buffer = bytearray(batch)
        place(buffer, 1 << 40, 12)
        placed = bytes(buffer)
    header = read_batch_header(placed)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 12)
    assert has_valid_crc(header, placed)
    assert placed[16:] == batch[16:]
    assert placed[8:12] == batch[8:12]
    assert [record.offset for record in records_in(placed)] == [(1 << 40) + n for n in range(5)]


@pytest.mark.parametrize("codec", list(Codec))
def test_log_append_time_is_stamped_without_opening_the_batch(codec: Codec) -> None:
    batch = bytearray(build_batch(RECORDS, codec=codec))
    body = bytes(batch[HEADER_SIZE:])
    stamp_log_append_time(batch, 99)
    header = read_batch_header(batch)
    assert header.is_log_append_time
    assert header.codec is codec
    assert header.max_timestamp == 99
    assert has_valid_crc(header, batch)
    assert batch[HEADER_SIZE:] == body
    assert {record.timestamp for record in records_in(batch)} == {99}


def test_crc32c_is_the_castagnoli_polynomial_and_can_be_continued() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(memoryview(b"xx123456789")[2:]) == 0xE3069283
    assert crc32c(b"6789", crc32c(bytearray(b"12345"))) == 0xE3069283
    assert crc32c(b"") == 0
