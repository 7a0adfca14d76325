"""What the generated schema calls where it leaves its straight line: long varints, bounds, records.

Counts are bounded twice before anything is allocated: by the bytes that remain, and by the number of
elements that one message may hold, because a byte of input can cost a hundred bytes of objects.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import WireError
from kafscale.wire.varints import encode_uvarint, skip_tags_rest, tags_bounded, uvarint, uvarint_rest

__all__ = [
    "ELEMENTS_MAX_REQUEST",
    "ELEMENTS_MAX_RESPONSE",
    "PACK_B",
    "PACK_H",
    "PACK_I",
    "PACK_Q",
    "SINGLE_BUFFER",
    "UNPACK_B",
    "UNPACK_H",
    "UNPACK_I",
    "UNPACK_Q",
    "ZERO_UUID",
    "bad_length",
    "bad_tag",
    "encode_uvarint",
    "length_rest",
    "skip_tags_rest",
    "tag_count",
    "too_many",
    "uvarint",
    "uvarint_rest",
]

ELEMENTS_MAX_REQUEST: Final = 1 << 17
ELEMENTS_MAX_RESPONSE: Final = 1 << 22
ZERO_UUID: Final = bytes(16)
SINGLE_BUFFER: Final = frozenset({bytes, bytearray, memoryview})

_FEW: Final = range(8)
PACK_B: Final = tuple(Struct(f">{n}b").pack for n in _FEW)
PACK_H: Final = tuple(Struct(f">{n}h").pack for n in _FEW)
PACK_I: Final = tuple(Struct(f">{n}i").pack for n in _FEW)
PACK_Q: Final = tuple(Struct(f">{n}q").pack for n in _FEW)
UNPACK_B: Final = tuple(Struct(f">{n}b").unpack_from for n in _FEW)
UNPACK_H: Final = tuple(Struct(f">{n}h").unpack_from for n in _FEW)
UNPACK_I: Final = tuple(Struct(f">{n}i").unpack_from for n in _FEW)
UNPACK_Q: Final = tuple(Struct(f">{n}q").unpack_from for n in _FEW)


def length_rest(buf: Buffer, offset: int, first: int, field: str) -> tuple[int, int]:
    """A compact length that is not one byte between 1 and 127: long, or the null this field cannot be."""
    if first == 0:
        raise WireError(field, "null", offset=offset)
    length, offset = uvarint_rest(buf, offset, first)
    if length == 0:
        raise WireError(field, "null", offset=offset)
    return length, offset


def bad_length(field: str, length: int, offset: int) -> WireError:
    """The error for a length below zero."""
    return WireError(field, f"length {length}", offset=offset)


def too_many(field: str, count: int, offset: int) -> WireError:
    """The error for a count that the rest of the message cannot hold, or that no message may have."""
    return WireError(field, f"{count} elements", offset=offset)


def bad_tag(field: str, tag: int, offset: int) -> WireError:
    """The error for a tagged field whose value is not as long as it says."""
    return WireError(field, f"tag {tag} is not as long as it says", offset=offset)


def tag_count(buf: Buffer, offset: int, first: int) -> tuple[int, int]:
    """A bounded number of tagged fields whose first byte has been read."""
    count, offset = uvarint_rest(buf, offset, first) if first > 127 else (first, offset)
    tags_bounded(count)
    return count, offset
