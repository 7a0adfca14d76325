"""Reads a `.kfb` object from its bytes alone, and lists all damage in it. Pure.

The directory says where the slices are. Without a trailer nothing says where the directory is; then the slices are
found one after another from the header on, without the names of their partitions. Positions in a slice are its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kafscale.log.bundle import (
    BUNDLE_HEADER_SIZE,
    TRAILER_SIZE,
    SliceEntry,
    Trailer,
    parse_bundle_header,
    parse_directory,
    parse_trailer,
    read_entries,
)
from kafscale.log.segment import (
    FOOTER_MAGIC,
    FOOTER_SIZE,
    HEADER_SIZE,
    SEGMENT_MAGIC,
    SegmentError,
    read_batch_span,
)
from kafscale.operations.dump.read import Segment, attempt, read_segment
from kafscale.storage.keys import BundleId
from kafscale.wire.batches import crc32c


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSlice:
    """Bytes [position, position + size) of the bundle. `entry` is that of the directory, if there is one."""

    position: int
    data: bytes
    entry: SliceEntry | None
    segment: Segment

    @property
    def name(self) -> str:
        return f"slice at byte {self.position}"

    @property
    def is_whole(self) -> bool:
        return not self.segment.problems


@dataclass(slots=True, kw_only=True)
class Bundle:
    """What could be read. `problems` explains what is missing."""

    size: int
    header: tuple[BundleId, int] | None = None
    """The id, and the time of creation in ms."""
    trailer: Trailer | None = None
    crc32c: int | None = None
    """Computed from header and directory."""
    slices: list[FoundSlice] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_bundle(data: bytes) -> Bundle:
    found, view = Bundle(size=len(data)), memoryview(data)
    head = view[:BUNDLE_HEADER_SIZE]
    found.header = attempt(lambda: parse_bundle_header(head), "header", found.problems)
    trailer = attempt(lambda: parse_trailer(view[-TRAILER_SIZE:], len(data)), "trailer", found.problems)
    if trailer is None:
        found.slices = [_slice(data, start, end, None) for start, end in _walk_slices(data)]
    else:
        found.trailer = trailer
        directory = view[trailer.position : trailer.end]
        found.crc32c = crc32c(directory, crc32c(head))
        if found.header is not None:
            attempt(lambda: parse_directory(head, directory, trailer), "directory", found.problems)
        found.slices = [_slice(data, each.position, each.end, each) for each in read_entries(directory)]
    for each in found.slices:
        found.problems += [f"{each.name}: {problem}" for problem in each.segment.problems]
        found.problems += [f"{each.name}: {problem}" for problem in _disagreements(each)]
    return found


def _slice(data: bytes, start: int, end: int, entry: SliceEntry | None) -> FoundSlice:
    body = data[start:end]
    return FoundSlice(position=start, data=body, entry=entry, segment=read_segment(body, None))


def _walk_slices(data: bytes) -> Iterator[tuple[int, int]]:
    """The ranges of the slices as far as each begins where one ends. The last one may be cut."""
    start = BUNDLE_HEADER_SIZE
    while data[start : start + len(SEGMENT_MAGIC)] == SEGMENT_MAGIC:
        end = _slice_end(data, start)
        yield start, end
        start = end


def _slice_end(data: bytes, start: int) -> int:
    """Behind the footer, whose magic is where a batch has its leader epoch; no epoch has this value."""
    at = start + HEADER_SIZE
    try:
        while data[at + FOOTER_SIZE - len(FOOTER_MAGIC) : at + FOOTER_SIZE] != FOOTER_MAGIC:
            at += read_batch_span(data, at, len(data)).size
    except SegmentError:
        return len(data)
    return at + FOOTER_SIZE


def _disagreements(found: FoundSlice) -> Iterator[str]:
    """Between a whole slice and its entry."""
    entry, segment = found.entry, found.segment
    if entry is None or segment.problems or segment.header is None or segment.footer is None:
        return
    facts = (
        ("base offset", entry.base, segment.header.base_offset),
        ("last offset", entry.last, segment.footer.last_offset),
        ("CRC-32C", entry.crc32c, segment.footer.crc32c),
        ("records", entry.records, segment.header.message_count),
        ("batches", entry.batches, len(segment.batches)),
        ("largest timestamp", entry.max_ts, max(each.header.max_timestamp for each in segment.batches)),
    )
    for fact, says, holds in facts:
        if says != holds:
            yield f"{fact} in the directory is {says}, that of the slice {holds}"
    epochs = {each.header.partition_leader_epoch for each in segment.batches}
    if epochs != {entry.leader_epoch}:
        yield f"leader epoch in the directory is {entry.leader_epoch}, those of the batches {sorted(epochs)}"
