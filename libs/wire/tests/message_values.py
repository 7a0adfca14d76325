"""Messages and wrappers made by hand, and record sets as old clients get them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import msgspec
from kafscale.wire.buffers import Steps, T
from kafscale.wire.compression import compress
from kafscale.wire.message_sets import message_sets_of
from kafscale.wire.records import Codec, Record

OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
PLENTY = 1 << 30


def numbered(records: Sequence[Record], base: int = 0) -> list[Record]:
    return [msgspec.structs.replace(record, offset=base + n) for n, record in enumerate(records)]


def as_told(records: Sequence[Record], magic: int) -> list[Record]:
    """Magic 0 has no time."""
    return [r if magic else msgspec.structs.replace(r, timestamp=-1) for r in records]


def message(
    value: bytes | None = b"v",
    *,
    magic: int = 1,
    offset: int = 0,
    attributes: int = 0,
    timestamp: int = 5,
    key: bytes | None = None,
) -> bytes:
    """A message by hand, so that anything in it can be wrong."""
    rest = struct.pack(">BB", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for field in (key, value):
        rest += b"\xff\xff\xff\xff" if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(rest) + 4, crc32(rest)) + rest


def wrapper(*inner: bytes, codec: Codec = Codec.GZIP, **fields: Any) -> bytes:
    return message(compress(codec, b"".join(inner)), attributes=codec, **fields)


def finished(steps: Steps[T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def tell(batch: bytes, magic: int, from_offset: int = 0) -> bytes:
    return b"".join(finished(message_sets_of([batch], magic, from_offset=from_offset, bytes_max=PLENTY)))
