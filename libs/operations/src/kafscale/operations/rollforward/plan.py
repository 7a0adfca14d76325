"""What to write for a partition, given what etcd and the bucket hold of it. Pure.

The laws. The high watermark and the log start never fall, so no offset is used twice. An owner from before the loss is
fenced: the new leader epoch is EPOCHS_SKIPPED above every epoch that anything names. So no instance ever held a higher
one, and each object that such an owner still writes counts as older. A head that is right and fenced stays as it is, so
a second run changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kafscale.log.heads import EPOCHS_MAX, EpochStart, Head, ManifestRef, Meta, Seg
from kafscale.log.manifests import MERGE_WIDTH, Manifest, epoch_starts, ref_to
from kafscale.operations.rollforward.chain import Chain, Piece, chain_of
from kafscale.operations.rollforward.segments import OFFSETS_MAX, Filler, fillers
from kafscale.storage.keys import Keyspace, TopicId

EPOCHS_SKIPPED: Final = 1_000_000
"""A claim that left no object is not seen, so its epoch may be higher than all that are. Each claim takes seconds. A
leader epoch has room for two thousand such steps."""
TAIL_KEPT: Final = 8
"""Segments that stay in the tail, as after a checkpoint."""
MANIFEST_SEGMENTS_MAX: Final = 8_192
"""Of a new manifest: about a megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What etcd holds of a partition. Revision 0: no such key."""

    head: Head | None = None
    head_revision: int = 0
    meta: Meta = field(default_factory=Meta)
    meta_revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the bucket holds of a partition."""

    pieces: tuple[Piece, ...] = ()
    manifests: Mapping[str, tuple[Seg, ...]] = field(default_factory=dict)
    """Key -> the segments that it lists, all of which were committed."""
    snapshots: Mapping[str, int] = field(default_factory=dict)
    """Key of a producer snapshot -> the offset below which it covers committed batches."""
    epoch: int = 0
    """The highest leader epoch of any object."""
    epochs_kept: bool = False
    """Whether the manifest is there that holds the epochs of deleted records (`Meta.epochs_key`)."""
    transactional: bool = False
    """Whether anything of it shows that the log has ever had a transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """`head` None: etcd is right, and nothing is written. `fillers` and `manifests`: to be stored first."""

    topic_id: TopicId
    partition: int
    known: Known
    chain: Chain
    log_start: int
    head: Head | None = None
    meta: Meta = field(default_factory=Meta)
    fillers: tuple[Filler, ...] = ()
    manifests: Mapping[str, Manifest] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """A partition, and how the objects of it are named. `fresh`: unique ids for new manifests."""

    keys: Keyspace
    topic: str
    topic_id: TopicId
    partition: int
    fresh: Iterator[str]


def plan_partition(place: Place, known: Known, found: Found, epoch_floor: int) -> PartitionPlan:
    """`epoch_floor`: no epoch at or below it is used."""
    head, meta = known.head, known.meta
    chain = chain_of(
        found.pieces,
        epochs=_known_epochs(head, found),
        committed_end=committed_end(known, found),
        log_start=meta.log_start,
    )
    plan = PartitionPlan(
        topic_id=place.topic_id,
        partition=place.partition,
        known=known,
        chain=chain,
        log_start=max(meta.log_start, chain.start),
    )
    others = max(found.epoch, epoch_floor)
    epoch = max(others, 0 if head is None else head.epoch) + EPOCHS_SKIPPED
    if head is None or not _is_right(head, meta, found, plan):
        return _rebuilt(place, plan, found, epoch)
    if not head.owner and head.epoch >= others + EPOCHS_SKIPPED:
        return plan
    fenced = replace(head, epoch=epoch, owner="", handoff_to="")
    return replace(plan, head=fenced, meta=replace(meta, gc_seq=meta.gc_seq + 1))


def _rebuilt(place: Place, plan: PartitionPlan, found: Found, epoch: int) -> PartitionPlan:
    chain, meta = plan.chain, plan.known.meta
    made = _fillers(place, chain, _known_epochs(plan.known.head, found))
    segs = sorted((*chain.segs, *(filler.seg for filler in made)), key=lambda seg: seg.base)
    at = _tail_start(segs)
    tail_base = segs[at].base if at < len(segs) else chain.end
    known = plan.known.head
    transactional = found.transactional or (known is not None and known.transactional)
    chunks, manifests = _chunks(place, segs[:at], found.manifests, transactional=transactional)
    begun = known.open if known is not None and known.next == chain.end else ()
    snap_key, snap_offset = _snapshot(found.snapshots, tail_base, chain.end)
    head = Head(
        epoch=epoch,
        topic=place.topic,
        next=chain.end,
        lso=min((each.first for each in begun), default=chain.end),
        tail=tuple(segs[at:]),
        epochs=_epochs(plan.known.head, segs)[-EPOCHS_MAX:],
        bytes=sum(seg.size for seg in segs),
        max_ts=max((seg.max_ts for seg in segs), default=-1),
        snap_offset=snap_offset,
        snap_key=snap_key,
        open=begun,
        transactional=transactional,
    )
    rebuilt = Meta(
        log_start=plan.log_start,
        manifest_end=tail_base,
        chunks=chunks,
        gc_seq=meta.gc_seq + 1,
        swept=min(meta.swept, plan.log_start),
        epochs_key=meta.epochs_key if found.epochs_kept else "",
    )
    return replace(plan, head=head, meta=rebuilt, fillers=made, manifests=manifests)


def _fillers(place: Place, chain: Chain, epochs: Sequence[EpochStart]) -> tuple[Filler, ...]:
    """A log has no gaps, so segments without records cover those of the chain. Their epoch is the newest that is known
    to have begun before the end of the gap."""
    made: list[Filler] = []
    for gap in chain.gaps:
        before = next(seg for seg in reversed(chain.segs) if seg.end <= gap.first)
        keys = (
            place.keys.compacted_key(place.topic_id, place.partition, base, next(place.fresh))
            for base in range(gap.first, gap.end, OFFSETS_MAX)
        )
        epoch = max([before.epoch, *(start.epoch for start in epochs if start.start < gap.end)])
        made += fillers(gap.first, gap.end, epoch=epoch, created_ms=before.created_ms, keys=keys)
    return tuple(made)


def committed_end(known: Known, found: Found) -> int:
    """Everything below it was acknowledged, as heads, manifests, snapshots and settled segments prove."""
    ends = [0 if known.head is None else known.head.next, *found.snapshots.values()]
    ends += [segs[-1].end for segs in found.manifests.values() if segs]
    ends += [piece.seg.end for piece in found.pieces if piece.committed]
    return max(ends)


def _is_right(head: Head, meta: Meta, found: Found, plan: PartitionPlan) -> bool:
    """Whether head and meta list the chain from the log start on. What lies below is deleted: they may list segments
    that are gone, and the bucket may have some that nothing lists."""
    chain, log_start = plan.chain, plan.log_start
    if (head.next, meta.log_start) != (chain.end, log_start) or chain.gaps:
        return False
    if any(chunk.key not in found.manifests for chunk in meta.chunks):
        return False
    listed = [seg for chunk in meta.chunks for seg in found.manifests[chunk.key]] + [*head.tail]
    right = [seg for seg in chain.segs if seg.end > log_start]
    return [seg for seg in listed if seg.end > log_start] == right and (
        not head.snap_key or head.snap_key in found.snapshots
    )


def _tail_start(segs: Sequence[Seg]) -> int:
    """Manifests list no slices, so everything from the first slice on is in the tail."""
    first_slice = next((at for at, seg in enumerate(segs) if seg.is_slice), len(segs))
    return min(first_slice, max(0, len(segs) - TAIL_KEPT))


def _chunks(
    place: Place, segs: Sequence[Seg], stored: Mapping[str, tuple[Seg, ...]], *, transactional: bool
) -> tuple[tuple[ManifestRef, ...], dict[str, Manifest]]:
    """References to manifests that list exactly these segments: stored ones where they fit, new ones for the rest."""
    longest: dict[int, tuple[str, tuple[Seg, ...]]] = {}
    for key, listed in stored.items():
        if listed and len(listed) > len(longest.get(listed[0].base, ("", ()))[1]):
            longest[listed[0].base] = key, listed
    chunks: list[ManifestRef] = []
    made: dict[str, Manifest] = {}
    waiting: list[Seg] = []

    def write() -> None:
        if waiting:
            manifest = Manifest(
                segments=tuple(waiting), epochs=epoch_starts(waiting), transactional=transactional
            )
            key = place.keys.manifest_key(place.topic_id, place.partition, waiting[0].base, next(place.fresh))
            made[key] = manifest
            chunks.append(ref_to(key, manifest, _level(len(waiting))))
            waiting.clear()

    at = 0
    while at < len(segs):
        key, listed = longest.get(segs[at].base, ("", ()))
        if listed and tuple(segs[at : at + len(listed)]) == listed:
            write()
            chunks.append(ref_to(key, Manifest(segments=listed), _level(len(listed))))
            at += len(listed)
            continue
        waiting.append(segs[at])
        at += 1
        if len(waiting) == MANIFEST_SEGMENTS_MAX:
            write()
    write()
    return tuple(chunks), made


def _level(count: int) -> int:
    """The level at which merges of single checkpoints would have so many segments."""
    level = 0
    while count > MERGE_WIDTH:
        count //= MERGE_WIDTH
        level += 1
    return level


def _snapshot(snapshots: Mapping[str, int], tail_base: int, end: int) -> tuple[str, int]:
    """The newest producer snapshot that covers nothing above the high watermark. A claim replays what follows it.

    Without one, the producers that wrote nothing since `tail_base` are forgotten.
    """
    usable = [(offset, key) for key, offset in snapshots.items() if offset <= end]
    offset, key = max(usable, default=(tail_base, ""))
    return key, offset


def _known_epochs(head: Head | None, found: Found) -> Sequence[EpochStart]:
    """What a head and manifests say of epochs, also of segments that are lost. A head's own epoch began at or before
    its high watermark."""
    starts = [] if head is None else [*head.epochs, EpochStart(epoch=head.epoch, start=head.next)]
    for segs in found.manifests.values():
        starts += epoch_starts(segs)
    return starts


def _epochs(head: Head | None, segs: Sequence[Seg]) -> tuple[EpochStart, ...]:
    """Of these segments, and what the head says of those that are deleted."""
    starts: dict[int, int] = {}
    known = () if head is None else head.epochs
    for each in (*known, *epoch_starts(segs)):
        starts[each.epoch] = min(each.start, starts.get(each.epoch, each.start))
    return tuple(EpochStart(epoch=epoch, start=start) for epoch, start in sorted(starts.items()))
