"""From batches with their final offsets to the bytes of a `.kfs` and an `.index`. Pure; copies no record.

The caller's buffers go into the body as they are; the checksum is chained over them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafscale.storage.segment.index import IndexEntry, encode_index
from kafscale.storage.segment.layout import (
    FOOTER,
    FOOTER_MAGIC,
    FOOTER_SIZE,
    FORMAT_VERSION,
    HEADER,
    HEADER_SIZE,
    INDEX_INTERVAL,
    POSITION_MAX,
    SEGMENT_MAGIC,
    Buffer,
)
from kafscale.wire.batches import crc32c


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
