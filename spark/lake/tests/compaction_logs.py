"""Segments for tests of compaction: batches of any kind, and a cleaner written like Kafka's as the oracle."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafscale.lake.compaction.record_filter import LoadedSegment
from kafscale.lake.scan import parse
from kafscale.log.heads import Aborted, Seg
from kafscale.log.segment import BatchInfo, build_segment
from kafscale.wire.batches import DELETE_HORIZON, BatchHeader
from kafscale.wire.records import Codec, Record, build_batch, records_in, split_batches

NOW = 10_000_000
RETENTION = 1_000
Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What a producer sends, or a transaction's marker."""

    records: tuple[Record, ...]
    codec: Codec = Codec.NONE
    producer: int = -1
    transactional: bool = False
    control: bool = False
    append_time: int | None = None


@dataclass(kw_only=True)
class LogOf:
    """Segments of batches, one behind the other; sequences count up for each producer."""

    segments: Sequence[Sequence[Batch]]
    start: int = 0
    compacted: int = 0  # the number of leading segments that have names of their own
    created_ms: int = NOW
    aborted: tuple[Aborted, ...] = ()
    sources: list[LoadedSegment] = field(init=False)

    def __post_init__(self) -> None:
        self.sources = []
        sequences: dict[int, int] = {}
        offset = self.start
        for number, batches in enumerate(self.segments):
            parts = []
            for batch in batches:
                parts.append(placed(batch, offset, sequences))
                offset += len(batch.records)
            key = f"compacted-{number}.kfs" if number < self.compacted else ""
            self.sources.append(source_of(parts, key=key, created_ms=self.created_ms))


def placed(batch: Batch, offset: int, sequences: dict[int, int]) -> bytes:
    sequence = -1
    if batch.producer >= 0 and not batch.control:
        sequence = sequences.get(batch.producer, 0)
        sequences[batch.producer] = sequence + len(batch.records)
    data = build_batch(
        batch.records,
        base_offset=offset,
        leader_epoch=3,
        codec=batch.codec,
        producer_id=batch.producer,
        producer_epoch=0 if batch.producer >= 0 else -1,
        base_sequence=sequence,
        transactional=batch.transactional,
        control=batch.control,
        log_append_time_ms=batch.append_time,
    )
    return data


def source_of(batches: Sequence[bytes], *, key: str = "", created_ms: int = NOW) -> LoadedSegment:
    """An object of these placed batches, as a commit would name it."""
    headers = [header for header, _ in split_batches(b"".join(batches))]
    infos = [BatchInfo(h.base_offset, h.last_offset, h.size, h.records_count) for h in headers]
    built = build_segment(headers[0].base_offset, infos, batches, created_ms=created_ms)
    data = b"".join(built.body)
    seg = Seg(
        base=built.base_offset,
        last_delta=built.last_offset - built.base_offset,
        size=built.size,
        etag=f"etag-{built.base_offset}",
        crc32c=built.crc32c,
        index_size=len(built.index),
        index_etag=f"index-{built.base_offset}",
        epoch=3,
        min_ts=min(header.base_timestamp for header in headers),
        max_ts=max(header.max_timestamp for header in headers),
        records=built.records,
        batches=built.batches,
        created_ms=created_ms,
        key=key,
    )
    return LoadedSegment(seg=seg, data=data, heads=parse(data, "test", seg))


def body(source: LoadedSegment) -> bytes:
    return source.data[32:-16]


def rows(record_set: bytes) -> list[Row]:
    """Every record that is no marker."""
    return [
        row_of(record)
        for header, batch in split_batches(record_set)
        if not header.is_control
        for record in records_in(batch, header)
    ]


def row_of(record: Record) -> Row:
    return record.offset, record.timestamp, record.key, record.value, record.headers


def kafkas_map(dirty: Iterable[LoadedSegment], aborted: Sequence[Aborted]) -> dict[bytes, int]:
    """Cleaner.buildOffsetMap."""
    newest: dict[bytes, int] = {}
    for source in dirty:
        for header, batch in split_batches(body(source)):
            if header.is_control or was_aborted(header, aborted):
                continue
            for record in records_in(batch, header):
                if record.key is not None:
                    newest[record.key] = record.offset
    return newest


def kafkas_rows(
    sources: Iterable[LoadedSegment], newest: Mapping[bytes, int], aborted: Sequence[Aborted], now_ms: int
) -> list[Row]:
    """Cleaner.shouldRetainRecord, one record after the other."""
    kept = []
    for source in sources:
        for header, batch in split_batches(body(source)):
            if header.is_control or was_aborted(header, aborted):
                continue
            for record in records_in(batch, header):
                if record.key is None or record.offset < newest.get(record.key, -1):
                    continue
                dated = header.attributes & DELETE_HORIZON
                if record.value is None and dated and now_ms >= header.base_timestamp:
                    continue
                kept.append(row_of(record))
    return kept


def was_aborted(header: BatchHeader, aborted: Sequence[Aborted]) -> bool:
    return header.is_transactional and any(
        each.producer_id == header.producer_id and each.first <= header.base_offset <= each.last
        for each in aborted
    )


def marker(producer: int, *, commit: bool, timestamp: int = 5) -> Batch:
    """The end of a transaction (ControlRecordType: version and type)."""
    key = struct.pack(">hh", 0, int(commit))
    record = Record(timestamp=timestamp, key=key, value=struct.pack(">hi", 0, 0))
    return Batch(records=(record,), producer=producer, transactional=True, control=True)
