"""What members of a classic consumer group tell each other: the topics they want, and the partitions they are given.

To a broker these are bytes of a client, which may be anything. They are read as version 0, with whose fields all later
versions begin. Bytes that cannot be decoded are None.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final

_VERSION: Final = Struct(">h")
_NUMBER: Final = Struct(">i")
_LENGTH: Final = Struct(">h")


def subscribed(metadata: bytes) -> list[str] | None:
    """The topics of a ConsumerProtocolSubscription."""
    found: list[str] = []
    try:
        topics, at = _count(metadata, _VERSION.size)
        for _ in range(topics):
            name, at = _name(metadata, at)
            found.append(name)
    except (struct.error, ValueError):
        return None
    return found


def assigned(assignment: bytes) -> list[tuple[str, int]] | None:
    """The topics and partitions of a ConsumerProtocolAssignment."""
    found: list[tuple[str, int]] = []
    try:
        topics, at = _count(assignment, _VERSION.size)
        for _ in range(topics):
            name, at = _name(assignment, at)
            partitions, at = _count(assignment, at)
            for _ in range(partitions):
                found.append((name, *_NUMBER.unpack_from(assignment, at)))
                at += _NUMBER.size
    except (struct.error, ValueError):
        return None
    return found


def _count(data: bytes, at: int) -> tuple[int, int]:
    """The count there, and where it ends."""
    (count,) = _NUMBER.unpack_from(data, at)
    if count < 0:
        raise ValueError(count)
    return count, at + _NUMBER.size


def _name(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    begin = at + _LENGTH.size
    if not 0 <= length <= len(data) - begin:
        raise ValueError(length)
    return data[begin : begin + length].decode(), begin + length
