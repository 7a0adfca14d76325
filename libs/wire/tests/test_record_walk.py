"""The walk over a batch's records, and the readers that make none: what each finds, and what bounds it."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.wire.batches import pack_batch
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.record_walk import HEADERS_MAX, places_in
from kafscale.wire.records import (
    Codec,
    Record,
    build_batch,
    read_batch_header,
    records_in,
    signed_varint,
)
from record_values import RECORDS, SOUND, batch_of, record_of
from wire_values import quick


@given(RECORDS, st.sampled_from(list(Codec)), st.integers(0, 1 << 40), st.sampled_from([None, 77]))
@quick(60)
def test_places_are_those_of_the_records(
    records: list[Record], codec: Codec, base: int, stamp: int | None
) -> None:
    batch = build_batch(records, codec=codec, base_offset=base, log_append_time_ms=stamp)
    opened = [(record.offset, record.timestamp) for record in records_in(batch)]
    assert list(places_in(batch)) == opened
    closed = list(records_in(batch, headers=False))
    assert closed == [msgspec.structs.replace(record, headers=()) for record in records_in(batch)]


@pytest.mark.parametrize(
    "body", [b"", b"\x00", b"\x00\x80", b"\x00\x00\x80\x80\x80\x80\x80\x01", b"\x00\x00\x04"]
)
def test_a_place_that_is_cut_short_or_outside_its_batch_is_a_wire_error(body: bytes) -> None:
    header = msgspec.structs.replace(read_batch_header(build_batch([Record()])), records_count=1)
    batch = bytes(pack_batch(header, bytes([2 * len(body)]) + body))
    with pytest.raises(WireError):
        list(places_in(batch))


def test_a_step_over_a_record_does_not_look_into_it() -> None:
    """Four million headers in one record would be a gigabyte of objects, and seconds without a step."""
    body = b"\x00\x00\x00\x01\x01" + b"\xff" * (8 << 20)
    data = signed_varint(len(body)) + body
    header = msgspec.structs.replace(read_batch_header(build_batch([Record(timestamp=5)])), records_count=1)
    tracemalloc.start()
    assert list(places_in(bytes(pack_batch(header, data)))) == [(0, 5)]
    (closed,) = records_in(bytes(pack_batch(header, data)), headers=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert closed.headers == ()
    assert peak < 8 * len(data)


def headers_of(count: int) -> bytes:
    """A record of so many headers, each with an empty name and no value."""
    body = b"\x00\x00\x00\x02k\x01" + signed_varint(count) + b"\x00\x01" * count
    return signed_varint(len(body)) + body


@pytest.mark.parametrize("records", [1, 64])
def test_the_headers_of_a_batch_are_bounded_before_they_are_made(records: int) -> None:
    """Sixteen megabytes of the smallest headers would be half a gigabyte of objects."""
    batch = batch_of(b"".join(place_of(n, headers_of((8 << 20) // records)) for n in range(records)), records)
    tracemalloc.start()
    with pytest.raises(WireError, match="over 1000000 headers") as refused:
        for _ in records_in(batch):
            pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert peak < 3 * len(batch)


def place_of(delta: int, record: bytes) -> bytes:
    """The record with this offset delta, a number of one byte."""
    at = record.index(b"\x00\x00\x00") + 2
    return record[:at] + bytes((2 * delta,)) + record[at + 1 :]


def test_as_many_headers_as_the_bound_are_read_and_one_more_is_not() -> None:
    batch = batch_of(headers_of(3) + place_of(1, headers_of(2)), 2)
    assert [len(record.headers) for record in records_in(batch, headers_max=5)] == [3, 2]
    with pytest.raises(WireError, match="over 4 headers"):
        list(records_in(batch, headers_max=4))
    assert HEADERS_MAX >= 1_000_000


def test_no_walk_goes_over_more_records_than_a_client_may_send() -> None:
    header = msgspec.structs.replace(
        read_batch_header(build_batch([Record()])), records_count=1_000_001, last_offset_delta=1_000_000
    )
    body = record_of(SOUND) * 1_000_001
    batch = bytes(pack_batch(header, body))
    for walk in (records_in(batch), places_in(batch)):
        with pytest.raises(WireError, match="1000001 records") as refused:
            next(iter(walk))
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_record_that_ends_inside_its_key_or_value_does_not_borrow_from_the_next() -> None:
    for cut in (record_of(b"\x00\x00\x00"), record_of(b"\x00\x00\x00\x01")):
        batch = batch_of(cut + b"\x01\x01\x01\x01\x01", 1)
        with pytest.raises(WireError):
            next(records_in(batch, headers=False))
