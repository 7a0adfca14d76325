"""Manifests: immutable lists of the segments that left a head's tail.

Names are unique (a uuid each), so a manifest is never written twice and any that `Meta` refers to
is exactly what its writer uploaded. `Meta.chunks` is contiguous and in offset order; merging keeps
it short: `MERGE_WIDTH` chunks of one level become one of the next. Chunks whose records retention let go leave
the list; the epochs that they told of are in a manifest without segments, `Meta.epochs_key`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafscale.storage.heads import (
    SEGMENTS_TAG,
    CorruptValue,
    EpochStart,
    ManifestRef,
    Seg,
    encode_segs,
    parse_value,
    seg_from_pb,
)
from kafscale.storage.schema import SCHEMA
from kafscale.store.v1 import store_pb2 as pb

CHUNKS_MAX = 64
MERGE_WIDTH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    segments: tuple[Seg, ...]
    epochs: tuple[EpochStart, ...] = ()  # first offset of each epoch here; its start is the least of all


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """Chunks `[first:first + count]` of the list are to become one of `level`."""

    first: int
    count: int
    level: int


def encode_manifest(manifest: Manifest) -> bytes:
    message = pb.Manifest(schema=SCHEMA)
    for start in manifest.epochs:
        message.epochs.add(epoch=start.epoch, start=start.start)
    return message.SerializeToString() + encode_segs(manifest.segments, SEGMENTS_TAG)


def decode_manifest(data: bytes) -> Manifest:
    """Raises CorruptValue when the segments are not contiguous: a reader must not skip over a hole."""
    message = pb.Manifest()
    parse_value(message, data, "manifest")
    segments = tuple(seg_from_pb(seg) for seg in message.segments)
    for before, after in zip(segments, segments[1:], strict=False):
        if after.base != before.end:
            raise CorruptValue("manifest", f"segment {after.base} does not follow {before.last}")
    return Manifest(
        segments=segments,
        epochs=tuple(EpochStart(epoch=s.epoch, start=s.start) for s in message.epochs),
    )


def epoch_starts(segments: Sequence[Seg]) -> tuple[EpochStart, ...]:
    """The first offset of each epoch within `segments`."""
    starts: list[EpochStart] = []
    for seg in segments:
        if not starts or seg.epoch != starts[-1].epoch:
            starts.append(EpochStart(epoch=seg.epoch, start=seg.base))
    return tuple(starts)


def ref_to(key: str, manifest: Manifest, level: int = 0) -> ManifestRef:
    first, last = manifest.segments[0], manifest.segments[-1]
    return ManifestRef(key=key, first=first.base, last=last.last, count=len(manifest.segments), level=level)


def epochs_ref(key: str) -> ManifestRef:
    """To a manifest that lists no segments, only epochs of which no record is left: it covers no offset."""
    return ManifestRef(key=key, first=0, last=-1, count=0)


def merged(manifests: Sequence[Manifest]) -> Manifest:
    """One manifest of several neighbours, oldest first."""
    segments = tuple(seg for manifest in manifests for seg in manifest.segments)
    return Manifest(segments=segments, epochs=epoch_starts(segments))


def plan_merge(chunks: Sequence[ManifestRef]) -> MergePlan | None:
    """The first run of `MERGE_WIDTH` neighbours of one level, or None when nothing need merge.

    Levels never rise along the list, as merging always takes the oldest of a level; so runs of at
    most MERGE_WIDTH - 1 per level remain and the list stays under CHUNKS_MAX for 32^2 chunks and
    more. Past that bound the lowest levels are merged early.
    """
    run = 0
    for position, chunk in enumerate(chunks):
        run = run + 1 if position and chunks[position - 1].level == chunk.level else 1
        if run == MERGE_WIDTH:
            return MergePlan(first=position - run + 1, count=run, level=chunk.level + 1)
    if len(chunks) < CHUNKS_MAX:
        return None
    return _early_merge(chunks)


def _early_merge(chunks: Sequence[ManifestRef]) -> MergePlan:
    """The list is full without a complete run: merge its newest chunks up to the level before them."""
    first = len(chunks) - MERGE_WIDTH
    return MergePlan(first=first, count=MERGE_WIDTH, level=max(c.level for c in chunks[first:]))
