"""Message sets: the same messages as two clients of that format write and read, and nothing malformed gets through."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from zlib import crc32

import pytest
from aiokafka.record import legacy_records as aio_records
from hypothesis import given
from hypothesis import strategies as st
from kafscale.wire import message_sets
from kafscale.wire.batches import (
    split_batches,
    stamp_log_append_time,
    validate_batch,
)
from kafscale.wire.compression import compress, lz4_header_checksum
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.message_sets import batches_of, is_message_set, messages_in
from kafscale.wire.records import Codec, Record, build_batch, records_in
from message_values import OLD_CODECS, as_told, message, numbered, tell, wrapper
from wire_values import quick

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import legacy_records as kafka_records
    from kafka.record.memory_records import MemoryRecords

KAFKA_PYTHON_CODECS = (Codec.NONE, Codec.GZIP, Codec.LZ4)  # snappy needs a package that we do not have
WRITERS = [
    *(
        (kafka_records.LegacyRecordBatchBuilder, magic, codec)
        for magic in (0, 1)
        for codec in KAFKA_PYTHON_CODECS
    ),
    # aiokafka has no LZ4 of magic 0.
    *((aio_records.LegacyRecordBatchBuilder, 0, codec) for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY)),
    *((aio_records.LegacyRecordBatchBuilder, 1, codec) for codec in OLD_CODECS),
]
READABLE = [*((0, codec) for codec in KAFKA_PYTHON_CODECS), *((1, codec) for codec in KAFKA_PYTHON_CODECS)]
BYTES = st.none() | st.binary(max_size=200)
MESSAGES = st.lists(
    st.builds(Record, timestamp=st.integers(0, 1 << 41), key=BYTES, value=BYTES), min_size=1, max_size=8
)


def written_by(builder: Any, magic: int, codec: Codec, records: Sequence[Record]) -> bytes:
    made = builder(magic, int(codec), 1 << 20)
    for n, record in enumerate(records):
        made.append(n, record.timestamp if magic else None, record.key, record.value)
    return bytes(made.build())


def code_of(message_set: bytes) -> ErrorCode:
    with pytest.raises(WireError) as refused:
        batches_of(message_set)
    return refused.value.code


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("builder", "magic", "codec"), WRITERS, ids=lambda v: getattr(v, "name", getattr(v, "__module__", str(v)))
)
def test_what_other_clients_wrote_is_one_batch_of_the_same_records(
    builder: Any, magic: int, codec: Codec
) -> None:
    @quick(15)
    @given(MESSAGES)
    def check(records: list[Record]) -> None:
        message_set = written_by(builder, magic, codec, records)
        expected = as_told(numbered(records), magic)
        assert is_message_set(message_set)
        assert list(messages_in(message_set)) == expected
        ((header, batch),) = split_batches(batches_of(message_set))
        assert validate_batch(header, batch) is ErrorCode.NONE
        assert header.codec is codec
        assert header.max_timestamp == max(record.timestamp for record in expected)
        assert list(records_in(batch)) == expected

    check()


@pytest.mark.oracle
@pytest.mark.parametrize(("magic", "codec"), READABLE)
def test_other_clients_read_what_we_tell(magic: int, codec: Codec) -> None:
    @quick(15)
    @given(MESSAGES)
    def check(records: list[Record]) -> None:
        told = MemoryRecords(tell(build_batch(records, codec=codec, base_offset=40), magic))
        theirs = []
        while told.has_next():
            batch = told.next_batch()
            assert batch.validate_crc()
            for r in batch:
                assert r.validate_crc()
                theirs.append(Record(r.offset, r.timestamp if magic else -1, r.key, r.value))
        assert theirs == as_told(numbered(records, 40), magic)

    check()


@pytest.mark.oracle
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_aiokafka_reads_what_we_tell(codec: Codec) -> None:
    records = [Record(timestamp=1_000 + n, key=b"k%d" % n, value=b"v" * n) for n in range(20)]
    told = tell(build_batch(records, codec=codec, base_offset=40), 1)
    alone = messages_of(told) if codec is Codec.NONE else [told]
    theirs = [r for each in alone for r in aio_records.LegacyRecordBatch(each, 1)]
    assert [Record(r.offset, r.timestamp, r.key, r.value) for r in theirs] == numbered(records, 40)


def messages_of(message_set: bytes) -> list[bytes]:
    found = []
    while message_set:
        end = 12 + struct.unpack_from(">i", message_set, 8)[0]
        found.append(message_set[:end])
        message_set = message_set[end:]
    return found


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_there_and_back_is_the_same(magic: int, codec: Codec) -> None:
    @quick(25)
    @given(MESSAGES, st.integers(1, 1 << 40))
    def check(records: list[Record], base: int) -> None:
        told = tell(build_batch(records, codec=codec, base_offset=base), magic)
        assert list(messages_in(told)) == as_told(numbered(records, base), magic)
        assert list(records_in(batches_of(told))) == as_told(numbered(records), magic)

    check()


def test_the_bytes_of_the_format() -> None:
    """As kafka-python 3.0.12 builds them."""
    batch = build_batch([Record(timestamp=1_700_000_000_000, key=b"key", value=b"value")], base_offset=7)
    assert tell(batch, 0) == bytes.fromhex(
        "0000000000000007 00000016 2356c137 00 00 00000003 6b6579 00000005 76616c7565"
    )
    assert tell(batch, 1) == bytes.fromhex(
        "0000000000000007 0000001e 6ad05db8 01 00 0000018bcfe56800 00000003 6b6579 00000005 76616c7565"
    )


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_has_the_last_offset_and_inside_magic_1_counts_from_zero(magic: int) -> None:
    told = tell(
        build_batch([Record(value=b"a"), Record(value=b"b")], codec=Codec.SNAPPY, base_offset=40), magic
    )
    (offset,) = struct.unpack_from(">q", told)
    body = message_sets.decompress(Codec.SNAPPY, told[26 if magic == 0 else 34 :])
    inner = [struct.unpack_from(">q", each)[0] for each in messages_of(body)]
    assert (offset, inner) == (41, [0, 1] if magic else [40, 41])


@pytest.mark.parametrize("magic", [0, 1])
def test_the_log_s_time_is_told_in_magic_1_and_by_the_bit_of_it(magic: int) -> None:
    for codec in OLD_CODECS:
        batch = bytearray(build_batch([Record(timestamp=5, value=b"a")] * 3, codec=codec))
        stamp_log_append_time(batch, 99)
        told = tell(bytes(batch), magic)
        assert [r.timestamp for r in messages_in(told)] == [99 if magic else -1] * 3
        assert [bool(each[17] & 0x08) for each in messages_of(told)] == [magic == 1] * len(messages_of(told))
    wrapped = wrapper(message(timestamp=1), message(timestamp=2), timestamp=77)
    stamped = message(wrapped[34:], attributes=Codec.GZIP | 0x08, timestamp=77)
    assert [r.timestamp for r in messages_in(stamped)] == [77, 77]
    assert code_of(stamped) is ErrorCode.INVALID_TIMESTAMP


def test_a_wrapper_left_at_offset_zero_counts_from_zero() -> None:
    inner = [message(b"a", offset=0), message(b"b", offset=1)]
    assert [r.offset for r in messages_in(wrapper(*inner, offset=0))] == [0, 1]
    assert [r.offset for r in messages_in(wrapper(*inner, offset=9))] == [8, 9]


def test_runs_of_plain_messages_and_wrappers_become_batches_in_their_order() -> None:
    message_set = (
        message(b"a")
        + message(b"b", timestamp=3)
        + wrapper(message(b"c"), message(b"d"))
        + wrapper(message(b"e"), codec=Codec.LZ4)
        + message(b"f")
    )
    batches = split_batches(batches_of(message_set))
    assert [header.codec for header, _ in batches] == [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.NONE]
    assert [[r.value for r in records_in(batch)] for _, batch in batches] == [
        [b"a", b"b"],
        [b"c", b"d"],
        [b"e"],
        [b"f"],
    ]
    assert all(header.base_offset == 0 and header.producer_id == -1 for header, _ in batches)
    assert (batches[0][0].base_timestamp, batches[0][0].max_timestamp) == (5, 5)


# --- LZ4 of magic 0 ----------------------------------------------------------------------------------


def test_lz4_of_magic_0_has_the_checksum_of_its_clients_and_magic_1_the_right_one() -> None:
    batch = build_batch([Record(value=b"a")], codec=Codec.LZ4)
    zero, one = tell(batch, 0)[26:], tell(batch, 1)[34:]
    assert zero == lz4_header_checksum(zero, broken=True) != lz4_header_checksum(zero, broken=False)
    assert one == lz4_header_checksum(one, broken=False) != lz4_header_checksum(one, broken=True)


def test_lz4_of_magic_0_is_read_with_either_checksum_and_magic_1_with_the_right_one() -> None:
    for magic in (0, 1):
        right = compress(Codec.LZ4, message(magic=magic))
        broken = lz4_header_checksum(right, broken=True)
        assert list(records_in(batches_of(message(right, magic=magic, attributes=Codec.LZ4))))
        told_broken = message(broken, magic=magic, attributes=Codec.LZ4)
        if magic:
            assert code_of(told_broken) is ErrorCode.CORRUPT_MESSAGE
        else:
            assert list(records_in(batches_of(told_broken)))
    for cut in range(7):
        assert code_of(message(right[:cut], magic=0, attributes=Codec.LZ4)) is ErrorCode.CORRUPT_MESSAGE


# --- what is refused ---------------------------------------------------------------------------------


def other_crc(message_set: bytes) -> bytes:
    return message_set[:12] + bytes([message_set[12] ^ 1]) + message_set[13:]


SPARE_BYTE = struct.pack(">qiI", 0, 23, crc32(message()[16:] + b"x")) + message()[16:] + b"x"
REFUSED = {
    "nothing": (b"", ErrorCode.CORRUPT_MESSAGE),
    "a batch": (build_batch([Record(value=b"a")]), ErrorCode.INVALID_RECORD),
    "a batch behind messages": (message() + build_batch([Record(value=b"a")]), ErrorCode.INVALID_RECORD),
    "another magic": (message(magic=0) + message(magic=1), ErrorCode.INVALID_RECORD),
    "another magic inside": (wrapper(message(magic=0)), ErrorCode.INVALID_RECORD),
    "a message cut short": (message() + message()[:-1], ErrorCode.CORRUPT_MESSAGE),
    "a message's head cut short": (message() + message()[:17], ErrorCode.CORRUPT_MESSAGE),
    "a checksum": (other_crc(message()), ErrorCode.CORRUPT_MESSAGE),
    "a wrapper's checksum": (other_crc(wrapper(message())), ErrorCode.CORRUPT_MESSAGE),
    "a checksum inside": (wrapper(other_crc(message())), ErrorCode.CORRUPT_MESSAGE),
    "a message cut short inside": (wrapper(message() + message()[:20]), ErrorCode.CORRUPT_MESSAGE),
    "a byte too many": (SPARE_BYTE, ErrorCode.CORRUPT_MESSAGE),
    "a wrapper inside a wrapper": (wrapper(wrapper(message())), ErrorCode.INVALID_RECORD),
    "a wrapper without a value": (message(None, attributes=Codec.GZIP), ErrorCode.INVALID_RECORD),
    "a wrapper around nothing": (wrapper(b""), ErrorCode.INVALID_RECORD),
    "a broken frame": (message(b"no gzip", attributes=Codec.GZIP), ErrorCode.CORRUPT_MESSAGE),
    "zstd": (wrapper(message(), codec=Codec.ZSTD), ErrorCode.INVALID_RECORD),
    "codec 7": (message(attributes=7), ErrorCode.INVALID_RECORD),
    "the log's time": (message(attributes=0x08), ErrorCode.INVALID_TIMESTAMP),
    "a time below none": (message(timestamp=-2), ErrorCode.INVALID_TIMESTAMP),
    "a time too late": (message(timestamp=(1 << 63) - 1), ErrorCode.INVALID_TIMESTAMP),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_set_is_refused_with_its_code(name: str) -> None:
    message_set, code = REFUSED[name]
    assert code_of(message_set) is code


def test_lengths_that_do_not_fit_are_refused() -> None:
    for at, size in ((26, -2), (26, 1 << 30), (30, -2), (30, 5)):
        broken = bytearray(message())
        struct.pack_into(">i", broken, at, size)
        struct.pack_into(">I", broken, 12, crc32(broken[16:]))
        assert code_of(bytes(broken)) is ErrorCode.CORRUPT_MESSAGE


def test_what_comes_out_of_all_wrappers_together_is_bounded() -> None:
    bomb = wrapper(message(bytes(400_000)))
    assert len(bomb) < 1_000
    batches_of(bomb * 2, bytes_max=1_000_000)
    with pytest.raises(WireError, match="more than 199932 bytes") as refused:
        batches_of(bomb * 3, bytes_max=1_000_000)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_messages_are_counted_over_the_whole_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_sets, "RECORDS_MAX", 4)
    batches_of(message() * 2 + wrapper(message() * 2))
    assert code_of(message() * 2 + wrapper(message() * 3)) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_mutated_sets_are_converted_or_refused_and_nothing_else(codec: Codec) -> None:
    @quick(300)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        magic = data.draw(st.integers(0, 1))
        inner = b"".join(message(b"value %d" % n, magic=magic, key=b"k", offset=n) for n in range(3))
        whole = (
            inner if codec is Codec.NONE else message(compress(codec, inner), magic=magic, attributes=codec)
        )
        broken = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 4))):
            broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
        del broken[data.draw(st.integers(len(broken) // 2, len(broken))) :]
        if data.draw(st.booleans()) and len(broken) > 16:  # past the first check
            struct.pack_into(">I", broken, 12, crc32(broken[16:]))
            struct.pack_into(">i", broken, 8, len(broken) - 12)
        for read in (batches_of, lambda found: list(messages_in(found))):
            with suppress(WireError):
                read(bytes(broken))

    check()
