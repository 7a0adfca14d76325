"""What clients may append, and what is stored of it."""

import struct

import pytest
from kafscale.produce.log.intake import (
    BATCHES_MAX,
    check_record_set,
    stamp,
    stored_header,
)
from kafscale.produce.log.model import Limits, Rejection
from kafscale.produce.log.producers import IN_FLIGHT_MAX
from kafscale.wire.batches import HEADER_SIZE, LOG_APPEND_TIME, has_valid_crc, read_batch_header
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Codec, Record, build_batch, records_in


def batch(*values: bytes, **fields: object) -> bytes:
    return build_batch([Record(value=value, timestamp=5) for value in values or (b"v",)], **fields)  # type: ignore[arg-type]


def rejected(data: bytes | None, limits: Limits = Limits(), *, zstd_allowed: bool = True) -> ErrorCode:  # noqa: B008
    checked = check_record_set(None if data is None else memoryview(data), limits, zstd_allowed=zstd_allowed)
    return checked.error if isinstance(checked, Rejection) else ErrorCode.NONE


def test_a_good_batch_is_accepted() -> None:
    assert rejected(batch(b"a", b"b")) is ErrorCode.NONE


def test_several_batches_in_one_record_set_are_accepted() -> None:
    assert rejected(batch(b"a") + batch(b"b", b"c")) is ErrorCode.NONE


def test_the_batches_of_one_record_set_are_bounded() -> None:
    """Thirty megabytes of the smallest ones would hold the event loop for seconds."""
    assert rejected(batch() * BATCHES_MAX) is ErrorCode.NONE
    assert rejected(batch() * (BATCHES_MAX + 1)) is ErrorCode.MESSAGE_TOO_LARGE
    broken_behind = batch() * (BATCHES_MAX + 1) + b"x"
    assert rejected(broken_behind) is ErrorCode.MESSAGE_TOO_LARGE, "no more is looked at"
    assert BATCHES_MAX <= IN_FLIGHT_MAX, "what one producer may send at once it may have on its way"


@pytest.mark.parametrize("data", [None, b""])
def test_a_partition_without_records_is_refused(data: bytes | None) -> None:
    assert rejected(data) is ErrorCode.INVALID_RECORD


def test_a_flipped_bit_anywhere_behind_the_checksum_is_refused() -> None:
    whole = batch(b"value")
    for position in range(21, len(whole)):
        broken = bytearray(whole)
        broken[position] ^= 1
        assert rejected(bytes(broken)) is not ErrorCode.NONE, position


def test_a_record_set_cut_anywhere_is_refused() -> None:
    whole = batch(b"value")
    assert all(rejected(whole[:end]) is not ErrorCode.NONE for end in range(len(whole)))


def test_a_second_batch_that_is_broken_refuses_the_whole_set() -> None:
    second = bytearray(batch(b"b"))
    second[-1] ^= 1
    assert rejected(batch(b"a") + bytes(second)) is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_over_the_topics_limit_is_too_large() -> None:
    whole = batch(b"x" * 100)
    assert rejected(whole, Limits(max_message_bytes=len(whole))) is ErrorCode.NONE
    over = check_record_set(memoryview(whole), Limits(max_message_bytes=len(whole) - 1), zstd_allowed=True)
    assert isinstance(over, Rejection)
    assert over.error is ErrorCode.MESSAGE_TOO_LARGE
    assert over.message is not None
    assert str(len(whole)) in over.message


def test_control_batches_are_for_the_coordinator_alone() -> None:
    assert rejected(batch(control=True)) is ErrorCode.INVALID_RECORD


def test_transactional_batches_are_refused_while_there_are_no_transactions() -> None:
    data = batch(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    assert rejected(data) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1)])
def test_a_producer_id_needs_an_epoch_and_a_sequence(epoch: int, sequence: int) -> None:
    data = batch(producer_id=1, producer_epoch=epoch, base_sequence=sequence)
    assert rejected(data) is ErrorCode.INVALID_RECORD


def test_zstd_needs_a_request_version_that_has_it() -> None:
    data = batch(codec=Codec.ZSTD)
    assert rejected(data) is ErrorCode.NONE
    assert rejected(data, zstd_allowed=False) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_batches_of_one_producer_must_be_in_sequence() -> None:
    first = batch(b"a", b"b", producer_id=1, producer_epoch=0, base_sequence=0)
    second = batch(b"c", producer_id=1, producer_epoch=0, base_sequence=2)
    gap = batch(b"c", producer_id=1, producer_epoch=0, base_sequence=3)
    assert rejected(first + second) is ErrorCode.NONE
    assert rejected(first + gap) is ErrorCode.INVALID_RECORD


def test_one_record_set_has_one_producer() -> None:
    first = batch(producer_id=1, producer_epoch=0, base_sequence=0)
    assert rejected(first + batch()) is ErrorCode.INVALID_RECORD


def test_the_stored_header_names_its_place_and_leaves_the_clients_bytes_alone() -> None:
    data = batch(b"a")
    before = bytes(data)
    header = stored_header(memoryview(data), 4_711, 3)
    stored = bytes(header) + data[HEADER_SIZE:]
    parsed = read_batch_header(stored)
    assert (parsed.base_offset, parsed.partition_leader_epoch) == (4_711, 3)
    assert has_valid_crc(parsed, stored)
    assert data == before


def test_log_append_time_is_one_stamp_for_all_records_under_a_valid_checksum() -> None:
    data = batch(b"a", b"b")
    header = stored_header(memoryview(data), 10, 3)
    stamp(header, memoryview(data)[HEADER_SIZE:], 1_234_567, LOG_APPEND_TIME)
    stored = bytes(header) + data[HEADER_SIZE:]
    assert has_valid_crc(read_batch_header(stored), stored)
    assert [record.timestamp for record in records_in(stored)] == [1_234_567, 1_234_567]


def test_garbage_is_refused_and_raises_nothing() -> None:
    for seed in range(200):
        garbage = struct.pack(">qi", seed, seed * 7_919 - 500) + bytes((seed * n) & 0xFF for n in range(90))
        assert rejected(garbage) is not ErrorCode.NONE
