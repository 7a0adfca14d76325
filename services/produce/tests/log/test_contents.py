"""What is found inside the batches of an append, and what the writer does with it."""

from __future__ import annotations

import random
from dataclasses import replace

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.log.segment import walk_batches
from kafscale.produce.log.contents import (
    FAULTS_MAX,
    LIGHT_BYTES_MAX,
    LIGHT_PACKED_BYTES_MAX,
    LIGHT_RECORDS_MAX,
    RECORDS_MAX,
    Contents,
    Opening,
    at_once,
    opened,
)
from kafscale.produce.log.model import Arrival, Limits, Part, PutObject, RecordFault
from kafscale.produce.log.producers import ProducerTable
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
from writer_desk import GATHERING, HEAD, QUICK, Desk

KEYED = Record(key=b"k", value=b"v")
KEYLESS = Record(value=b"v")
COMPACTED = replace(QUICK, keys_required=True)


WALL_MS = 1_700_000_000_000


def opening(record_set: memoryview, limits: Limits = COMPACTED) -> Opening:
    """Of a set that is sound from the outside, whatever its size."""
    return Opening(split_batches(record_set), limits, WALL_MS)


def in_parts(record_set: memoryview, limits: Limits = COMPACTED) -> Contents:
    """What an event loop does with a set that is not light."""
    parts = opening(record_set, limits)
    parts.unpack()
    for _ in parts.steps():
        pass
    parts.pack()
    return parts.contents()


def read(record_set: memoryview, limits: Limits = COMPACTED) -> Contents:
    """At once or in parts: the same comes of it."""
    found = in_parts(record_set, limits)
    light = at_once(split_batches(record_set), limits, WALL_MS)
    assert light is None or (light.rejection, list(light.batches)) == (None, list(found.batches))
    assert opened(split_batches(record_set), limits, WALL_MS) == found
    return found


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
    assert read(records(KEYED, empty, codec=codec)).rejection is None


def test_records_are_counted_over_all_batches_of_a_set() -> None:
    rejection = read(memoryview(bytes(records(KEYED, KEYED)) + bytes(records(KEYLESS)))).rejection
    assert rejection is not None
    assert [fault.record for fault in rejection.faults] == [2]


def test_more_faults_than_an_answer_holds_are_counted_in_its_message() -> None:
    rejection = read(records(*[KEYLESS] * (FAULTS_MAX + 5))).rejection
    assert rejection is not None
    assert len(rejection.faults) == FAULTS_MAX
    assert f"{FAULTS_MAX + 5} of {FAULTS_MAX + 5}" in (rejection.message or "")


@pytest.mark.parametrize("codec", list(Codec))
def test_a_record_that_cannot_be_read_is_named(codec: Codec) -> None:
    """INVALID_RECORD as in Kafka: on CORRUPT_MESSAGE clients send the same bytes until their time is over."""
    good = records(KEYED, KEYED)
    body = compress(codec, bytes(good[HEADER_SIZE:-1]) + b"\x63")
    header = replace_fields(read_batch_header(good), attributes=int(codec))
    whole = bytes(records(KEYED)) + bytes(pack_batch(header, body))
    rejection = read(memoryview(whole), QUICK).rejection
    assert rejection is not None
    assert rejection.error is ErrorCode.INVALID_RECORD
    assert [fault.record for fault in rejection.faults] == [2]
    assert "number 1 of its batch" in rejection.faults[0].message


def test_offsets_that_are_not_in_turn_are_refused() -> None:
    two, one = records(KEYED, KEYED), records(KEYED)
    body = bytes(one[HEADER_SIZE:]) * 2  # both records say that they are the first
    rejection = read(memoryview(pack_batch(read_batch_header(two), body))).rejection
    assert rejection is not None
    assert (rejection.error, rejection.faults[0].record) == (ErrorCode.INVALID_RECORD, 1)


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
    good = records(*[KEYED] * (LIGHT_RECORDS_MAX + 1), codec=codec)
    broken = bytearray(good)
    broken[-1] ^= 1
    known = ProducerTable()
    last = LIGHT_RECORDS_MAX
    known.record(7, 0, 0, last, 0, 0, wall_ms=0, committed=last + 1)
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
        assert not isinstance(desk.writer.opens(record_set, Arrival(WALL_MS)), Opening)
        desk.append(1, record_set)
        assert desk.error(1) is error
    desk = Desk(COMPACTED, replace(HEAD, next=last + 1), known)
    for seq in (0, last + 5):
        record_set = records(
            *[KEYED] * (last + 1), codec=codec, producer_id=7, producer_epoch=0, base_sequence=seq
        )
        assert desk.writer.opens(record_set, Arrival(WALL_MS)) is None
    assert isinstance(desk.writer.opens(good, Arrival(WALL_MS)), Opening)


def test_more_than_is_asked_for_does_not_come_out_and_is_tried_again_with_more_room() -> None:
    large = opening(records(Record(key=b"k", value=bytes(2 << 20)), codec=Codec.ZSTD))
    assert not large.unpack(1 << 20)
    assert large.bytes_held == 0
    assert large.unpack(3 << 20)
    assert large.bytes_held > 2 << 20


def test_what_comes_out_of_all_batches_of_a_set_is_bounded_together() -> None:
    one = records(Record(key=b"k", value=bytes(40 << 20)), codec=Codec.ZSTD)
    rejection = read(memoryview(bytes(one) * 2)).rejection
    assert rejection is not None
    assert rejection.error is ErrorCode.MESSAGE_TOO_LARGE


def test_the_headers_of_all_batches_of_a_set_are_bounded_together() -> None:
    """Records of as many headers as are allowed in all cost a second; each batch of a set could bring as many."""
    one = records(Record(key=b"k", headers=(("", None),) * (HEADERS_MAX // 2)), codec=Codec.ZSTD)
    assert read(memoryview(bytes(one) * 2)).rejection is None
    rejection = read(memoryview(bytes(one) * 3)).rejection
    assert rejection is not None
    assert rejection.error is ErrorCode.MESSAGE_TOO_LARGE


@given(body=st.binary(min_size=1, max_size=120), codec=st.sampled_from(list(Codec)), compressed=st.booleans())
def test_no_bytes_behind_a_sound_header_raise_anything(body: bytes, codec: Codec, compressed: bool) -> None:
    header = replace_fields(read_batch_header(records(KEYED)), attributes=int(codec))
    found = read(memoryview(pack_batch(header, compress(codec, body) if compressed else body)))
    assert found.rejection is None or found.rejection.error is not ErrorCode.NONE


@pytest.mark.parametrize("codec", list(Codec))
def test_only_what_takes_a_millisecond_is_opened_at_once(codec: Codec) -> None:
    def is_light(*wanted: Record, limits: Limits = QUICK) -> bool:
        return at_once(split_batches(records(*wanted, codec=codec)), limits, WALL_MS) is not None

    packed = codec is not Codec.NONE
    assert is_light(KEYED)
    assert is_light(*[KEYED] * LIGHT_RECORDS_MAX)
    assert not is_light(*[KEYED] * (LIGHT_RECORDS_MAX + 1))
    assert is_light(Record(value=bytes(LIGHT_BYTES_MAX + 1))) is not packed
    assert is_light(Record(value=random.Random(1).randbytes(LIGHT_PACKED_BYTES_MAX))) is not packed
    assert not is_light(Record(headers=(("h", None),) * 3_000))
    other = Codec.ZSTD if codec is Codec.GZIP else Codec.GZIP
    assert not is_light(KEYED, limits=replace(QUICK, compression=Compression(other)))


@pytest.mark.parametrize("codec", list(Codec))
def test_a_light_batch_may_follow_large_ones_that_are_not_compressed(codec: Codec) -> None:
    large = bytes(records(Record(value=bytes(2 * LIGHT_BYTES_MAX))))
    sets = split_batches(memoryview(large + bytes(records(KEYED, codec=codec)) * 2))
    found = at_once(sets, QUICK, WALL_MS)
    assert found is not None
    assert len(found.batches) == 3


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
    wrong, right = read(records(KEYED, KEYLESS)), read(records(KEYLESS), QUICK)
    desk = Desk(COMPACTED)
    for token, contents in ((1, wrong), (2, right)):
        desk.do(desk.writer.append, token, records(KEYLESS), deadline_ms=60_000, contents=contents)
    assert desk.replies[1].faults == (RecordFault(1, desk.replies[1].faults[0].message),)
    assert 2 not in desk.replies


def test_a_writer_opens_as_its_topic_is_now() -> None:
    desk, plain = Desk(), records(KEYLESS)
    for limits, refused in ((QUICK, False), (COMPACTED, True), (QUICK, False)):
        desk.writer.configure(limits, desk.now())
        found = desk.writer.opens(plain, Arrival(WALL_MS))
        assert isinstance(found, Opening) is refused
    desk.write(1, plain)
    assert desk.error(1) is ErrorCode.NONE


# --- the times of the header -------------------------------------------------------------------------


def lying(codec: Codec, **claims: int) -> memoryview:
    """Records at 1,000, 3,000 and 2,000 ms; the header says what it likes."""
    good = records(*(Record(timestamp=ms, value=b"v") for ms in (1_000, 3_000, 2_000)), codec=codec)
    return memoryview(
        pack_batch(replace_fields(read_batch_header(good), **claims), bytes(good[HEADER_SIZE:]))
    )


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("claim", [-1, -5, 0, 1_000, 3_000, 1 << 62])
@pytest.mark.parametrize("limits", [QUICK, replace(QUICK, compression=Compression(Codec.GZIP))])
def test_the_largest_timestamp_that_is_stored_is_that_of_the_records(
    codec: Codec, claim: int, limits: Limits
) -> None:
    batch = stored(limits, lying(codec, max_timestamp=claim))
    header = read_batch_header(batch)
    assert (header.max_timestamp, has_valid_crc(header, batch)) == (3_000, True)
    assert [record.timestamp for record in records_in(batch)] == [1_000, 3_000, 2_000]


def test_the_bounds_of_a_segment_are_those_of_its_records() -> None:
    desk = Desk(GATHERING)
    earlier = records(Record(timestamp=5_000), Record(timestamp=500))  # the first is not the oldest
    for token, batch in ((1, lying(Codec.NONE, max_timestamp=1 << 62)), (2, earlier)):
        desk.append(token, batch)
    desk.store(desk.seal())
    desk.commit()
    (seg,) = desk.writer.head.tail
    assert (seg.min_ts, seg.max_ts, desk.writer.head.max_ts) == (500, 5_000, 5_000)


def test_a_header_that_is_right_is_stored_with_the_clients_checksum() -> None:
    came = lying(Codec.NONE)
    assert read_batch_header(stored(QUICK, came)).crc == read_batch_header(came).crc


def test_where_all_producers_are_trusted_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and bounds in the past are looked for even so: no header says them."""
    trusting = replace(QUICK, trusts_headers=True)
    for module in ("survey_at_once", "decompress"):
        monkeypatch.setattr(f"kafscale.produce.log.contents.{module}", lambda *_, **__: pytest.fail("opened"))
    batch = stored(trusting, lying(Codec.ZSTD, max_timestamp=9_000))
    assert read_batch_header(batch).max_timestamp == 9_000
    monkeypatch.undo()
    assert read(records(KEYLESS), replace(COMPACTED, trusts_headers=True)).rejection is not None


def test_batches_that_were_made_of_a_message_set_are_not_walked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()
    monkeypatch.setattr("kafscale.produce.log.contents.survey_at_once", lambda *_: pytest.fail("walked"))
    found = desk.writer.opens(lying(Codec.NONE, max_timestamp=3_000), Arrival(WALL_MS, converted=True))
    assert isinstance(found, Contents)
    assert [each.newest_ms for each in found.batches] == [3_000]


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


@pytest.mark.parametrize("limits", [QUICK, replace(QUICK, compression=Compression(Codec.LZ4))])
@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_batch_that_does_not_decompress_is_refused(codec: Codec, limits: Limits) -> None:
    came = records(*SENT, codec=codec)
    for body in (bytes(came[HEADER_SIZE:-9]), b"garbage" * 10, compress(codec, b"")):
        rejection = read(memoryview(pack_batch(read_batch_header(came), body)), limits).rejection
        assert rejection is not None
        assert rejection.error is ErrorCode.INVALID_RECORD


def test_lz4_that_javas_clients_cannot_read_is_refused() -> None:
    """They stop behind the first frame, and refuse blocks that depend on each other. librdkafka reads both."""
    came = records(*SENT, codec=Codec.LZ4)
    body = decompress(Codec.LZ4, came[HEADER_SIZE:])
    linked = cramjam.lz4.Compressor(block_linked=True, content_checksum=False)
    linked.compress(body)
    two = compress(Codec.LZ4, body[:50]) + compress(Codec.LZ4, body[50:])
    skipped = b"\x50\x2a\x4d\x18\x04\x00\x00\x00\x60\x40\x82\x00" + compress(Codec.LZ4, body)
    for frames in (bytes(linked.finish()), two, skipped):
        assert decompress(Codec.LZ4, frames) == body
        rejection = read(memoryview(pack_batch(read_batch_header(came), frames)), QUICK).rejection
        assert rejection is not None
        assert rejection.error is ErrorCode.INVALID_RECORD


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
    found = read(memoryview(bytes(quick) + bytes(open_one)), replace(limits, compression=wanted))
    kept, packed = found.batches
    assert bytes(kept.batch) == bytes(quick)
    assert packed.batch[HEADER_SIZE:] == compress(Codec.GZIP, body, 9)
    assert found.grown_bytes == len(packed.batch)


def test_a_compacted_topic_looks_for_keys_before_it_compresses() -> None:
    limits = replace(COMPACTED, compression=Compression(Codec.GZIP))
    desk = Desk(limits)
    desk.append(1, records(KEYED, KEYLESS, codec=Codec.ZSTD))
    assert desk.error(1) is ErrorCode.INVALID_RECORD
    assert read_batch_header(stored(limits, records(KEYED, codec=Codec.ZSTD))).codec is Codec.GZIP
