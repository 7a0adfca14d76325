"""What is found inside the batches of a compacted topic, and what the writer does with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.produce.log.contents import FAULTS_MAX, RECORDS_MAX, SMALL_BYTES_MAX, Contents, Opening, opened
from kafscale.produce.log.model import Limits, Part, PutObject, RecordFault
from kafscale.produce.log.producers import ProducerTable
from kafscale.storage.segment import walk_batches
from kafscale.wire.batches import pack_batch, read_batch_header, split_batches
from kafscale.wire.compression import Compression, compress, decompress
from kafscale.wire.errors import ErrorCode
from kafscale.wire.record_walk import HEADERS_MAX
from kafscale.wire.records import (
    HEADER_SIZE,
    Codec,
    Record,
    build_batch,
    has_valid_crc,
    records_in,
)
from msgspec.structs import replace as replace_fields
from writer_desk import HEAD, QUICK, Desk

KEYED = Record(key=b"k", value=b"v")
KEYLESS = Record(value=b"v")
COMPACTED = replace(QUICK, keys_required=True)


def opening(record_set: memoryview, limits: Limits = COMPACTED) -> Opening:
    """Of a set that is sound from the outside, whatever its size."""
    return Opening(split_batches(record_set), limits)


def read(record_set: memoryview) -> Contents:
    return opened(opening(record_set))


def records(*wanted: Record, codec: Codec = Codec.NONE, **fields: int) -> memoryview:
    return memoryview(build_batch(wanted, codec=codec, **fields))  # type: ignore[arg-type]


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


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_what_is_decided_from_the_outside_is_not_opened(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Size, checksum, sequence, repeats, room, the number of records: all of it comes before a codec is asked."""
    monkeypatch.setattr(Opening, "unpack", lambda *_: pytest.fail("it was opened"))
    good = records(KEYED, codec=codec)
    broken = bytearray(good)
    broken[-1] ^= 1
    known = ProducerTable()
    known.record(7, 0, 0, 0, 0, 0, wall_ms=0, committed=1)
    many = pack_batch(
        replace_fields(
            read_batch_header(good), records_count=RECORDS_MAX // 2 + 1, last_offset_delta=RECORDS_MAX // 2
        ),
        bytes(good[HEADER_SIZE:]),
    )
    small = replace(COMPACTED, max_message_bytes=len(good) - 1)
    full = replace(COMPACTED, held_bytes_max=len(good) - 1)
    refused = [
        (small, good, ErrorCode.MESSAGE_TOO_LARGE),
        (full, good, ErrorCode.NOT_ENOUGH_REPLICAS),
        (COMPACTED, memoryview(broken), ErrorCode.CORRUPT_MESSAGE),
    ]
    if codec is Codec.ZSTD:
        refused.append((COMPACTED, memoryview(bytes(many) * 2), ErrorCode.MESSAGE_TOO_LARGE))
    for limits, record_set, error in refused:
        desk = Desk(limits)
        assert desk.writer.opens(record_set, True) is None
        desk.append(1, record_set)
        assert desk.error(1) is error
    desk = Desk(COMPACTED, replace(HEAD, next=1), known)
    for seq in (0, 5):
        record_set = records(KEYED, codec=codec, producer_id=7, producer_epoch=0, base_sequence=seq)
        assert desk.writer.opens(record_set, True) is None
    assert desk.writer.opens(good, True) is not None


def test_more_than_is_asked_for_does_not_come_out_and_is_tried_again_with_more_room() -> None:
    large = opening(records(Record(key=b"k", value=bytes(2 << 20)), codec=Codec.ZSTD))
    assert not large.unpack(1 << 20)
    assert large.bytes_held == 0
    assert large.unpack(3 << 20)
    assert large.bytes_held > 2 << 20
    assert opened(large) == Contents()


def test_what_comes_out_of_all_batches_of_a_set_is_bounded_together() -> None:
    one = records(Record(key=b"k", value=bytes(40 << 20)), codec=Codec.ZSTD)
    rejection = read(memoryview(bytes(one) * 2)).rejection
    assert rejection is not None
    assert rejection.error is ErrorCode.MESSAGE_TOO_LARGE


def test_the_headers_of_all_batches_of_a_set_are_bounded_together() -> None:
    """Records of as many headers as are allowed in all cost a second; each batch of a set could bring as many."""
    one = records(Record(key=b"k", headers=(("", None),) * (HEADERS_MAX // 2)), codec=Codec.ZSTD)
    assert read(memoryview(bytes(one) * 2)) == Contents()
    rejection = read(memoryview(bytes(one) * 3)).rejection
    assert rejection is not None
    assert rejection.error is ErrorCode.MESSAGE_TOO_LARGE


@given(body=st.binary(min_size=1, max_size=120), codec=st.sampled_from(list(Codec)), compressed=st.booleans())
def test_no_bytes_behind_a_sound_header_raise_anything(body: bytes, codec: Codec, compressed: bool) -> None:
    header = replace_fields(read_batch_header(records(KEYED)), attributes=int(codec))
    found = read(memoryview(pack_batch(header, compress(codec, body) if compressed else body)))
    assert found.rejection is None or found.rejection.error is not ErrorCode.NONE


def test_only_few_records_that_are_not_compressed_are_small() -> None:
    assert opening(records(KEYED)).is_small
    assert not opening(records(KEYED, codec=Codec.GZIP)).is_small
    assert not opening(records(Record(key=b"k", value=bytes(SMALL_BYTES_MAX)))).is_small
    assert not opening(memoryview(bytes(records(KEYED)) + bytes(records(KEYED, codec=Codec.LZ4)))).is_small


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


def test_a_writer_says_what_is_to_be_opened_as_its_topic_is_now() -> None:
    desk, plain = Desk(), records(KEYLESS)
    assert desk.writer.opens(plain, True) is None
    desk.writer.configure(COMPACTED, desk.now())
    assert desk.writer.opens(plain, True) is not None
    desk.writer.configure(QUICK, desk.now())
    desk.write(1, plain)
    assert desk.error(1) is ErrorCode.NONE


# --- compression.type --------------------------------------------------------------------------------

SENT = [
    Record(key=b"k%d" % n, value=b"value " * n, timestamp=1_000 + n, headers=(("h", b"x"),))
    for n in range(40)
]


def stored(limits: Limits, record_set: memoryview) -> bytes:
    """What a writer puts into its segment."""
    desk = Desk(limits)
    desk.append(1, record_set)
    desk.tick()
    (segment,) = [put for put in desk.pop(PutObject) if put.part is Part.SEGMENT]
    body = b"".join(segment.body)
    (span,) = walk_batches(body)
    return body[span.position : span.position + span.size]


@pytest.mark.parametrize("wanted", list(Codec))
@pytest.mark.parametrize("sent", list(Codec))
def test_a_topic_stores_the_codec_that_it_wants_and_the_producers_records(sent: Codec, wanted: Codec) -> None:
    """Only codec, length and checksum differ from what was sent; a batch that has the codec is kept as it is."""
    came = records(*SENT, codec=sent, producer_id=7, producer_epoch=3, base_sequence=9)
    batch = stored(replace(QUICK, compression=Compression(wanted)), came)
    header, before = read_batch_header(batch), read_batch_header(came)
    assert header.codec is wanted
    assert has_valid_crc(header, batch)
    assert list(records_in(batch)) == list(records_in(came))
    body = decompress(wanted, batch[HEADER_SIZE:])
    assert body == decompress(sent, came[HEADER_SIZE:])
    same = replace_fields(
        header,
        batch_length=before.batch_length,
        crc=before.crc,
        attributes=before.attributes,
        partition_leader_epoch=before.partition_leader_epoch,
    )
    assert same == before
    if sent is wanted:
        assert batch[HEADER_SIZE:] == bytes(came[HEADER_SIZE:])


def test_without_a_wish_of_the_topic_batches_are_kept_as_they_came() -> None:
    for codec in Codec:
        came = records(*SENT, codec=codec)
        assert Desk().writer.opens(came, True) is None
        assert stored(QUICK, came)[HEADER_SIZE:] == bytes(came[HEADER_SIZE:])


def test_the_logs_time_is_put_on_a_batch_that_was_compressed_anew() -> None:
    limits = replace(QUICK, compression=Compression(Codec.ZSTD), log_append_time=True)
    batch = stored(limits, records(*SENT, codec=Codec.GZIP))
    header = read_batch_header(batch)
    assert header.is_log_append_time
    assert header.codec is Codec.ZSTD
    assert has_valid_crc(header, batch)
    assert {record.timestamp for record in records_in(batch)} == {header.max_timestamp}


def test_what_is_too_large_as_the_topic_stores_it_is_refused() -> None:
    came = records(Record(value=bytes(100_000)), codec=Codec.ZSTD)
    for codec, error in ((Codec.NONE, ErrorCode.MESSAGE_TOO_LARGE), (Codec.GZIP, ErrorCode.NONE)):
        desk = Desk(replace(QUICK, compression=Compression(codec), max_message_bytes=50_000))
        if error:
            desk.append(1, came)
        else:
            desk.write(1, came)
        assert desk.error(1) is error


def test_a_batch_that_claims_more_records_than_come_out_of_it_is_not_stored_open() -> None:
    came = records(*SENT, codec=Codec.ZSTD)
    header = replace_fields(read_batch_header(came), records_count=100_000, last_offset_delta=99_999)
    desk = Desk(replace(QUICK, compression=Compression(Codec.NONE)))
    desk.append(1, memoryview(pack_batch(header, bytes(came[HEADER_SIZE:]))))
    assert desk.error(1) is ErrorCode.INVALID_RECORD


def test_a_batch_that_does_not_decompress_is_corrupt() -> None:
    came = records(*SENT, codec=Codec.ZSTD)
    broken = memoryview(pack_batch(read_batch_header(came), bytes(came[HEADER_SIZE:-9])))
    desk = Desk(replace(QUICK, compression=Compression(Codec.LZ4)))
    desk.append(1, broken)
    assert desk.error(1) is ErrorCode.CORRUPT_MESSAGE


def test_of_several_batches_each_keeps_its_sequences() -> None:
    sets = [records(*SENT[:2], codec=codec, producer_id=7, producer_epoch=0, base_sequence=2 * n)
            for n, codec in enumerate((Codec.GZIP, Codec.ZSTD, Codec.NONE))]  # fmt: skip
    desk = Desk(replace(QUICK, compression=Compression(Codec.ZSTD)))
    desk.append(1, memoryview(b"".join(map(bytes, sets))))
    desk.tick()
    (segment,) = [put for put in desk.actions if isinstance(put, PutObject) and put.part is Part.SEGMENT]
    body = b"".join(segment.body)
    headers = [read_batch_header(body, span.position) for span in walk_batches(body)]
    assert [(h.codec, h.base_offset, h.base_sequence) for h in headers] == [
        (Codec.ZSTD, 2 * n, 2 * n) for n in range(3)
    ]
    desk.upload()
    desk.commit()
    desk.append(2, memoryview(b"".join(map(bytes, sets))))
    assert (desk.error(2), desk.replies[2].base_offset) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize("limits", [QUICK, COMPACTED])
def test_a_batch_that_has_the_codec_keeps_its_level_beside_one_that_has_not(limits: Limits) -> None:
    open_one = records(*(Record(key=b"k", value=b"abc" * 400),) * 20)
    header, body = read_batch_header(open_one), bytes(open_one[HEADER_SIZE:])
    quick = pack_batch(replace_fields(header, attributes=int(Codec.GZIP)), compress(Codec.GZIP, body, 1))
    wanted = Compression(Codec.GZIP, 9)
    assert bytes(quick[HEADER_SIZE:]) != compress(Codec.GZIP, body, 9)
    found = opened(opening(memoryview(bytes(quick) + bytes(open_one)), replace(limits, compression=wanted)))
    assert found.recompressed is not None
    kept, packed = split_batches(found.recompressed)
    assert bytes(kept[1]) == bytes(quick)
    assert packed[1][HEADER_SIZE:] == compress(Codec.GZIP, body, 9)


def test_a_compacted_topic_looks_for_keys_before_it_compresses() -> None:
    limits = replace(COMPACTED, compression=Compression(Codec.GZIP))
    desk = Desk(limits)
    desk.append(1, records(KEYED, KEYLESS, codec=Codec.ZSTD))
    assert desk.error(1) is ErrorCode.INVALID_RECORD
    assert read_batch_header(stored(limits, records(KEYED, codec=Codec.ZSTD))).codec is Codec.GZIP
