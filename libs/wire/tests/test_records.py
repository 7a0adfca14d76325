"""Records: the same bytes as two clients write, read back from both, and nothing malformed gets through."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
import warnings
from collections.abc import Sequence
from typing import Any

import cramjam
import msgspec
import pytest
from aiokafka.record import default_records as aio_records
from hypothesis import given
from hypothesis import strategies as st
from kafscale.wire.batches import pack_batch
from kafscale.wire.compression import DECOMPRESSED_BYTES_MAX, compress, decompress
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.records import (
    HEADER_SIZE,
    HEADERS_MAX,
    PORTION,
    Codec,
    HeaderBudget,
    Record,
    build_batch,
    keyless_in,
    places_in,
    read_batch_header,
    records_in,
    signed_varint,
)
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
NUMBERS = st.integers(0, 1 << 41)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3)
RECORDS = st.lists(
    st.builds(
        Record,
        timestamp=NUMBERS,
        key=st.none() | st.binary(max_size=300),
        value=st.none() | st.binary(max_size=300),
        headers=HEADERS.map(tuple),
    ),
    min_size=1,
    max_size=8,
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


def batch_of(body: bytes, count: int = 1) -> bytes:
    """An uncompressed batch around hand-made record bytes."""
    header = msgspec.structs.replace(
        read_batch_header(build_batch([Record(timestamp=0)])),
        records_count=count,
        last_offset_delta=count - 1,
    )
    return bytes(pack_batch(header, body))


def record_of(data: bytes) -> bytes:
    return bytes((2 * len(data),)) + data


SOUND = b"\x00\x00\x00\x02k\x02v\x00"
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
    with pytest.raises(WireError, match="over 1000000 headers"):
        list(keyless_in(batch[HEADER_SIZE:], read_batch_header(batch)))


def place_of(delta: int, record: bytes) -> bytes:
    """The record with this offset delta, a number of one byte."""
    at = record.index(b"\x00\x00\x00") + 2
    return record[:at] + bytes((2 * delta,)) + record[at + 1 :]


def test_as_many_headers_as_the_bound_are_read_and_one_more_is_not() -> None:
    batch = batch_of(headers_of(3) + place_of(1, headers_of(2)), 2)
    header = read_batch_header(batch)
    assert [len(record.headers) for record in records_in(batch, headers_max=5)] == [3, 2]
    assert list(keyless_in(batch[HEADER_SIZE:], header, HeaderBudget(5))) == [[]]
    with pytest.raises(WireError, match="over 4 headers"):
        list(records_in(batch, headers_max=4))
    with pytest.raises(WireError, match="over 4 headers"):
        list(keyless_in(batch[HEADER_SIZE:], header, HeaderBudget(4)))
    assert HEADERS_MAX >= 1_000_000


def test_no_walk_goes_over_more_records_than_a_client_may_send() -> None:
    header = msgspec.structs.replace(
        read_batch_header(build_batch([Record()])), records_count=1_000_001, last_offset_delta=1_000_000
    )
    body = record_of(SOUND) * 1_000_001
    batch = bytes(pack_batch(header, body))
    for walk in (records_in(batch), places_in(batch), keyless_in(body, header)):
        with pytest.raises(WireError, match="1000001 records") as refused:
            next(iter(walk))
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_record_that_ends_inside_its_key_or_value_does_not_borrow_from_the_next() -> None:
    for cut in (record_of(b"\x00\x00\x00"), record_of(b"\x00\x00\x00\x01")):
        batch = batch_of(cut + b"\x01\x01\x01\x01\x01", 1)
        with pytest.raises(WireError):
            next(records_in(batch, headers=False))


def test_a_null_key_is_none_however_many_bytes_say_so() -> None:
    assert keyless_of(batch_of(record_of(b"\x00\x00\x00\x81\x00\x01\x00"))) == [0]


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


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_a_bomb_is_refused_within_its_bound(codec: Codec) -> None:
    bomb = compress(codec, bytes(32 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="come out"):
            decompress(codec, bomb, bytes_max=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_kilobyte_that_says_it_holds_four_gigabytes_is_refused() -> None:
    with pytest.raises(WireError):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(1000))
    with pytest.raises(WireError):
        decompress(Codec.NONE, bytes(11), bytes_max=10)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
@pytest.mark.parametrize("size", [0, 1, 70_000, 1 << 20])
def test_output_of_any_size_up_to_the_bound_comes_out_whole(codec: Codec, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert decompress(codec, memoryview(compress(codec, data)), bytes_max=max(size, 1)) == data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_a_frame_cut_short_is_a_wire_error(codec: Codec) -> None:
    data = compress(codec, b"some records, some records, some more records" * 9)
    for cut in range(1, len(data)):
        try:
            out = decompress(codec, data[:cut])
        except WireError:
            continue
        assert (codec, len(out)) == (Codec.SNAPPY, 0), f"{cut} of {len(data)} bytes gave {len(out)}"
        assert cut == 16  # snappy-java's header alone is an empty stream


def test_snappy_is_read_raw_as_librdkafka_may_send_it_and_framed_as_java_does() -> None:
    data = b"records" * 20_000
    framed = compress(Codec.SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Codec.SNAPPY, framed) == data
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    with pytest.raises(WireError, match="come out"):
        decompress(Codec.SNAPPY, framed, bytes_max=len(data) - 1)


def test_lz4_is_written_in_independent_blocks_without_a_content_checksum() -> None:
    flags = compress(Codec.LZ4, b"x" * 100)[4]
    assert flags & 0b0010_0000, "blocks must be independent: Java refuses linked ones"
    assert not flags & 0b0000_0100, "no content checksum"
    assert flags >> 6 == 1


def test_concatenated_frames_are_read_through() -> None:
    for codec in (Codec.GZIP, Codec.ZSTD, Codec.LZ4):
        assert decompress(codec, compress(codec, b"one") + compress(codec, b"two")) == b"onetwo"


def test_the_bound_reaches_the_reader_of_records() -> None:
    batch = build_batch([Record(value=bytes(100_000))], codec=Codec.ZSTD)
    with pytest.raises(WireError, match="come out"):
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


# --- keys without records ---------------------------------------------------------------------------


def keyless_of(batch: bytes) -> list[int]:
    header = read_batch_header(batch)
    body = decompress(header.codec, memoryview(batch)[HEADER_SIZE:])
    return [place for portion in keyless_in(body, header) for place in portion]


@quick(200)
@given(records=RECORDS, codec=st.sampled_from(list(Codec)))
def test_records_without_a_key_are_found_without_making_records(records: list[Record], codec: Codec) -> None:
    expected = [place for place, record in enumerate(records) if record.key is None]
    assert keyless_of(build_batch(records, codec=codec)) == expected


@quick(200)
@given(body=st.binary(max_size=60), count=st.integers(1, 6))
def test_what_is_no_record_for_one_reader_is_none_for_the_other(body: bytes, count: int) -> None:
    """Both take the same bodies, where the offsets follow one another."""
    header = msgspec.structs.replace(
        read_batch_header(build_batch([Record()] * count)), records_count=count, last_offset_delta=count - 1
    )
    batch = bytes(HEADER_SIZE) + body
    made: list[Record] | None = None
    with contextlib.suppress(WireError):
        made = list(records_in(batch, header))
    found: list[int] | None = None
    with contextlib.suppress(WireError):
        found = [place for portion in keyless_in(body, header) for place in portion]
    if made is not None and [record.offset for record in made] != list(range(count)):
        made = None
    assert (found is None) == (made is None)
    if made is not None:
        assert found == [place for place, record in enumerate(made) if record.key is None]


def test_a_portion_is_few_records_or_few_headers_or_a_part_of_a_long_name() -> None:
    many = build_batch([Record(key=b"k")] * (4 * PORTION + 1))
    one = build_batch([Record(key=b"k", headers=(("h", b"v"),) * (4 * PORTION))])
    long = build_batch([Record(key=b"k", headers=(("\u00e9" * (128 << 10), None),))])
    for batch in (many, one, long):
        header = read_batch_header(batch)
        assert len(list(keyless_in(batch[HEADER_SIZE:], header))) == 5


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_long_name_that_is_no_text_is_refused(place: int) -> None:
    batch = bytearray(build_batch([Record(key=b"k", headers=(("n" * (200 << 10), None),))]))
    start = bytes(batch).index(b"nnn")
    batch[start + place % (200 << 10)] = 0xFF
    with pytest.raises(WireError, match="not text"):
        list(keyless_in(bytes(batch[HEADER_SIZE:]), read_batch_header(batch)))


# --- levels -----------------------------------------------------------------------------------------

TEXT = b"".join(b"%d of some records, %d\n" % (n * n, n % 77) for n in range(20_000))


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, (-1, 1, 9)), (Codec.LZ4, (1, 9, 17)), (Codec.ZSTD, (-131_072, -1, 3, 22))],
)
def test_what_any_of_kafkas_levels_wrote_is_read_back(codec: Codec, levels: tuple[int, ...]) -> None:
    sizes = set()
    for level in levels:
        data = compress(codec, TEXT, level)
        assert decompress(codec, data) == TEXT
        sizes.add(len(data))
    assert len(sizes) > 1, "a level makes a difference"


def test_kafkas_default_level_of_lz4_is_the_fast_compressor() -> None:
    assert len(compress(Codec.LZ4, TEXT, 9)) > 1.1 * len(compress(Codec.LZ4, TEXT, 8))


@pytest.mark.parametrize(("size", "most"), [(1 << 20, 19), ((1 << 20) + 1, 12), ((8 << 20) + 1, 3)])
def test_large_bodies_get_no_level_of_zstd_that_takes_seconds(
    size: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []

    def noted(data: bytes, level: int | None = None) -> bytes:
        asked.append(level)
        return data

    monkeypatch.setattr(cramjam.zstd, "compress", noted)
    for level in (22, 1, -5, None):
        compress(Codec.ZSTD, bytes(size), level)
    assert asked == [most, 1, -5, None]
