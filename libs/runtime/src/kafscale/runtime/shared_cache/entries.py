"""Keys and values of the shared cache. Pure.

A key names an object by its content: the object's name, which begins with the namespace, and its etag. An object that
was replaced has another etag, so an entry is never out of date. A value is a magic number, the CRC-32C of the object,
and the object.
"""

import struct
from collections.abc import Sequence
from typing import Final

from kafscale.wire.batches import crc32c
from kafscale.wire.buffers import Buffer

PREFIX: Final = "kafscale:1:"
_HEAD: Final = struct.Struct(">4sI")
_MAGIC: Final = b"KSC1"
HEAD_SIZE: Final = _HEAD.size
"""The object begins here in a value."""


def entry_key(object_key: str, etag: str) -> str:
    return f"{PREFIX}{object_key}:{etag}"


def sealed(parts: Sequence[Buffer]) -> bytes:
    """The value for an object in parts, as a copy."""
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    return b"".join((_HEAD.pack(_MAGIC, crc), *parts))


def unsealed(value: bytes) -> memoryview | None:
    """The object as a view of the value; None if the value is cut short or damaged."""
    if len(value) < _HEAD.size:
        return None
    magic, crc = _HEAD.unpack_from(value)
    body = memoryview(value)[_HEAD.size :]
    return body if magic == _MAGIC and crc32c(body) == crc else None
