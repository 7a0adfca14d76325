"""From batches with their final offsets to the bytes of a `.kfs` and an `.index`, and the index read back. Pure.

No record is copied: the caller's buffers go into the body as they are, and the checksum is chained over them.

The index is sparse. It says where in the `.kfs` file the batch of an offset, or a batch shortly before it, starts. Its
entries are at batch boundaries: the first batch, then each first batch that starts INDEX_INTERVAL or more messages
after the last entry. Offsets and positions rise strictly; the first position is 32.
"""

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafscale.storage.segment.layout import (
    FOOTER,
    FOOTER_MAGIC,
    FOOTER_SIZE,
    FORMAT_VERSION,
    HEADER,
    HEADER_SIZE,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER,
    INDEX_HEADER_SIZE,
    INDEX_INTERVAL,
    INDEX_MAGIC,
    POSITION_MAX,
    SEGMENT_MAGIC,
    Buffer,
    Fault,
    SegmentError,
    expect,
)
from kafscale.wire.batches import crc32c


class IndexEntry(NamedTuple):
    """The batch that starts at byte `position` holds `offset` as its first."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """One batch as it goes into a segment: offsets, size on the wire, and how many records it holds."""

    offset: int
    last_offset: int
    size: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A built segment: `body` is the scatter list of the `.kfs` object, `index` the whole `.index` object."""

    base_offset: int
    last_offset: int
    records: int
    batches: int
    size: int
    crc32c: int
    body: list[Buffer]
    index: bytes


def build_segment(
    base_offset: int, batches: Sequence[BatchInfo], parts: Sequence[Buffer], created_ms: int
) -> Segment:
    """`parts` are the batches' bytes in order, cut anywhere; together exactly as long as `batches` say."""
    assert batches, "a segment holds at least one batch"
    assert batches[0].offset == base_offset, (batches[0].offset, base_offset)
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    size = HEADER_SIZE + sum(batch.size for batch in batches) + FOOTER_SIZE
    assert size - HEADER_SIZE - FOOTER_SIZE == sum(map(len, parts)), "parts and batches differ in size"
    assert size <= POSITION_MAX, size
    records = sum(batch.records for batch in batches)
    last_offset = batches[-1].last_offset
    header = HEADER.pack(SEGMENT_MAGIC, FORMAT_VERSION, 0, base_offset, records, created_ms, 0)
    footer = FOOTER.pack(crc, last_offset, FOOTER_MAGIC)
    return Segment(
        base_offset=base_offset,
        last_offset=last_offset,
        records=records,
        batches=len(batches),
        size=size,
        crc32c=crc,
        body=[header, *parts, footer],
        index=encode_index(index_entries(batches)),
    )


def index_entries(batches: Sequence[BatchInfo], *, interval: int = INDEX_INTERVAL) -> Iterator[IndexEntry]:
    """The first batch, then each first one that starts `interval` or more messages after the last entry."""
    position = HEADER_SIZE
    due = batches[0].offset
    for batch in batches:
        if batch.offset >= due:
            yield IndexEntry(batch.offset, position)
            due = batch.offset + interval
        position += batch.size


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
