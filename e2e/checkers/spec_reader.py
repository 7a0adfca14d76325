"""Reads a bucket with only the published formats: names, segment, index, record batches.

It shares no code with the product on purpose (the CRC is computed bit by bit from the polynomial), so it
finds what any other reader of the formats finds.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SEGMENT_HEADER = struct.Struct(">4sHHqIqI")
SEGMENT_FOOTER = struct.Struct(">Iq4s")
INDEX_HEADER = struct.Struct(">4sHIIH")
INDEX_ENTRY = struct.Struct(">qI")
BATCH = struct.Struct(">qiibIhiqqqhii")  # up to and with the record count: 61 bytes


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)  # CRC-32C, reflected
        table.append(crc)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class FoundRecord:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class FoundBatch:
    base: int
    last: int
    epoch: int
    codec: int
    position: int
    records: tuple[FoundRecord, ...]


@dataclass(frozen=True, slots=True)
class FoundSegment:
    base: int
    last: int
    batches: tuple[FoundBatch, ...]


def read_partition(bucket: Path, namespace: str, topic: str, partition: int) -> list[FoundSegment]:
    """Every segment of a partition in a directory bucket, in order of base offset, each checked with its index."""
    folder = bucket / namespace / topic / str(partition)
    return [read_segment(path) for path in sorted(folder.glob("segment-*.kfs"))]


def read_segment(path: Path) -> FoundSegment:
    data = path.read_bytes()
    magic, version, flags, base, count, created, _ = SEGMENT_HEADER.unpack_from(data)
    assert (magic, version, flags) == (b"KAFS", 1, 0), path
    assert path.name == f"segment-{base:020d}.kfs"
    assert created > 1_600_000_000_000, path
    crc, last, end = SEGMENT_FOOTER.unpack_from(data, len(data) - SEGMENT_FOOTER.size)
    assert end == b"END!", path
    body = data[SEGMENT_HEADER.size : -SEGMENT_FOOTER.size]
    assert crc == crc32c(body), path
    batches = tuple(_batches(body, SEGMENT_HEADER.size))
    assert batches[0].base == base, path
    assert batches[-1].last == last, path
    assert sum(len(batch.records) for batch in batches) == count, path
    _check_index(path.with_suffix(".index"), batches)
    return FoundSegment(base, last, batches)


def _check_index(path: Path, batches: tuple[FoundBatch, ...]) -> None:
    data = path.read_bytes()
    magic, version, count, interval, _ = INDEX_HEADER.unpack_from(data)
    assert (magic, version) == (b"IDX\0", 1), path
    entries = list(INDEX_ENTRY.iter_unpack(data[INDEX_HEADER.size :]))
    assert len(entries) == count, path
    expected, due = [], batches[0].base
    for batch in batches:
        if batch.base >= due:
            expected.append((batch.base, batch.position))
            due = batch.base + interval
    assert entries == expected, path


def _batches(body: bytes, at: int) -> Iterator[FoundBatch]:
    position = 0
    while position < len(body):
        fields = BATCH.unpack_from(body, position)
        base, length, epoch, magic, crc, attributes, last_delta, first_ts = fields[:8]
        count = fields[12]
        assert magic == 2
        batch = body[position : position + 12 + length]
        assert len(batch) == 12 + length
        assert crc == crc32c(batch[21:])
        assert count == last_delta + 1
        records = tuple(_records(_inflate(batch[BATCH.size :], attributes & 7), base, first_ts, count))
        yield FoundBatch(base, base + last_delta, epoch, attributes & 7, at + position, records)
        position += len(batch)


def _inflate(payload: bytes, codec: int) -> bytes:
    if codec == 0:
        return payload
    assert codec == 1, f"this reader knows no codec {codec}"
    return gzip.decompress(payload)


def _records(payload: bytes, base: int, first_ts: int, count: int) -> Iterator[FoundRecord]:
    position = 0
    for _ in range(count):
        length, position = _varint(payload, position)
        end = position + length
        position += 1  # attributes
        ts_delta, position = _varint(payload, position)
        offset_delta, position = _varint(payload, position)
        key, position = _bytes(payload, position)
        value, position = _bytes(payload, position)
        yield FoundRecord(base + offset_delta, first_ts + ts_delta, key, value)
        position = end
    assert position == len(payload)


def _bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _varint(data, position)
    if length < 0:
        return None, position
    return data[position : position + length], position + length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
