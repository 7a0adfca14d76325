"""The rules for a partition's head, its manifests and its objects, and for bundles. Pure.

    0 <= swept <= log_start <= next; manifest_end <= next; manifests and tail contiguous, and beginning at or
    before the log start; each listed object exists with the etag, size, checksum, header, footer and index
    that the commit record says; epochs never fall.
    Only the tail of a head names slices; manifests list segments. A slice has neither index nor key. The directory of a
    bundle that a head names has the key's id, and for each named slice an entry that equals the commit record.
An object that no record names is an orphan: a crash may leave it, so it is counted and is not an error. The same is
true of a segment whose records are all below the log start, with or without its objects.
A bundle that no head names is legal. It may be of a commit in progress, or its slices are dead and it waits for its
deletion. An object that is no bundle is counted, because no service reads it and none deletes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafscale.log.bundle import Directory, SliceEntry
from kafscale.log.heads import Head, Meta, Seg
from kafscale.log.segment import SegmentError, find_position, parse_index, verify_segment, walk_batches
from kafscale.storage.keys import BundleId, TopicId
from kafscale.wire.records import read_batch_header


@dataclass(frozen=True, slots=True)
class Problem:
    """A broken rule: where, and a sentence that says what is wrong."""

    where: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition as etcd and its manifests describe it, at one revision."""

    name: str  # topic/partition
    head: Head
    meta: Meta
    segments: tuple[Seg, ...]  # of the manifests, then of the tail


def check_offsets(part: Partition) -> Iterator[Problem]:
    """The chain of offsets, without reading objects."""
    head, meta = part.head, part.meta
    if not 0 <= meta.log_start <= head.next:
        yield Problem(part.name, f"log start {meta.log_start} is outside [0, {head.next}]")
    if head.tail and head.tail[0].base != meta.manifest_end:
        yield Problem(
            part.name, f"the tail starts at {head.tail[0].base}, the manifests end at {meta.manifest_end}"
        )
    if not 0 <= meta.swept <= meta.log_start:
        yield Problem(part.name, f"swept up to {meta.swept}, the log starts at {meta.log_start}")
    yield from _check_chain(part)
    yield from _check_epochs(part)


def _check_chain(part: Partition) -> Iterator[Problem]:
    for before, after in zip(part.segments, part.segments[1:], strict=False):
        if after.base != before.end:
            yield Problem(
                part.name, f"segment {after.base} does not follow the one that ends at {before.last}"
            )
    first = part.segments[0].base if part.segments else part.meta.manifest_end
    if first > part.meta.log_start:
        yield Problem(
            part.name, f"the log starts at {part.meta.log_start}, the first segment listed at {first}"
        )
    end = part.segments[-1].end if part.segments else part.meta.manifest_end
    if end != part.head.next:
        yield Problem(part.name, f"the segments end at {end}, the high watermark is {part.head.next}")


def _check_epochs(part: Partition) -> Iterator[Problem]:
    epochs = [seg.epoch for seg in part.segments]
    if epochs != sorted(epochs):
        yield Problem(part.name, "leader epochs fall along the segments")
    if epochs and epochs[-1] > part.head.epoch:
        yield Problem(
            part.name, f"a segment of epoch {epochs[-1]} is newer than the head's epoch {part.head.epoch}"
        )


def check_segment(where: str, seg: Seg, data: bytes) -> Iterator[Problem]:
    """A `.kfs` object against its commit record."""
    if len(data) != seg.size:
        yield Problem(where, f"has {len(data)} bytes, the commit record says {seg.size}")
        return
    try:
        verified = verify_segment(data)
        spans = list(walk_batches(data))
    except SegmentError as broken:
        yield Problem(where, str(broken))
        return
    facts = (
        ("checksum", seg.crc32c, verified.footer.crc32c),
        ("base offset", seg.base, verified.header.base_offset),
        ("last offset", seg.last, verified.footer.last_offset),
        ("records", seg.records, verified.header.message_count),
        ("batches", seg.batches, len(spans)),
        ("first batch's offset", seg.base, spans[0].offset),
        ("last batch's last offset", seg.last, spans[-1].last_offset),
        (
            "largest timestamp",
            seg.max_ts,
            max(read_batch_header(data, s.position).max_timestamp for s in spans),
        ),
    )
    for name, recorded, found in facts:
        if recorded != found:
            yield Problem(where, f"{name}: the commit record says {recorded}, the object {found}")
    for before, after in zip(spans, spans[1:], strict=False):
        if (
            after.offset != before.last_offset + 1 and not seg.key
        ):  # compaction leaves gaps between its batches
            yield Problem(where, f"batch {after.offset} does not follow {before.last_offset}")
    if any(span.leader_epoch != seg.epoch for span in spans):
        yield Problem(where, f"a batch is not of the recorded epoch {seg.epoch}")


def check_index(where: str, seg: Seg, index_data: bytes, data: bytes) -> Iterator[Problem]:
    """An `.index` object against its commit record and its segment."""
    if len(index_data) != seg.index_size:
        yield Problem(where, f"has {len(index_data)} bytes, the commit record says {seg.index_size}")
        return
    try:
        index = parse_index(index_data)
        starts = {span.position: span.offset for span in walk_batches(data)}
    except SegmentError as broken:
        yield Problem(where, str(broken))
        return
    for entry in index.entries:
        if starts.get(entry.position) != entry.offset:
            yield Problem(where, f"entry {entry.offset} does not point at its batch (byte {entry.position})")
    if find_position(index, seg.base) not in starts:
        yield Problem(where, "the first entry points nowhere")


@dataclass(frozen=True, slots=True)
class NamedSlice:
    """A slice in the tail of a head."""

    topic_id: TopicId
    partition: int
    topic: str
    seg: Seg

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}"


def check_slices(part: Partition) -> Iterator[Problem]:
    """Which segments may be slices, and what their commit records say, without reading objects."""
    for seg in part.segments[: len(part.segments) - len(part.head.tail)]:
        if seg.is_slice:
            yield Problem(
                part.name,
                f"a manifest lists the slice {seg.base} of bundle {seg.bundle.hex()}: only heads may",
            )
    for seg in part.segments:
        if seg.is_slice and (seg.key or seg.index_size or seg.index_etag):
            yield Problem(part.name, f"the slice {seg.base} has the key or the index of a segment")


def check_directory(
    where: str, bundle_id: BundleId, directory: Directory, named: Sequence[NamedSlice]
) -> Iterator[Problem]:
    """A bundle's directory against its key and against the heads that name the bundle."""
    if directory.id != bundle_id:
        yield Problem(where, f"its header has the id {directory.id.hex()}")
    entries = {(entry.topic_id, entry.partition): entry for entry in directory.entries}
    for each in named:
        entry = entries.get((each.topic_id, each.partition))
        if entry is None:
            yield Problem(where, f"its directory has no slice of {each.name}, which the head names")
            continue
        for fact, recorded, found in _facts(each.seg, entry):
            if recorded != found:
                yield Problem(
                    where, f"{fact} of {each.name}: the commit record says {recorded}, the directory {found}"
                )


def _facts(seg: Seg, entry: SliceEntry) -> Iterator[tuple[str, int, int]]:
    yield "position", seg.position, entry.position
    yield "size", seg.size, entry.size
    yield "leader epoch", seg.epoch, entry.leader_epoch
    yield "base offset", seg.base, entry.base
    yield "last offset", seg.last, entry.last
    yield "checksum", seg.crc32c, entry.crc32c
    yield "records", seg.records, entry.records
    yield "batches", seg.batches, entry.batches
    yield "smallest timestamp", seg.min_ts, entry.min_ts
    yield "largest timestamp", seg.max_ts, entry.max_ts
