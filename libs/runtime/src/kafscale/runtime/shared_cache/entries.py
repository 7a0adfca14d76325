"""Keys and values of the shared cache. Pure.

A key names an object by its content: the object's name, which begins with the namespace, and its etag. An object that
was replaced has another etag, so an entry is never out of date. There are two kinds of values, with different prefixes
of their keys. A checked value, here, is a magic number, the CRC-32C of the object, and the object: it shows damage.
A signed value (`signed_entries.py`) shows in addition that a holder of a secret key stored it.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from kafscale.wire.batches import crc32c
from kafscale.wire.buffers import Buffer

PREFIX: Final = "kafscale:1:"
_HEAD: Final = struct.Struct(">4sI")
_MAGIC: Final = b"KSC1"
HEAD_SIZE: Final = _HEAD.size
"""The object begins here in a value."""


class ObjectName(NamedTuple):
    """Of an object in the store."""

    key: str
    etag: str


class Entries(Protocol):
    """How objects are stored as values, and what a value must be to pass for the object."""

    @property
    def are_signed(self) -> bool: ...

    @property
    def inline_bytes_max(self) -> int | None:
        """Work on more bytes than this belongs in a thread, because it takes too long for an event loop. None: no work
        is that long."""

    def key(self, name: ObjectName) -> str: ...

    def sealed(self, name: ObjectName, parts: Sequence[Buffer], *, in_ranges: bool) -> bytes:
        """The value for an object in parts, as a copy. `in_ranges`: readers use `opened_range`, others `opened`."""

    def whole(self, size: int) -> tuple[int, int] | None:
        """The bytes [first, last) of a value that `opened` needs for an object of `size` bytes; None: all of them."""

    def opened(self, name: ObjectName, value: bytes, size: int) -> memoryview | None:
        """The object of `size` bytes as a view of the value; None if the value is not that object."""

    def extent(self, start: int, end: int) -> tuple[int, int]:
        """The bytes [first, last) of a value that `opened_range` needs for the bytes [start, end) of the object. The
        value may end before."""

    def opened_range(self, name: ObjectName, found: bytes, start: int, end: int) -> bytes | None:
        """The bytes [start, end) of an object, from those of `extent`; None if they are not those of the object."""


class CheckedEntries:
    """With a checksum of the whole object. It does not cover a range: the caller checks that."""

    are_signed: Final = False
    inline_bytes_max: Final = None

    def key(self, name: ObjectName) -> str:
        return entry_key(name.key, name.etag)

    def sealed(self, _name: ObjectName, parts: Sequence[Buffer], *, in_ranges: bool) -> bytes:
        return sealed(parts)

    def whole(self, _size: int) -> tuple[int, int] | None:
        return None

    def opened(self, _name: ObjectName, value: bytes, size: int) -> memoryview | None:
        found = unsealed(value)
        return found if found is not None and len(found) == size else None

    def extent(self, start: int, end: int) -> tuple[int, int]:
        return HEAD_SIZE + start, HEAD_SIZE + end

    def opened_range(self, _name: ObjectName, found: bytes, start: int, end: int) -> bytes | None:
        return found if len(found) == end - start else None


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
