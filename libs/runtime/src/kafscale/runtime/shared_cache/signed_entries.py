"""Values of the shared cache that only a holder of a secret key can make. Pure.

Law: the bytes that `opened` and `opened_range` return were stored by a holder of one of the keys, for this object name
and etag, at this position, in an object of this size. Redis and all who can write there are not trusted.

A value is a sequence of pieces of the object. Before each piece are a magic number, the size of the object, and a MAC:
BLAKE2b with a key (RFC 7693), 16 bytes. The MAC covers the object's key and etag, its size, the position of the piece,
and the piece. An object that is read whole is one piece. An object that is read in ranges has pieces of PIECE_BYTES, so
that a reader checks the pieces around its range and needs nothing else of the value.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from hmac import compare_digest
from typing import Final, NamedTuple, Protocol

from kafscale.runtime.shared_cache.entries import ObjectName
from kafscale.wire.buffers import Buffer

PREFIX: Final = "kafscale:2:"
PIECE_BYTES: Final = 64 << 10
"""Part of the format: another value needs another PREFIX."""
INLINE_BYTES_MAX: Final = 256 << 10
"""A MAC of this many bytes takes a fifth to a third of a millisecond."""
KEY_BYTES_MIN: Final = 32
KEY_BYTES_MAX: Final = hashlib.blake2b.MAX_KEY_SIZE
_MAGIC: Final = b"KSC2"
_MAC_SIZE: Final = 16
_HEAD: Final = struct.Struct(f">4sQ{_MAC_SIZE}s")
HEAD_SIZE: Final = _HEAD.size
"""A piece begins so many bytes after the piece before it."""
_RECORD_SIZE: Final = HEAD_SIZE + PIECE_BYTES
_NAMED: Final = struct.Struct(">IIQ")  # lengths of the object's key and of its etag, size of the object
_POSITION: Final = struct.Struct(">Q")
_PURPOSE: Final = b"kafscale cache 2"
"""BLAKE2b's personalization: a MAC that another program made with the same key is no MAC here."""


class _Hash(Protocol):
    def update(self, data: Buffer, /) -> None: ...
    def copy(self) -> "_Hash": ...
    def digest(self) -> bytes: ...


class _Piece(NamedTuple):
    position: int
    data: memoryview
    mac: bytes


class SignedEntries:
    """The first key signs, and each key verifies, so that keys can be replaced while the cache is in use."""

    are_signed: Final = True
    inline_bytes_max: Final = INLINE_BYTES_MAX

    __slots__ = ("_keyed",)

    def __init__(self, keys: Sequence[bytes]) -> None:
        """At least one key, each of KEY_BYTES_MIN to KEY_BYTES_MAX bytes."""
        assert keys, "a key is needed"
        assert all(KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX for key in keys), "a key has a wrong size"
        self._keyed: tuple[_Hash, ...] = tuple(
            hashlib.blake2b(digest_size=_MAC_SIZE, key=key, person=_PURPOSE) for key in keys
        )

    def key(self, name: ObjectName) -> str:
        return f"{PREFIX}{name.key}:{name.etag}"

    def sealed(self, name: ObjectName, parts: Sequence[Buffer], *, in_ranges: bool) -> bytes:
        size = sum(map(len, parts))
        named = _named(self._keyed[0], name, size)
        value: list[Buffer] = []
        position = 0
        for piece in _cut(parts, PIECE_BYTES if in_ranges else size):
            value.append(_HEAD.pack(_MAGIC, size, _mac(named, position, piece)))
            value += piece
            position += sum(map(len, piece))
        return b"".join(value)

    def whole(self, size: int) -> tuple[int, int]:
        """With the byte after the value. So a value that is too long shows, and is not transferred."""
        return 0, HEAD_SIZE + size + 1

    def opened(self, name: ObjectName, value: bytes, size: int) -> memoryview | None:
        pieces = _read(value, 0, size, piece_bytes=size)
        if pieces is None or not self._is_signed(name, size, pieces):
            return None
        return pieces[0].data

    def extent(self, start: int, end: int) -> tuple[int, int]:
        return start // PIECE_BYTES * _RECORD_SIZE, -(-end // PIECE_BYTES) * _RECORD_SIZE

    def opened_range(self, name: ObjectName, found: bytes, start: int, end: int) -> bytes | None:
        """A copy, because the pieces are larger than the range, and the caller accounts for the range."""
        if len(found) < HEAD_SIZE:
            return None
        _, size, _ = _HEAD.unpack_from(found)  # a claim, until the MAC is verified
        first = start // PIECE_BYTES * PIECE_BYTES
        last = min(-(-end // PIECE_BYTES) * PIECE_BYTES, size)
        if not first <= start < end <= last:
            return None
        pieces = _read(found, first, last, piece_bytes=PIECE_BYTES, size=size)
        if pieces is None or not self._is_signed(name, size, pieces):
            return None
        return b"".join(piece.data[max(0, start - piece.position) : end - piece.position] for piece in pieces)

    def _is_signed(self, name: ObjectName, size: int, pieces: Sequence[_Piece]) -> bool:
        """Whether one key signed them all. A wrong key fails at the first piece."""
        return any(
            all(compare_digest(_mac(named, each.position, (each.data,)), each.mac) for each in pieces)
            for named in (_named(keyed, name, size) for keyed in self._keyed)
        )


def _named(keyed: _Hash, name: ObjectName, size: int) -> _Hash:
    """What the MACs of one object have in common. Lengths come first, so that no two names give the same bytes."""
    key, etag = name.key.encode(), name.etag.encode()
    named = keyed.copy()
    named.update(_NAMED.pack(len(key), len(etag), size) + key + etag)
    return named


def _mac(named: _Hash, position: int, piece: Sequence[Buffer]) -> bytes:
    hashed = named.copy()
    hashed.update(_POSITION.pack(position))
    for part in piece:
        hashed.update(part)
    return hashed.digest()


def _cut(parts: Sequence[Buffer], piece_bytes: int) -> Iterator[list[memoryview]]:
    """Pieces of `piece_bytes`, each as views of the parts; the last may be shorter. An empty object is one piece."""
    piece: list[memoryview] = []
    room = piece_bytes
    for part in parts:
        rest = memoryview(part)
        while len(rest) > room:
            yield [*piece, rest[:room]]
            rest, piece, room = rest[room:], [], piece_bytes
        piece.append(rest)
        room -= len(rest)
    yield piece


def _read(
    found: bytes, first: int, last: int, *, piece_bytes: int, size: int | None = None
) -> list[_Piece] | None:
    """The pieces at [first, last) of an object of `size` bytes (default: `last`), not verified yet. None unless they
    are what `found` consists of."""
    view, at = memoryview(found), 0
    pieces: list[_Piece] = []
    for position in range(first, max(last, first + 1), max(piece_bytes, 1)):
        begin, end = at + HEAD_SIZE, at + HEAD_SIZE + min(piece_bytes, last - position)
        if end > len(view):
            return None
        magic, claimed, mac = _HEAD.unpack_from(view, at)
        if magic != _MAGIC or claimed != (last if size is None else size):
            return None
        pieces.append(_Piece(position, view[begin:end], mac))
        at = end
    return pieces if at == len(view) else None
