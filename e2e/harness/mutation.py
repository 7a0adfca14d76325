"""Frames bent at random: what a broken client, a broken network or an attacker might send. Pure, from a seed.

A frame here is a request without its length. Most changes fall behind the first eight bytes (key, version,
correlation id), so that a mutant of an API mostly stays one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random

HEAD_BYTES = 8
EDGES = (0, 1, 2, 127, 128, 254, 255)
COUNTS = (-(2**31), -2, -1, 0, 1, 1_000, 2**15, 2**16, 2**24, 2**27, 2**30, 2**31 - 1)
VARINTS = (
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x80\x80",
    b"\x80\x80\x04",
    b"\xff\x7f",
)
CHANGES_AT_ONCE = (1, 1, 1, 2, 3)
PIECE_BYTES_MAX = 40
LENGTHS = (-(2**31), -1, 0, 7, 100 << 20, (100 << 20) + 1, 2**31 - 1)

Change = Callable[[Random, bytearray, Sequence[bytes]], None]


def mutant(rng: Random, frames: Sequence[bytes]) -> bytes:
    """One of the frames with one to three changes; now and then with bytes of another of them."""
    frame = bytearray(rng.choice(frames))
    for _ in range(rng.choice(CHANGES_AT_ONCE)):
        rng.choice(CHANGES)(rng, frame, frames)
    return bytes(frame)


def torn(rng: Random, frame: bytes) -> bytes:
    """The frame behind a length that is not its own."""
    length = rng.choice((*LENGTHS, len(frame) - 1, len(frame) + 1, rng.randrange(2 * len(frame) + 2)))
    return struct.pack(">i", length) + frame


def _at(rng: Random, frame: bytearray) -> int:
    start = 0 if rng.random() < 0.05 else HEAD_BYTES
    return rng.randrange(start, max(len(frame), start + 1))


def _flip(rng: Random, frame: bytearray, _: Sequence[bytes]) -> None:
    at = _at(rng, frame)
    frame[at : at + 1] = bytes(byte ^ 1 << rng.randrange(8) for byte in frame[at : at + 1])


def _edge(rng: Random, frame: bytearray, _: Sequence[bytes]) -> None:
    at = _at(rng, frame)
    frame[at : at + 1] = bytes([rng.choice(EDGES)])


def _short(rng: Random, frame: bytearray, _: Sequence[bytes]) -> None:
    """A position that may hold the length of a string."""
    at = _at(rng, frame)
    frame[at : at + 2] = struct.pack(">h", rng.choice((-(2**15), -2, -1, 0, 1, 255, 2**15 - 1)))


def _count(rng: Random, frame: bytearray, _: Sequence[bytes]) -> None:
    at = _at(rng, frame)
    frame[at : at + 4] = struct.pack(">i", rng.choice(COUNTS))


def _varint(rng: Random, frame: bytearray, _: Sequence[bytes]) -> None:
    at = _at(rng, frame)
    frame[at : at + rng.randint(0, 5)] = rng.choice(VARINTS)


def _cut(rng: Random, frame: bytearray, _: Sequence[bytes]) -> None:
    del frame[_at(rng, frame) :]


def _drop(rng: Random, frame: bytearray, _: Sequence[bytes]) -> None:
    at = _at(rng, frame)
    del frame[at : at + rng.randint(1, 4)]


def _insert(rng: Random, frame: bytearray, _: Sequence[bytes]) -> None:
    at = _at(rng, frame)
    frame[at:at] = rng.randbytes(rng.randint(1, 8))


def _repeat(rng: Random, frame: bytearray, _: Sequence[bytes]) -> None:
    at = _at(rng, frame)
    piece = bytes(frame[at : at + rng.randint(1, PIECE_BYTES_MAX)])
    frame[at:at] = piece * rng.choice((1, 1, 1, 100))


def _splice(rng: Random, frame: bytearray, frames: Sequence[bytes]) -> None:
    """The end of another version's frame."""
    other = rng.choice(frames)
    frame[_at(rng, frame) :] = other[rng.randrange(len(other)) :]


def _overlay(rng: Random, frame: bytearray, frames: Sequence[bytes]) -> None:
    """A piece of another version's frame in the middle of this one."""
    other = rng.choice(frames)
    at, start = _at(rng, frame), rng.randrange(len(other))
    piece = other[start : start + rng.randint(1, PIECE_BYTES_MAX)]
    frame[at : at + len(piece)] = piece


# Most changes keep the frame's shape, else few mutants would come further than the first decoder.
CHANGES: tuple[Change, ...] = (
    *(_flip,) * 8,
    *(_edge,) * 4,
    *(_count, _short, _overlay) * 2,
    *(_varint, _cut, _drop, _insert, _repeat, _splice),
)
