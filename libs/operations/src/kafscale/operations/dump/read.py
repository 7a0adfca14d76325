"""Reads a `.kfs` or `.index` object from its bytes alone, and lists all damage in it. Pure.

The services stop at the first fault. This reader continues as far as it can, because its user wants to know
what is left of a damaged segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from kafscale.log.segment import (
    FOOTER_SIZE,
    HEADER_SIZE,
    BatchSpan,
    SegmentError,
    SegmentFooter,
    SegmentHeader,
    SegmentIndex,
    parse_footer,
    parse_header,
    parse_index,
    walk_batches,
)
from kafscale.wire.batches import crc32c
from kafscale.wire.errors import WireError
from kafscale.wire.markers import Marker, marker_of
from kafscale.wire.records import BatchHeader, Record, has_valid_crc, read_batch_header, records_in

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch: its position, its header, and whether its checksum is right. `marker`: of a control batch, if its
    record could be read and compaction has not removed it."""

    position: int
    header: BatchHeader
    is_whole: bool
    marker: Marker | None = None

    @property
    def codec(self) -> str:
        try:
            return self.header.codec.name.lower()
        except ValueError:
            return "unknown"


@dataclass(slots=True, kw_only=True)
class Segment:
    """What could be read. `problems` explains what is missing."""

    size: int
    header: SegmentHeader | None = None
    footer: SegmentFooter | None = None
    crc32c: int | None = None
    """Computed from the batches."""
    batches: list[Batch] = field(default_factory=list)
    index: SegmentIndex | None = None
    problems: list[str] = field(default_factory=list)


def read_segment(data: bytes, index_data: bytes | None) -> Segment:
    """`index_data` is None if there is no index in the folder, which is not a problem."""
    found = Segment(size=len(data))
    found.header = attempt(lambda: parse_header(data), "header", found.problems)
    found.footer = attempt(lambda: parse_footer(data), "footer", found.problems)
    if len(data) >= HEADER_SIZE + FOOTER_SIZE:
        found.crc32c = crc32c(memoryview(data)[HEADER_SIZE : len(data) - FOOTER_SIZE])
        _read_batches(data, found)
        found.problems += _disagreements(found)
    elif not found.problems:
        found.problems.append(f"segment: {len(data)} bytes are too few for a header and a footer")
    if index_data is not None:
        found.index = read_index(index_data, found.problems)
        if found.index is not None:
            found.problems += _misplaced(found.index, found.batches)
    return found


def read_index(data: bytes, problems: list[str]) -> SegmentIndex | None:
    return attempt(lambda: parse_index(data), "index", problems)


def records_of(data: bytes, batch: Batch, problems: list[str]) -> list[Record]:
    """The records of one batch. A batch that cannot be opened adds a problem instead."""
    try:
        return list(records_in(memoryview(data)[batch.position :][: batch.header.size], batch.header))
    except WireError as broken:
        problems.append(f"{_name(batch.header, batch.position)}: {broken}")
        return []


def _name(header: BatchHeader, position: int) -> str:
    return f"batch {header.base_offset} at byte {position}"


def attempt(read: Callable[[], T], what: str, problems: list[str]) -> T | None:
    try:
        return read()
    except SegmentError as broken:
        problems.append(f"{what}: {broken}")
        return None


def _read_batches(data: bytes, found: Segment) -> None:
    """Until a batch does not say where the next one begins."""
    view = memoryview(data)
    spans = walk_batches(data)
    while (span := _next(spans, found.problems)) is not None:
        batch = view[span.position : span.position + span.size]
        header = read_batch_header(batch)
        is_whole, marker = has_valid_crc(header, batch), None
        if is_whole and header.is_control:
            try:
                marker = marker_of(batch, header)
            except WireError as broken:
                found.problems.append(f"{_name(header, span.position)}: {broken}")
        found.batches.append(Batch(position=span.position, header=header, is_whole=is_whole, marker=marker))


def _next(spans: Iterator[BatchSpan], problems: list[str]) -> BatchSpan | None:
    return attempt(lambda: next(spans, None), "batches", problems)


def _disagreements(found: Segment) -> Iterator[str]:
    """Between header, footer and batches, if they could be read."""
    footer, header, batches = found.footer, found.header, found.batches
    if footer is not None and footer.crc32c != found.crc32c:
        yield f"footer: its CRC-32C is {footer.crc32c:#010x}, that of the batches {found.crc32c:#010x}"
    for batch in batches:
        if not batch.is_whole:
            yield f"batch {batch.header.base_offset} at byte {batch.position}: its CRC-32C is wrong"
    for before, after in zip(batches, batches[1:], strict=False):
        if after.header.base_offset <= before.header.last_offset:
            yield (
                f"batch {after.header.base_offset} at byte {after.position}: "
                f"it begins before the end of the one in front of it, {before.header.last_offset}"
            )
    if found.problems or not batches:
        return  # counts mean nothing if a part could not be read
    records = sum(batch.header.records_count for batch in batches)
    facts = (
        ("header: base offset", header and header.base_offset, batches[0].header.base_offset),
        ("header: message count", header and header.message_count, records),
        ("footer: last offset", footer and footer.last_offset, batches[-1].header.last_offset),
    )
    for name, says, holds in facts:
        if says is not None and says != holds:
            yield f"{name} is {says}, that of the batches {holds}"


def _misplaced(index: SegmentIndex, batches: list[Batch]) -> Iterator[str]:
    starts = {batch.position: batch.header.base_offset for batch in batches}
    for entry in index.entries:
        if starts.get(entry.position) != entry.offset:
            yield f"index: no batch of offset {entry.offset} begins at byte {entry.position}"
