"""Reads segments that may be torn, foreign or corrupt. Every length is checked before it is used. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from kafscale.storage.segment.layout import (
    BATCH_HEAD,
    BATCH_HEADER_SIZE,
    BATCH_PREFIX_SIZE,
    BATCH_RECORDS,
    BATCH_RECORDS_AT,
    FOOTER_SIZE,
    HEADER_SIZE,
    Buffer,
    Fault,
    SegmentError,
    SegmentFooter,
    SegmentHeader,
    expect,
    parse_footer,
    parse_header,
)
from kafscale.wire.batches import crc32c


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """A batch inside a buffer: bytes [position, position + size) hold offsets [offset, last_offset]."""

    position: int
    size: int
    offset: int
    last_offset: int
    records: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedSegment:
    """The header and footer values of a complete and intact `.kfs` object."""

    header: SegmentHeader
    footer: SegmentFooter


def walk_batches(buf: Buffer, start: int = HEADER_SIZE, end: int | None = None) -> Iterator[BatchSpan]:
    """The batches in bytes [start, end), which must begin and end at batch boundaries.

    `end` defaults to the footer of a whole segment. Checksums of single batches are not checked.
    """
    stop = len(buf) - FOOTER_SIZE if end is None else end
    position = start
    while position < stop:
        span = read_batch_span(buf, position, stop)
        yield span
        position += span.size


def read_batch_span(buf: Buffer, position: int, stop: int) -> BatchSpan:
    """The batch at `position`, which must end at or before `stop`."""
    if stop - position < BATCH_HEADER_SIZE:
        raise SegmentError(
            Fault.TOO_SHORT, position=position, expected=BATCH_HEADER_SIZE, found=stop - position
        )
    offset, length, leader_epoch, magic, _, _, last_delta = BATCH_HEAD.unpack_from(buf, position)
    (records,) = BATCH_RECORDS.unpack_from(buf, position + BATCH_RECORDS_AT)
    expect(Fault.MAGIC, position + 16, 2, magic)
    size = length + BATCH_PREFIX_SIZE
    if not BATCH_HEADER_SIZE <= size <= stop - position:
        bounds = f"{BATCH_HEADER_SIZE} to {stop - position} bytes"
        raise SegmentError(Fault.LENGTH, position=position + 8, expected=bounds, found=size)
    if offset < 0 or last_delta < 0:
        raise SegmentError(Fault.OFFSET, position=position, expected="0 or more", found=(offset, last_delta))
    if records < 0:
        raise SegmentError(
            Fault.COUNT, position=position + BATCH_RECORDS_AT, expected="0 or more", found=records
        )
    return BatchSpan(position, size, offset, offset + last_delta, records, leader_epoch)


def verify_segment(buf: Buffer, *, batches: bool = True) -> VerifiedSegment:
    """Checks a whole `.kfs` object: magics, version, checksum and, if `batches`, each batch's position.

    `batches=False` is for readers that visit the batches anyway. The checksum covers all their bytes.
    """
    header = parse_header(buf)
    if len(buf) < HEADER_SIZE + FOOTER_SIZE:
        raise SegmentError(Fault.TOO_SHORT, position=0, expected=HEADER_SIZE + FOOTER_SIZE, found=len(buf))
    footer = parse_footer(buf)
    end = len(buf) - FOOTER_SIZE
    found = crc32c(memoryview(buf)[HEADER_SIZE:end])
    expect(Fault.CHECKSUM, end, footer.crc32c, found)
    if batches:
        _verify_batches(buf, header, footer)
    return VerifiedSegment(header=header, footer=footer)


def _verify_batches(buf: Buffer, header: SegmentHeader, footer: SegmentFooter) -> None:
    due, records = header.base_offset, 0
    for span in walk_batches(buf):
        if span.offset < due or (span.position == HEADER_SIZE and span.offset != due):
            raise SegmentError(Fault.OFFSET, position=span.position, expected=due, found=span.offset)
        due = span.last_offset + 1
        records += span.records
    expect(Fault.OFFSET, len(buf) - FOOTER_SIZE + 4, footer.last_offset, due - 1)
    expect(Fault.COUNT, 16, header.message_count, records)
