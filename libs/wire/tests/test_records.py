"""Records: the same bytes as two clients write, read back from both, and nothing malformed gets through."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from aiokafka.record import default_records as aio_records
from hypothesis import given
from hypothesis import strategies as st
from kafscale.wire.batches import pack_batch
from kafscale.wire.compression import DECOMPRESSED_BYTES_MAX, compress
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.records import (
    HEADER_SIZE,
    Codec,
    Record,
    build_batch,
    read_batch_header,
    records_in,
)
from record_values import RECORDS, SOUND, batch_of, record_of
from wire_values import quick

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import default_records as kafka_records

KAFKA_PYTHON_CODECS = (Codec.NONE, Codec.GZIP, Codec.LZ4)  # the others need packages we do not have
BUILDERS = [
    *(("aiokafka", aio_records, codec) for codec in Codec),
    *(("kafka-python", kafka_records, codec) for codec in KAFKA_PYTHON_CODECS),
]
ORACLES = pytest.mark.parametrize(
    ("name", "oracle", "codec"), BUILDERS, ids=lambda v: str(getattr(v, "name", v))
)


def numbered(records: Sequence[Record], base: int = 0) -> list[Record]:
    return [msgspec.structs.replace(record, offset=base + n) for n, record in enumerate(records)]


def build_with(oracle: Any, codec: Codec, records: Sequence[Record]) -> bytes:
    builder = oracle.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for n, record in enumerate(records):
        headers = [(name, b"" if value is None else value) for name, value in record.headers]
        builder.append(n, timestamp=record.timestamp, key=record.key, value=record.value, headers=headers)
    return bytes(builder.build())


def without_null_headers(records: Sequence[Record]) -> list[Record]:
    return [
        msgspec.structs.replace(r, headers=tuple((name, value or b"") for name, value in r.headers))
        for r in records
    ]


@pytest.mark.oracle
@ORACLES
def test_we_read_what_other_clients_wrote(name: str, oracle: Any, codec: Codec) -> None:
    @quick(15)
    @given(RECORDS)
    def check(records: list[Record]) -> None:
        records = numbered(without_null_headers(records))
        batch = build_with(oracle, codec, records)
        header = read_batch_header(batch)
        assert list(records_in(batch)) == records
        if codec is Codec.NONE:
            ours = bytearray(build_batch(records))
            struct.pack_into(
                ">i", ours, 12, header.partition_leader_epoch
            )  # not under the CRC; theirs differ
            assert bytes(ours) == batch

    check()


@pytest.mark.oracle
@ORACLES
def test_other_clients_read_what_we_wrote(name: str, oracle: Any, codec: Codec) -> None:
    @quick(15)
    @given(RECORDS)
    def check(records: list[Record]) -> None:
        batch = oracle.DefaultRecordBatch(build_batch(records, codec=codec, base_offset=40))
        assert batch.validate_crc()
        theirs = [
            Record(r.offset, r.timestamp, r.key, r.value, tuple((name, value) for name, value in r.headers))
            for r in batch
        ]
        assert theirs == numbered(records, 40)

    check()


@given(RECORDS, st.sampled_from(list(Codec)), st.integers(0, 1 << 60))
@quick(60)
def test_records_survive_with_every_codec_and_offset(records: list[Record], codec: Codec, base: int) -> None:
    batch = build_batch(records, codec=codec, base_offset=base)
    assert list(records_in(memoryview(batch))) == numbered(records, base)


@given(st.binary(max_size=400), st.integers(1, 20), st.sampled_from(list(Codec)))
@quick(150)
def test_any_body_behind_a_header_is_records_or_a_wire_error(body: bytes, count: int, codec: Codec) -> None:
    header = read_batch_header(build_batch([Record(value=b"x")], codec=codec))
    header = msgspec.structs.replace(header, records_count=count, last_offset_delta=count - 1)
    for data in (body, compress(codec, body)):
        batch = bytes(pack_batch(header, data))
        try:
            assert len(list(records_in(batch))) == count
        except WireError:
            continue


MALFORMED = {
    "a varint of eleven bytes": b"\x80" * 10 + b"\x01",
    "a length varint of six bytes": b"\x80\x80\x80\x80\x80\x01",
    "a small length in six bytes": b"\x90\x80\x80\x80\x80\x00" + SOUND,
    "a timestamp above 64 bits": record_of(b"\x00" + b"\xff" * 9 + b"\x03" + b"\x00\x01\x01\x00"),
    "a length above 32 bits": b"\xff\xff\xff\xff\x7f",
    "a record length below zero": b"\x01",
    "a record longer than the batch": b"\x7e" + SOUND,
    "a key length of minus two": record_of(b"\x00\x00\x00\x03\x02v\x00"),
    "a value longer than its record": record_of(b"\x00\x00\x00\x01\x7ev\x00"),
    "a key of two gigabytes": record_of(b"\x00\x00\x00\xfe\xff\xff\xff\x0fk"),
    "more headers than bytes": record_of(b"\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f"),
    "headers below zero": record_of(b"\x00\x00\x00\x01\x01\x01"),
    "a header without a name": record_of(b"\x00\x00\x00\x01\x01\x02\x01\x01"),
    "a header name that is not text": record_of(b"\x00\x00\x00\x01\x01\x02\x02\xff\x01"),
    "bytes behind the headers": record_of(SOUND + b"\x00"),
    "a record that ends early": record_of(b"\x00\x00\x00\x01"),
    "an empty record": b"\x00",
    "bytes behind the last record": record_of(SOUND) + b"\x00",
    "a timestamp varint of eleven bytes": record_of(b"\x00" + b"\x80" * 10 + b"\x01\x00\x01\x01\x00"),
    "an offset outside the batch": record_of(b"\x00\x00\x02\x01\x01\x00"),
    "an offset below the batch": record_of(b"\x00\x00\x01\x01\x01\x00"),
    "nothing": b"",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_record_is_a_wire_error_and_corrupt(body: bytes) -> None:
    batch = batch_of(body)
    with pytest.raises(WireError) as refused:
        list(records_in(batch))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_the_sound_record_of_that_list_is_read() -> None:
    assert list(records_in(batch_of(record_of(SOUND)))) == [Record(0, 0, b"k", b"v")]


def test_a_timestamp_delta_may_take_ten_bytes() -> None:
    [record] = records_in(batch_of(record_of(b"\x00" + b"\xff" * 9 + b"\x01" + b"\x00\x01\x01\x00")))
    assert record.timestamp == -(1 << 63)


def test_a_batch_with_fewer_or_more_records_than_it_counts_is_refused() -> None:
    for count in (1, 3, 1 << 30):
        with pytest.raises(WireError):
            list(records_in(batch_of(record_of(SOUND) * 2, count)))


def test_offsets_need_not_be_consecutive_for_a_reader() -> None:
    gap = record_of(b"\x00\x00\x00\x02k\x01\x00") + record_of(b"\x00\x00\x04\x02k\x01\x00")
    batch = batch_of(gap, 2)
    header = msgspec.structs.replace(read_batch_header(batch), last_offset_delta=2)
    assert [record.offset for record in records_in(batch, header)] == [0, 2]


@pytest.mark.parametrize("number", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_named_as_such(number: int) -> None:
    batch = build_batch([Record()])
    header = msgspec.structs.replace(read_batch_header(batch), attributes=number)
    with pytest.raises(WireError) as refused:
        list(records_in(batch, header))
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_the_bound_reaches_the_reader_of_records() -> None:
    batch = build_batch([Record(value=bytes(100_000))], codec=Codec.ZSTD)
    with pytest.raises(WireError, match="decompresses to more"):
        list(records_in(batch, bytes_max=99_999))
    assert len(list(records_in(batch))) == 1
    assert DECOMPRESSED_BYTES_MAX >= 16 << 20


def test_a_batch_carries_the_producer_it_was_built_for() -> None:
    batch = build_batch(
        [Record()] * 3, producer_id=9, producer_epoch=2, base_sequence=(1 << 31) - 2, transactional=True
    )
    header = read_batch_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, (1 << 31) - 2)
    assert header.is_transactional
    assert len(batch) == HEADER_SIZE + 3 * 7
