"""Unsigned varints and unknown tagged fields, for headers and the generated schema.

An unsigned varint is at most five bytes and below 2**32. Unknown tagged fields are skipped, at most
TAGS_MAX of them in one struct; as in Kafka their order is not checked. If the bytes end early, a function raises
IndexError or returns an offset behind the end; the caller compares the offset with the end once.
"""

from __future__ import annotations

from typing import Final

from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import WireError

TAGS_MAX: Final = 1024


def uvarint(buf: Buffer, offset: int) -> tuple[int, int]:
    """The number at `offset`, and the offset after it."""
    value = buf[offset]
    offset += 1
    return (value, offset) if value < 128 else uvarint_rest(buf, offset, value)


def uvarint_rest(buf: Buffer, offset: int, first: int) -> tuple[int, int]:
    """A number whose first byte, already read, has its continuation bit set. Unrolled: record lengths end here."""
    byte = buf[offset]
    value = first & 0x7F | (byte & 0x7F) << 7
    if byte < 128:
        return value, offset + 1
    byte = buf[offset + 1]
    value |= (byte & 0x7F) << 14
    if byte < 128:
        return value, offset + 2
    byte = buf[offset + 2]
    value |= (byte & 0x7F) << 21
    if byte < 128:
        return value, offset + 3
    byte = buf[offset + 3]
    if byte > 15:
        raise WireError("varint", "longer than 32 bits", offset=offset)
    return value | byte << 28, offset + 4


def encode_uvarint(value: int) -> bytes:
    """An unsigned varint of any size."""
    if value < 1 << 7:
        return bytes((value,))
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80,)) + encode_uvarint(value >> 7)


def skip_tags(buf: Buffer, offset: int) -> int:
    """Skips a struct's tagged fields, all of them unknown. Returns the offset after them."""
    first = buf[offset]
    return skip_tags_rest(buf, offset + 1, first) if first else offset + 1


def skip_tags_rest(buf: Buffer, offset: int, first: int) -> int:
    """Like `skip_tags`, after the first byte of their count was read."""
    count, offset = uvarint_rest(buf, offset, first) if first > 127 else (first, offset)
    tags_bounded(count)
    for _ in range(count):
        _tag, offset = uvarint(buf, offset)
        size, offset = uvarint(buf, offset)
        offset += size
    return offset


def tags_bounded(count: int) -> None:
    """Refuses a count of tags that no client sends, before a loop over it."""
    if count > TAGS_MAX:
        raise WireError("tagged fields", f"{count} of them, at most {TAGS_MAX} in one struct")
