"""Rows equal what a consumer is given: kafka-python decodes beside, of batches by three writers with every codec.

What brokers do to batches is done to them here: places in a log with gaps, the log's time, records that compaction
took out. What a consumer of committed records leaves out is left out, by Kafka's own rule: data goes with its marker.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.lake.columns import Wanted, read_columns
from kafscale.lake.heads import scan_heads, without_aborted
from kafscale.log.heads import Aborted
from kafscale.wire.batches import BatchHeader, crc32c, pack_batch
from kafscale.wire.compression import compress
from kafscale.wire.records import Codec, Record, append_record, build_batch, read_batch_header, records_in

from spark.lake.tests.examples import quick

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
    from kafka.record import MemoryRecords
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

LOG_APPEND_TIME = 0x08
BATCH_BYTES = 1 << 20
NAMES = st.sampled_from(["", "h", "h", "trace-id", "größe", "鍵"]) | st.text(max_size=5)
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=20)), max_size=4).map(tuple)
RECORDS = st.builds(
    Record,
    timestamp=st.integers(0, 1 << 41),
    key=st.none() | st.just(b"") | st.binary(max_size=200),
    value=st.none() | st.just(b"") | st.binary(max_size=3_000),
    headers=HEADERS,
)
Writer = Callable[[Sequence[Record], Codec], bytes]
Row = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def by_builder(builder: Any) -> Writer:
    def write(records: Sequence[Record], codec: Codec) -> bytes:
        batch = builder(
            magic=2,
            compression_type=int(codec),
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=BATCH_BYTES,
        )
        for number, record in enumerate(records):
            headers = list(record.headers)
            batch.append(
                number, timestamp=record.timestamp, key=record.key, value=record.value, headers=headers
            )
        return bytes(batch.build())

    return write


WRITERS: dict[str, Writer] = {
    "kafka-python": by_builder(KafkaPythonBuilder),
    "aiokafka": by_builder(AioBuilder),
    "kafscale": lambda records, codec: build_batch(records, codec=codec),
}
CHANGES = st.sampled_from(["", "", "log time", "compacted"])
BATCHES = st.lists(
    st.tuples(st.lists(RECORDS, min_size=1, max_size=12), CHANGES, st.integers(0, 1_000)),
    min_size=1,
    max_size=4,
)


def changed(batch: bytes, change: str) -> bytes:
    header = read_batch_header(batch)
    fields = {name: getattr(header, name) for name in BatchHeader.__struct_fields__}
    body = batch[61:]
    if change == "log time":
        fields |= {"attributes": header.attributes | LOG_APPEND_TIME, "max_timestamp": 1_800_000_000_000}
    elif change == "compacted":  # every second record is gone; the others keep their offsets
        out, kept = bytearray(), list(records_in(batch, header))[::2]
        for record in kept:
            delta = record.timestamp - header.base_timestamp
            append_record(out, record, timestamp_delta=delta, offset_delta=record.offset)
        fields["records_count"] = len(kept)
        body = compress(header.codec, bytes(out))
    return bytes(pack_batch(BatchHeader(**fields), body))


def placed(batch: bytes, offset: int) -> bytes:
    out = bytearray(batch)
    struct.pack_into(">q", out, 0, offset)
    return bytes(out)


def laid(
    batches: Sequence[tuple[list[Record], str, int]], write: Writer, codec: Codec, start: int = 7
) -> bytes:
    """A segment's body, with gaps between batches."""
    out, offset = bytearray(), start
    for records, change, gap in batches:
        offset += gap
        out += placed(changed(write(records, codec), change), offset)
        offset += len(records)
    return bytes(out)


def ours(segment: bytes) -> list[Row]:
    wanted = Wanted()
    batches = read_columns(segment, scan_heads(segment, 0, len(segment)), wanted)
    found = pa.Table.from_batches(batches, schema=wanted.schema)
    headers = [[(each["key"], each["value"]) for each in some] for some in found["headers"].to_pylist()]
    names = ("timestampType", "key", "value")
    times = found["timestamp"].cast(pa.int64()).to_pylist()
    rest = (found[name].to_pylist() for name in names)
    return list(zip(found["offset"].to_pylist(), times, *rest, headers, strict=True))


def theirs(segment: bytes) -> list[Row]:
    return [
        (
            record.offset,
            record.timestamp,
            record.timestamp_type,
            record.key,
            record.value,
            list(record.headers),
        )
        for batch in MemoryRecords(segment)
        for record in batch
    ]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("writer", WRITERS)
@quick(25)
@given(BATCHES)
def test_rows_are_what_kafka_python_reads(
    writer: str, codec: Codec, batches: list[tuple[list[Record], str, int]]
) -> None:
    segment = laid(batches, WRITERS[writer], codec)
    assert ours(segment) == theirs(segment)


def test_names_that_are_no_text_are_read_as_java_reads_them() -> None:
    """kafka-python cannot read such a record at all."""
    headers = (("name-ok", b"1"), ("same", b"2"), ("same", None))
    batch = build_batch([Record(timestamp=1, value=b"v", headers=headers), Record(timestamp=1, value=b"w")])
    raw = bytearray(batch.replace(b"name-ok", b"na\xff\xc3ok!"))
    struct.pack_into(">I", raw, 17, crc32c(bytes(raw[21:])))
    assert [row[-1] for row in ours(bytes(raw))] == [
        [("na\ufffd\ufffdok!"[:7], b"1"), ("same", b"2"), ("same", None)],
        [],
    ]


STEPS = st.lists(
    st.tuples(st.sampled_from(["data", "data", "commit", "abort", "plain"]), st.integers(1, 3)), max_size=14
)


@quick(150)
@given(STEPS)
def test_of_transactions_only_what_was_committed_is_read(steps: list[tuple[str, int]]) -> None:
    """The oracle holds data back until its marker says what becomes of it, as the protocol defines it."""
    out, offset = bytearray(), 0
    held: dict[int, list[int]] = {}
    visible: list[int] = []
    aborted: list[Aborted] = []
    for kind, producer in steps:
        marker = kind in ("commit", "abort")
        batch = build_batch(
            [Record(timestamp=1, key=b"k")] * (1 if marker else 2),
            producer_id=producer,
            transactional=kind != "plain",
            control=marker,
        )
        out += placed(batch, offset)
        if kind == "data":
            held.setdefault(producer, []).extend((offset, offset + 1))
        elif kind == "plain":
            visible += (offset, offset + 1)
        else:
            data = held.pop(producer, [])
            visible += data if kind == "commit" else []
            if kind == "abort" and data:
                aborted.append(Aborted(producer_id=producer, first=data[0], last=offset))
        offset += 1 if marker else 2
    stable_end = min((data[0] for data in held.values()), default=offset)
    heads = without_aborted(scan_heads(bytes(out), 0, len(out)), aborted)
    read = read_columns(bytes(out), heads, Wanted(columns=("offset",), end=stable_end))
    found = [each for batch in read for each in batch["offset"].to_pylist()]
    assert found == sorted(each for each in visible if each < stable_end)
