"""Kafka's record batches, written and read field by field, for tests of the code that does so quickly.

It shares no code with `kafscale.wire`, and it is strict: a null is the length -1, a number has no more bits than its
type, and nothing may follow the last record."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

Headers = Sequence[tuple[bytes, bytes | None]]


def varint(number: int) -> bytes:
    raw = number * 2 if number >= 0 else -number * 2 - 1
    out = bytearray()
    while raw >= 128:
        out.append(raw % 128 + 128)
        raw //= 128
    return bytes(out) + bytes((raw,))


def nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def plain_record(
    index: int,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    *,
    time_ms: int = 0,
    headers: Headers = (),
) -> bytes:
    """`time_ms` counts from the batch's base timestamp."""
    data = b"\x00" + varint(time_ms) + varint(index) + nullable(key) + nullable(value) + varint(len(headers))
    data += b"".join(nullable(name) + nullable(content) for name, content in headers)
    return varint(len(data)) + data


def plain_batch(
    body: bytes,
    count: int,
    *,
    base_ms: int,
    max_ms: int | None = None,
    attributes: int = 0,
    base_offset: int = 0,
    last_delta: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A batch around these (compressed) records. The largest timestamp is by default the base timestamp."""
    fields = struct.pack(
        ">hiqqqhii",
        attributes,
        count - 1 if last_delta is None else last_delta,
        base_ms,
        base_ms if max_ms is None else max_ms,
        *producer,
        count,
    )
    summed = fields + body
    return struct.pack(">qiibI", base_offset, len(summed) + 9, -1, 2, plain_crc32c(summed)) + summed


@cache
def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


def plain_crc32c(data: bytes) -> int:
    table, crc = _crc_table(), 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class PlainRecords(NamedTuple):
    """What the records of a sound body say."""

    oldest_ms: int
    newest_ms: int
    keyless: bool


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, bits: int) -> int:
        raw = shift = 0
        while True:
            byte = self.take(1)[0]
            raw += byte % 128 << shift
            shift += 7
            if byte < 128:
                break
            if shift >= bits + 6:
                raise ValueError("a number is too long")
        if raw >= 1 << bits:
            raise ValueError("a number is too large")
        return raw // 2 if raw % 2 == 0 else -(raw // 2) - 1

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise ValueError("cut short")
        self.at += size
        return self.data[self.at - size : self.at]

    def field(self, *, may_be_null: bool = True) -> bytes | None:
        size = self.number(32)
        return None if size == -1 and may_be_null else self.take(size)


def read_plain(body: bytes, count: int, base_ms: int) -> PlainRecords | None:
    """Of a body that is not compressed. None: it is not sound, or its offset deltas are not 0, 1, 2 and so on."""
    reader = _Reader(body)
    times, keyless = [], False
    try:
        for index in range(count):
            record = _Reader(reader.take(reader.number(32)))
            record.take(1)  # attributes, which are unused
            times.append(base_ms + record.number(64))
            delta, key, _ = record.number(32), record.field(), record.field()
            headers = record.number(32)
            for _ in range(headers):
                record.field(may_be_null=False)
                record.field()
            keyless |= key is None
            if delta != index or headers < 0 or record.at != len(record.data):
                return None
    except ValueError:
        return None
    return PlainRecords(min(times), max(times), keyless) if reader.at == len(body) else None
