"""The rules for bundles. Pure.

    Only the tail of a head names slices; manifests list segments. A slice has neither index nor key. The directory of a
    bundle that a head names has the key's id, and for each named slice an entry that equals the commit record.

A bundle that no head names is legal. It may be of a commit in progress, or its slices are dead and it waits for its
deletion. An object that is no bundle is counted, because no service reads it and none deletes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafscale.log.bundle import Directory, SliceEntry
from kafscale.log.heads import Seg
from kafscale.operations.fsck.checks import Partition, Problem
from kafscale.storage.keys import BundleId, TopicId


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
