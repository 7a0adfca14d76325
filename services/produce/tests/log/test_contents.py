"""What is found inside the batches of a compacted topic, and what the writer does with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.produce.log.contents import FAULTS_MAX, SMALL_BYTES_MAX, Contents, is_small, read
from kafscale.produce.log.model import RecordFault
from kafscale.wire.batches import pack_batch, read_batch_header
from kafscale.wire.compression import compress
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import HEADER_SIZE, Codec, Record, build_batch
from msgspec.structs import replace as replace_fields
from writer_desk import QUICK, Desk

KEYED = Record(key=b"k", value=b"v")
KEYLESS = Record(value=b"v")
COMPACTED = replace(QUICK, keys_required=True)


def records(*wanted: Record, codec: Codec = Codec.NONE) -> memoryview:
    return memoryview(build_batch(wanted, codec=codec))


@pytest.mark.parametrize("codec", list(Codec))
def test_each_record_without_a_key_is_named(codec: Codec) -> None:
    rejection = read(records(KEYED, KEYLESS, KEYED, KEYLESS, codec=codec)).rejection
    assert rejection is not None
    assert rejection.error is ErrorCode.INVALID_RECORD
    assert [fault.record for fault in rejection.faults] == [1, 3]
    assert all("without a key" in fault.message for fault in rejection.faults)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_with_keys_pass_and_an_empty_key_is_one(codec: Codec) -> None:
    empty = Record(key=b"", value=None)
    assert read(records(KEYED, empty, codec=codec)) == Contents(None)


def test_records_are_counted_over_all_batches_of_a_set() -> None:
    rejection = read(memoryview(bytes(records(KEYED, KEYED)) + bytes(records(KEYLESS)))).rejection
    assert rejection is not None
    assert [fault.record for fault in rejection.faults] == [2]


def test_more_faults_than_an_answer_holds_are_counted_in_its_message() -> None:
    rejection = read(records(*[KEYLESS] * (FAULTS_MAX + 5))).rejection
    assert rejection is not None
    assert len(rejection.faults) == FAULTS_MAX
    assert f"{FAULTS_MAX + 5} of {FAULTS_MAX + 5}" in (rejection.message or "")


def test_a_batch_whose_records_cannot_be_read_is_corrupt() -> None:
    good = records(KEYED)
    broken = pack_batch(read_batch_header(good), bytes(good[HEADER_SIZE:-1]) + b"\x63")
    rejection = read(memoryview(broken)).rejection
    assert rejection is not None
    assert rejection.error is ErrorCode.CORRUPT_MESSAGE


def test_offsets_that_are_not_in_turn_are_refused() -> None:
    two, one = records(KEYED, KEYED), records(KEYED)
    body = bytes(one[HEADER_SIZE:]) * 2  # both records say that they are the first
    rejection = read(memoryview(pack_batch(read_batch_header(two), body))).rejection
    assert rejection is not None
    assert (rejection.error, rejection.faults) == (ErrorCode.INVALID_RECORD, ())


def test_what_a_client_can_split_is_too_large_and_not_broken() -> None:
    bomb = records(Record(key=b"k", value=bytes(65 << 20)), codec=Codec.ZSTD)
    assert len(bomb) < 64 << 10
    rejection = read(bomb).rejection
    assert rejection is not None
    assert rejection.error is ErrorCode.MESSAGE_TOO_LARGE


def test_what_is_wrong_from_the_outside_is_not_opened() -> None:
    broken = bytearray(records(KEYLESS))
    broken[-1] ^= 1
    assert read(memoryview(broken)) == Contents(None)


@given(body=st.binary(min_size=1, max_size=120), codec=st.sampled_from(list(Codec)), compressed=st.booleans())
def test_no_bytes_behind_a_sound_header_raise_anything(body: bytes, codec: Codec, compressed: bool) -> None:
    header = replace_fields(read_batch_header(records(KEYED)), attributes=int(codec))
    found = read(memoryview(pack_batch(header, compress(codec, body) if compressed else body)))
    assert found.rejection is None or found.rejection.error is not ErrorCode.NONE


def test_only_few_records_that_are_not_compressed_are_small() -> None:
    assert is_small(records(KEYED))
    assert not is_small(records(KEYED, codec=Codec.GZIP))
    assert not is_small(records(Record(key=b"k", value=bytes(SMALL_BYTES_MAX))))
    assert not is_small(memoryview(bytes(records(KEYED)) + bytes(records(KEYED, codec=Codec.LZ4))))


def test_the_writer_of_a_compacted_topic_refuses_and_goes_on() -> None:
    desk = Desk(COMPACTED)
    desk.append(1, records(KEYLESS))
    desk.append(2, records(KEYED))
    assert desk.error(1) is ErrorCode.INVALID_RECORD
    assert [fault.record for fault in desk.replies[1].faults] == [0]
    desk.tick()
    desk.upload()
    desk.commit()
    assert (desk.error(2), desk.replies[2].base_offset) == (ErrorCode.NONE, 0)


def test_the_writer_believes_what_was_read_for_it() -> None:
    found = read(records(KEYED, KEYLESS))
    desk = Desk(COMPACTED)
    for token, contents in ((1, found), (2, Contents(None))):
        desk.do(desk.writer.append, token, records(KEYLESS), deadline_ms=60_000, contents=contents)
    assert desk.replies[1].faults == (RecordFault(1, desk.replies[1].faults[0].message),)
    assert 2 not in desk.replies


def test_a_writer_says_whether_it_opens_records_as_its_topic_is_now() -> None:
    desk = Desk()
    assert not desk.writer.opens_records
    desk.writer.configure(COMPACTED, desk.now())
    assert desk.writer.opens_records
    desk.writer.configure(QUICK, desk.now())
    desk.write(1, records(KEYLESS))
    assert desk.error(1) is ErrorCode.NONE
