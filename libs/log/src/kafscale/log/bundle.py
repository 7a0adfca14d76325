"""A bundle: one object with the records that an instance flushed of many partitions at once. Pure.

    header      32 bytes  magic `KAFB`, version, flags, created (ms), id
    slices                one after another, without padding; each is a complete `.kfs` image
    directory   80 bytes for each slice, in the order of the slices
    trailer     16 bytes  position of the directory, number of entries, CRC-32C of header and directory, magic `KFB!`

Every integer is big-endian. The directory tells tools what a bundle holds; a reader of records finds the place of a
slice in the head of its partition and reads only that range. A bundle has at most one slice of a partition.
A slice has its own checksum, so the trailer's covers header and directory alone.

`Standings` says what the heads of all partitions say about bundles: which they name, and which slices are dead. Heads
may be read one after another, because "dead" is final (`is_dead`). The names and the standing of a head must come from
one read of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafscale.log.heads import EpochStart, Head
from kafscale.log.segment import (
    FOOTER_SIZE,
    HEADER_SIZE,
    POSITION_MAX,
    Buffer,
    Fault,
    Segment,
    SegmentError,
    expect,
)
from kafscale.storage.keys import TOPIC_ID_BYTES, BundleId, PartitionKey, TopicId
from kafscale.wire.batches import crc32c

BUNDLE_MAGIC: Final = b"KAFB"
TRAILER_MAGIC: Final = b"KFB!"
BUNDLE_VERSION: Final = 1

_HEADER: Final = struct.Struct(">4sHHq16s")
_ENTRY: Final = struct.Struct(">16siiqqIIIIIqqI")
_TRANSACTIONAL: Final = 1
_TRAILER: Final = struct.Struct(">III4s")
BUNDLE_HEADER_SIZE: Final = _HEADER.size
ENTRY_SIZE: Final = _ENTRY.size
TRAILER_SIZE: Final = _TRAILER.size
BUNDLE_ID_RANDOM_BYTES: Final = 10


class SliceEntry(NamedTuple):
    """What the directory says of one slice. `position` and `size` are bytes; `crc32c` is that of the slice's footer.
    Bits of `flags` that a version does not know are kept as they are."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    base: int
    last: int
    position: int
    size: int
    crc32c: int
    records: int
    batches: int
    min_ts: int
    max_ts: int
    flags: int = 0

    @property
    def end(self) -> int:
        """The position after the slice."""
        return self.position + self.size

    @property
    def transactional(self) -> bool:
        """Whether the slice has batches of transactions, or markers."""
        return bool(self.flags & _TRANSACTIONAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A partition's segment on its way into a bundle."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    segment: Segment
    min_ts: int
    max_ts: int
    transactional: bool = False  # it has batches of transactions, or markers


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltBundle:
    """`body` is the scatter list of the object, `size` its length, `entries` are in the order of the slices."""

    id: BundleId
    body: list[Buffer]
    size: int
    entries: tuple[SliceEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """What a stored bundle says of itself."""

    id: BundleId
    created_ms: int
    entries: tuple[SliceEntry, ...]


class Standing(NamedTuple):
    """What a head says about the slices of its partition. `starts`: of the epochs in which something was committed."""

    epoch: int
    high_watermark: int
    starts: tuple[EpochStart, ...] = ()


def standing_of(head: Head) -> Standing:
    return Standing(head.epoch, head.next, head.epochs)


def is_dead(entry: SliceEntry, standing: Standing | None) -> bool:
    """Whether no head will ever name this slice, given that the partition's head does not name its bundle now.

    The answer "dead" is final within one history of etcd (`storage.history`). An epoch has one writer, which has one
    transaction at a time: what it has not committed when the high watermark is past the slice, or the epoch is over, it
    never commits. `standing` None: the partition has no head, so its topic was deleted.
    """
    return standing is None or standing.epoch > entry.leader_epoch or standing.high_watermark > entry.last


def was_committed(entry: SliceEntry, standing: Standing) -> bool:
    """Whether the head agrees that the slice was in the log: the high watermark has passed it, and no later epoch that
    the head knows began before its end. If not, it was never committed, or etcd went back.
    """
    later = (start.start for start in standing.starts if start.epoch > entry.leader_epoch)
    return min(later, default=standing.high_watermark) > entry.last


class Trailer(NamedTuple):
    """Where the directory is: bytes [position, position + entries * ENTRY_SIZE)."""

    position: int
    entries: int
    crc32c: int

    @property
    def end(self) -> int:
        return self.position + self.entries * ENTRY_SIZE


def new_bundle_id(now_ms: int, random: bytes) -> BundleId:
    """Six bytes of the time, from which the object's folder follows, and `BUNDLE_ID_RANDOM_BYTES` random bytes."""
    assert len(random) == BUNDLE_ID_RANDOM_BYTES, random
    return BundleId(now_ms.to_bytes(6, "big") + random)


def made_ms(bundle_id: BundleId) -> int:
    """The time in an id."""
    return int.from_bytes(bundle_id[:6], "big")


def build_bundle(bundle_id: BundleId, slices: Sequence[Slice], created_ms: int) -> BuiltBundle:
    """No record is copied: the body lists the buffers of the segments as they are."""
    assert slices, "a bundle holds at least one slice"
    header = _HEADER.pack(BUNDLE_MAGIC, BUNDLE_VERSION, 0, created_ms, bundle_id)
    body: list[Buffer] = [header]
    entries: list[SliceEntry] = []
    position = BUNDLE_HEADER_SIZE
    for each in slices:
        entries.append(_entry(each, position))
        body += each.segment.body
        position += each.segment.size
    assert len({(entry.topic_id, entry.partition) for entry in entries}) == len(entries), "two of a partition"
    assert position <= POSITION_MAX, position
    directory = b"".join([_ENTRY.pack(*entry) for entry in entries])
    trailer = _TRAILER.pack(position, len(entries), crc32c(directory, crc32c(header)), TRAILER_MAGIC)
    return BuiltBundle(
        id=bundle_id,
        body=[*body, directory, trailer],
        size=position + len(directory) + TRAILER_SIZE,
        entries=tuple(entries),
    )


def _entry(each: Slice, position: int) -> SliceEntry:
    segment = each.segment
    return SliceEntry(
        topic_id=each.topic_id,
        partition=each.partition,
        leader_epoch=each.leader_epoch,
        base=segment.base_offset,
        last=segment.last_offset,
        position=position,
        size=segment.size,
        crc32c=segment.crc32c,
        records=segment.records,
        batches=segment.batches,
        min_ts=each.min_ts,
        max_ts=each.max_ts,
        flags=_TRANSACTIONAL if each.transactional else 0,
    )


def parse_bundle(data: Buffer) -> Directory:
    """The directory of a whole object. Raises SegmentError. `verify_segment` checks a slice; this does not."""
    view = memoryview(data)
    if len(view) < BUNDLE_HEADER_SIZE + TRAILER_SIZE:
        raise SegmentError(
            Fault.TOO_SHORT, position=0, expected=BUNDLE_HEADER_SIZE + TRAILER_SIZE, found=len(view)
        )
    trailer = parse_trailer(view[-TRAILER_SIZE:], len(view))
    return parse_directory(view[:BUNDLE_HEADER_SIZE], view[trailer.position : trailer.end], trailer)


def parse_trailer(data: Buffer, size: int) -> Trailer:
    """The last TRAILER_SIZE bytes of an object of `size` bytes. Raises SegmentError."""
    at = size - TRAILER_SIZE
    if len(data) != TRAILER_SIZE:
        raise SegmentError(Fault.TOO_SHORT, position=max(at, 0), expected=TRAILER_SIZE, found=len(data))
    position, entries, crc, magic = _TRAILER.unpack(data)
    expect(Fault.MAGIC, at + 12, TRAILER_MAGIC, magic)
    trailer = Trailer(position, entries, crc)
    if not entries:
        raise SegmentError(Fault.COUNT, position=at + 4, expected="1 or more entries", found=0)
    expect(Fault.LENGTH, at, at, trailer.end)
    return trailer


def parse_directory(header: Buffer, directory: Buffer, trailer: Trailer) -> Directory:
    """From the first BUNDLE_HEADER_SIZE bytes and the bytes that the trailer names. Raises SegmentError."""
    bundle_id, created_ms = parse_bundle_header(header)
    expect(Fault.LENGTH, trailer.position, trailer.end - trailer.position, len(directory))
    expect(Fault.CHECKSUM, trailer.end + 8, trailer.crc32c, crc32c(directory, crc32c(header)))
    entries = read_entries(directory)
    _check_entries(entries, trailer)
    return Directory(id=bundle_id, created_ms=created_ms, entries=entries)


def parse_bundle_header(header: Buffer) -> tuple[BundleId, int]:
    """The id, and the time of creation in ms, from exactly BUNDLE_HEADER_SIZE bytes. Raises SegmentError."""
    expect(Fault.LENGTH, 0, BUNDLE_HEADER_SIZE, len(header))
    magic, version, flags, created_ms, bundle_id = _HEADER.unpack(header)
    expect(Fault.MAGIC, 0, BUNDLE_MAGIC, magic)
    expect(Fault.VERSION, 4, BUNDLE_VERSION, version)
    expect(Fault.FLAGS, 6, 0, flags)
    return BundleId(bundle_id), created_ms


def read_entries(directory: Buffer) -> tuple[SliceEntry, ...]:
    """Whole entries, unchecked: for a tool that shows what a damaged directory says."""
    return tuple(_read_entry(values) for values in _ENTRY.iter_unpack(directory))


def _read_entry(values: tuple[int | bytes, ...]) -> SliceEntry:
    entry = SliceEntry(*values)  # type: ignore[arg-type]  # the format of _ENTRY
    assert len(entry.topic_id) == TOPIC_ID_BYTES
    return entry


def _check_entries(entries: Sequence[SliceEntry], trailer: Trailer) -> None:
    """The slices fill the bytes between header and directory; each is one partition's."""
    due = BUNDLE_HEADER_SIZE
    for number, entry in enumerate(entries):
        at = trailer.position + number * ENTRY_SIZE
        expect(Fault.POSITION, at + 40, due, entry.position)
        if entry.size < HEADER_SIZE + FOOTER_SIZE:
            raise SegmentError(
                Fault.LENGTH, position=at + 44, expected=HEADER_SIZE + FOOTER_SIZE, found=entry.size
            )
        if entry.partition < 0 or not 0 <= entry.base <= entry.last:
            raise SegmentError(Fault.OFFSET, position=at + 16, expected="0 or more, rising", found=entry)
        due = entry.end
    expect(Fault.POSITION, trailer.end, trailer.position, due)
    partitions = {(entry.topic_id, entry.partition) for entry in entries}
    expect(Fault.COUNT, trailer.end + 4, len(entries), len(partitions))


@dataclass(slots=True)
class Standings:
    """Of the partitions whose heads were read. `unreadable`: a head is there, and its value cannot be read."""

    named: set[BundleId] = field(default_factory=set)
    unreadable: set[PartitionKey] = field(default_factory=set)
    _of: dict[PartitionKey, Standing] = field(default_factory=dict)

    def note(self, where: PartitionKey, head: Head) -> None:
        self._of[where] = standing_of(head)
        self.named |= {BundleId(seg.bundle) for seg in head.tail if seg.is_slice}

    def forget(self, where: PartitionKey) -> None:
        """Its topic was deleted meanwhile."""
        self._of.pop(where, None)

    def keeping(self, entries: Iterable[SliceEntry]) -> set[PartitionKey]:
        """The partitions that may still commit a slice of a bundle that no head names. An unreadable head keeps it."""
        found = set()
        for entry in entries:
            where = (entry.topic_id, entry.partition)
            if where in self.unreadable or not is_dead(entry, self._of.get(where)):
                found.add(where)
        return found

    def headless(self, entries: Iterable[SliceEntry]) -> set[TopicId]:
        """The topics of partitions without a head: they were deleted, or are of another cluster."""
        known = self._of.keys() | self.unreadable
        return {entry.topic_id for entry in entries if (entry.topic_id, entry.partition) not in known}

    def all_committed(self, entries: Iterable[SliceEntry]) -> bool:
        """Whether the heads agree that each slice was in its log, as far as the partition has a head. What never was is
        the trace of a failed write, or of an etcd that went back."""
        standings = ((entry, self._of.get((entry.topic_id, entry.partition))) for entry in entries)
        return all(standing is None or was_committed(entry, standing) for entry, standing in standings)
