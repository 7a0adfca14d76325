"""Batches told as message sets: what is left out, what fits, and what cannot be told."""

from __future__ import annotations

import struct

import pytest
from kafscale.wire import compression, message_sets
from kafscale.wire.batches import (
    pack_batch,
    read_batch_header,
)
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.message_sets import message_sets_of, messages_in
from kafscale.wire.records import Codec, Record, build_batch
from message_values import OLD_CODECS, PLENTY, finished, message, tell


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages_below_the_offset_are_left_out_and_a_wrapper_is_told_whole(magic: int) -> None:
    records = [Record(timestamp=5, value=b"%d" % n) for n in range(4)]
    for codec in OLD_CODECS:
        told = tell(build_batch(records, codec=codec, base_offset=10), magic, from_offset=12)
        first = 12 if codec is Codec.NONE else 10
        assert [r.offset for r in messages_in(told)] == list(range(first, 14))


def test_the_first_set_is_told_whatever_its_size_and_others_as_they_fit() -> None:
    batches = [build_batch([Record(timestamp=5, value=bytes(100))], base_offset=n) for n in range(3)]
    record_set = b"".join(batches)
    size = len(tell(batches[0], 1))
    for limit, count in ((0, 1), (2 * size - 1, 1), (2 * size, 2), (3 * size, 3)):
        assert len(finished(message_sets_of([record_set], 1, from_offset=0, bytes_max=limit))) == count
    assert len(finished(message_sets_of([record_set, record_set], 1, from_offset=0, bytes_max=PLENTY))) == 6


@pytest.mark.parametrize(("limit", "value"), [("records_max", 5), ("opened_bytes_max", 500)])
def test_a_batch_that_holds_too_much_is_refused_where_it_is_the_first_and_else_ends_the_answer(
    limit: str, value: int
) -> None:
    small = build_batch([Record(timestamp=5, value=b"v")], codec=Codec.GZIP)
    large = build_batch([Record(timestamp=5, value=bytes(100))] * 6, codec=Codec.GZIP, base_offset=1)
    ask = {"from_offset": 0, "bytes_max": PLENTY, limit: value}
    assert len(finished(message_sets_of([small + large + small], 1, **ask))) == 1
    with pytest.raises(WireError) as refused:
        finished(message_sets_of([large], 1, **ask))
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_headers_stay_closed_where_messages_are_told() -> None:
    """They are left out, and a few megabytes of them are gigabytes of objects."""
    record = Record(timestamp=5, value=b"v", headers=(("name", b"x" * 10),))
    batch = bytearray(build_batch([record]))
    body = bytes(batch[61:]).replace(
        b"name", b"\xff\xfe\xfd\xfc"
    )  # no text, which only a reader of headers finds
    (message,) = messages_in(tell(bytes(pack_batch(read_batch_header(batch), body)), 1))
    assert (message.value, message.headers) == (b"v", ())


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_messages_are_told_in_many_steps_and_come_out_the_same(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = build_batch([Record(timestamp=5, value=bytes(100))] * 50, codec=codec)
    whole = tell(batch, 1)
    monkeypatch.setattr(message_sets, "STEP_RECORDS", 10)
    monkeypatch.setattr(compression, "COMPRESSED_STEP_BYTES", 1 << 15)
    steps = message_sets_of([batch], 1, from_offset=0, bytes_max=PLENTY)
    for _ in range(5):
        next(steps)
    assert b"".join(finished(steps)) == whole == tell(batch, 1)


def test_control_batches_are_left_out_and_producers_forgotten() -> None:
    control = build_batch([Record(key=b"\0\0\0\1", value=b"\0\0\0\0\0\0")], control=True, base_offset=1)
    data = build_batch(
        [Record(timestamp=5, value=b"v", headers=(("h", b"x"),))],
        producer_id=7,
        producer_epoch=0,
        base_sequence=3,
    )
    assert tell(data + control, 1) == message(b"v")


def test_zstd_cannot_be_told_and_ends_what_was_begun() -> None:
    zstd = build_batch([Record(value=b"a")], codec=Codec.ZSTD)
    with pytest.raises(WireError) as refused:
        tell(zstd, 1)
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    plain = build_batch([Record(timestamp=5, value=b"v")])
    assert tell(plain + zstd + plain, 1) == message(b"v")


def test_a_batch_that_cannot_be_opened_is_corrupt() -> None:
    batch = bytearray(build_batch([Record(timestamp=5, value=b"v" * 50)], codec=Codec.GZIP))
    batch[-20] ^= 0xFF
    with pytest.raises(WireError) as refused:
        tell(bytes(batch), 0)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_time_that_does_not_fit_a_message_is_corrupt() -> None:
    """Brokers store batches unread, so the sum of base and delta may be anything."""
    batch = bytearray(build_batch([Record(timestamp=5), Record(timestamp=9)]))
    struct.pack_into(">q", batch, 27, (1 << 63) - 1)
    assert read_batch_header(batch).base_timestamp == (1 << 63) - 1
    with pytest.raises(WireError) as refused:
        tell(bytes(batch), 1)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
