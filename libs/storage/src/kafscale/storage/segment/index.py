"""The sparse index: where in the `.kfs` file the batch of an offset, or one shortly before it, starts. Pure.

Entries stand at batch boundaries: the first batch, then each first batch that starts INDEX_INTERVAL or more
messages after the last entry. Offsets and positions rise strictly; the first position is 32.
"""

import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kafscale.storage.segment.layout import (
    FORMAT_VERSION,
    HEADER_SIZE,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER,
    INDEX_HEADER_SIZE,
    INDEX_INTERVAL,
    INDEX_MAGIC,
    Buffer,
    Fault,
    SegmentError,
    expect,
)


class IndexEntry(NamedTuple):
    """The batch that starts at byte `position` holds `offset` as its first."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentIndex:
    """A parsed index; the two tuples run in parallel, so that a search is one bisect."""

    interval: int
    offsets: tuple[int, ...]
    positions: tuple[int, ...]

    @property
    def entries(self) -> list[IndexEntry]:
        return [IndexEntry(*pair) for pair in zip(self.offsets, self.positions, strict=True)]


def encode_index(entries: Iterable[IndexEntry], *, interval: int = INDEX_INTERVAL) -> bytes:
    """The bytes of an `.index` object."""
    packed = [INDEX_ENTRY.pack(*entry) for entry in entries]
    return b"".join((INDEX_HEADER.pack(INDEX_MAGIC, FORMAT_VERSION, len(packed), interval, 0), *packed))


def parse_index(buf: Buffer) -> SegmentIndex:
    """Read a whole `.index` object; every byte is accounted for."""
    if len(buf) < INDEX_HEADER_SIZE:
        raise SegmentError(Fault.TOO_SHORT, position=0, expected=INDEX_HEADER_SIZE, found=len(buf))
    magic, version, count, interval, _ = INDEX_HEADER.unpack_from(buf)
    expect(Fault.MAGIC, 0, INDEX_MAGIC, magic)
    expect(Fault.VERSION, 4, FORMAT_VERSION, version)
    expect(Fault.LENGTH, 6, INDEX_HEADER_SIZE + count * INDEX_ENTRY_SIZE, len(buf))
    if not count:
        raise SegmentError(Fault.COUNT, position=6, expected="1 or more entries", found=0)
    pairs = list(INDEX_ENTRY.iter_unpack(memoryview(buf)[INDEX_HEADER_SIZE:]))
    offsets: tuple[int, ...] = tuple(pair[0] for pair in pairs)
    positions: tuple[int, ...] = tuple(pair[1] for pair in pairs)
    expect(Fault.POSITION, INDEX_HEADER_SIZE + 8, HEADER_SIZE, positions[0])
    _check_rising(Fault.OFFSET, offsets)
    _check_rising(Fault.POSITION, positions)
    return SegmentIndex(interval=interval, offsets=offsets, positions=positions)


def _check_rising(fault: Fault, values: tuple[int, ...]) -> None:
    for n, (before, value) in enumerate(zip(values, values[1:], strict=False), start=1):
        if value <= before:
            at = INDEX_HEADER_SIZE + n * INDEX_ENTRY_SIZE
            raise SegmentError(fault, position=at, expected=f"more than {before}", found=value)


def find_position(index: SegmentIndex, offset: int) -> int:
    """Where to start reading for `offset`: the last entry at or below it, else the first batch."""
    n = bisect.bisect_right(index.offsets, offset)
    return index.positions[n - 1] if n else HEADER_SIZE
