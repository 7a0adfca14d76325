"""Commit records from the bytes of stored objects, and segments without records for gaps. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kafscale.log.bundle import Directory, SliceEntry
from kafscale.log.heads import Seg
from kafscale.log.segment import (
    HEADER,
    BatchInfo,
    Segment,
    build_segment,
    parse_index,
    verify_segment,
    walk_batches,
)
from kafscale.wire.batches import TIMESTAMP_NONE, empty_batch
from kafscale.wire.records import read_batch_header

OFFSETS_MAX: Final = (1 << 31) - 1
"""Of a segment: a commit record holds the difference of its offsets in 31 bits."""


class Rejected(Exception):
    """An object that no commit can have named."""


def seg_of_stored(base: int, data: bytes, etag: str, index: bytes, index_etag: str) -> Seg:
    """`base` as its name says. Raises SegmentError for bytes that are damaged, Rejected for others than the name's."""
    verified = verify_segment(data)
    parse_index(index)
    if verified.header.base_offset != base:
        raise Rejected(f"its header has the base offset {verified.header.base_offset}")
    spans = list(walk_batches(data))
    headers = [read_batch_header(data, span.position) for span in spans]
    epochs = {span.leader_epoch for span in spans}
    if len(epochs) != 1:
        raise Rejected(f"its batches have the leader epochs {sorted(epochs)}")
    return Seg(
        base=base,
        last_delta=verified.footer.last_offset - base,
        size=len(data),
        etag=etag,
        crc32c=verified.footer.crc32c,
        index_size=len(index),
        index_etag=index_etag,
        epoch=epochs.pop(),
        min_ts=min(header.base_timestamp for header in headers),
        max_ts=max(header.max_timestamp for header in headers),
        records=verified.header.message_count,
        batches=len(spans),
        created_ms=verified.header.created_ms,
    )


def is_settled(data: bytes) -> bool:
    """Whether the owner settled it from slices, which the head named: then its records were acknowledged.

    Such a segment has random bits in the reserved field of its header, and others have 0.
    """
    return bool(HEADER.unpack_from(data)[-1])


def seg_of_slice(entry: SliceEntry, etag: str, directory: Directory) -> Seg:
    return Seg(
        base=entry.base,
        last_delta=entry.last - entry.base,
        size=entry.size,
        etag=etag,
        crc32c=entry.crc32c,
        index_size=0,
        index_etag="",
        epoch=entry.leader_epoch,
        min_ts=entry.min_ts,
        max_ts=entry.max_ts,
        records=entry.records,
        batches=entry.batches,
        created_ms=directory.created_ms,
        bundle=directory.id,
        position=entry.position,
    )


@dataclass(frozen=True, slots=True)
class Filler:
    """A segment that covers a gap with batches without records, as compaction leaves them. The etags are in `seg` once
    its two objects are stored."""

    seg: Seg
    segment: Segment


def fillers(first: int, end: int, *, epoch: int, created_ms: int, keys: Iterator[str]) -> Iterator[Filler]:
    """For offsets [first, end). `keys`: unique names for the objects."""
    for base in range(first, end, OFFSETS_MAX):
        last = min(base + OFFSETS_MAX, end) - 1
        batch = empty_batch(base, last, epoch)
        built = build_segment(base, [BatchInfo(base, last, len(batch), 0)], [batch], created_ms)
        seg = Seg(
            base=base,
            last_delta=last - base,
            size=built.size,
            etag="",
            crc32c=built.crc32c,
            index_size=len(built.index),
            index_etag="",
            epoch=epoch,
            min_ts=TIMESTAMP_NONE,
            max_ts=TIMESTAMP_NONE,
            records=0,
            batches=1,
            created_ms=created_ms,
            key=next(keys),
        )
        yield Filler(seg, built)
