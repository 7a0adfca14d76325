"""What to write for a partition, given what etcd and the bucket hold of it. Pure.

The laws. The high watermark and the log start never fall, so no offset is used twice. An owner from before the loss is
fenced: the new leader epoch is EPOCHS_SKIPPED above every epoch that anything names. So no instance ever held a higher
one, and each object that such an owner still writes counts as older. Markers that end transactions have such an epoch
of their own, below the head's. A head that is right, fenced and without open transactions stays as it is, so a second
run changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kafscale.log.heads import EPOCHS_MAX, EpochStart, Head, ManifestRef, Meta, OpenTransaction, Seg
from kafscale.log.manifests import MERGE_WIDTH, Manifest, epoch_starts, ref_to
from kafscale.log.transactions import Event
from kafscale.operations.rollforward.chain import Chain, Piece, chain_of
from kafscale.operations.rollforward.segments import OFFSETS_MAX, Filler, fillers
from kafscale.operations.rollforward.transactions import Replay, abort_markers
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
    events: Mapping[int, tuple[Event, ...]] = field(default_factory=dict)
    """Base offset -> begins and ends of transactions, of the segments that were `PartitionPlan.unread`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """`head` None: etcd is right, and nothing is written. `fillers` and `manifests`: to be stored first.

    `aborted`: what the last of `fillers` ends. `unread`: without these segments this is not the plan yet
    (`Found.events`).
    """

    topic_id: TopicId
    partition: int
    known: Known
    chain: Chain
    log_start: int
    head: Head | None = None
    meta: Meta = field(default_factory=Meta)
    fillers: tuple[Filler, ...] = ()
    manifests: Mapping[str, Manifest] = field(default_factory=dict)
    aborted: tuple[OpenTransaction, ...] = ()
    unread: tuple[Seg, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """A partition, and how the objects of it are named. `fresh`: unique ids for new objects. `now_ms`: of markers."""

    keys: Keyspace
    topic: str
    topic_id: TopicId
    partition: int
    fresh: Iterator[str]
    now_ms: int


def plan_partition(place: Place, known: Known, found: Found, epoch_floor: int) -> PartitionPlan:
    """`epoch_floor`: no epoch at or below it is used."""
    head, meta = known.head, known.meta
    chain = chain_of(
        found.pieces,
        epochs=_known_epochs(head, found),
        committed_end=committed_end(known, found),
        log_start=meta.log_start,
    )
    others = max(found.epoch, epoch_floor)
    epoch = max(others, 0 if head is None else head.epoch) + EPOCHS_SKIPPED
    log = _log_of(place, known, found, chain, epoch)
    plan = PartitionPlan(
        topic_id=place.topic_id,
        partition=place.partition,
        known=known,
        chain=chain,
        log_start=max(meta.log_start, chain.start),
        aborted=log.aborted,
        unread=log.unread,
    )
    if head is None or not _is_right(head, meta, found, plan, log):
        return _rebuilt(place, plan, found, log, epoch + EPOCHS_SKIPPED * bool(log.aborted))
    if not head.owner and head.epoch >= others + EPOCHS_SKIPPED:
        return plan
    fenced = replace(head, epoch=epoch, owner="", handoff_to="")
    return replace(plan, head=fenced, meta=replace(meta, gc_seq=meta.gc_seq + 1))


@dataclass(frozen=True, slots=True)
class _Log:
    """The segments of a log without gaps and without open transactions, those that are to be `made` among them."""

    segs: tuple[Seg, ...]
    made: tuple[Filler, ...]
    transactional: bool
    aborted: tuple[OpenTransaction, ...] = ()
    unread: tuple[Seg, ...] = ()


def _log_of(place: Place, known: Known, found: Found, chain: Chain, epoch: int) -> _Log:
    """`epoch`: of its markers."""
    made = _fillers(place, chain, _known_epochs(known.head, found))
    segs = sorted((*chain.segs, *(filler.seg for filler in made)), key=lambda seg: seg.base)
    if not found.transactional and not (known.head is not None and known.head.transactional):
        return _Log(tuple(segs), made, transactional=False)
    replay = Replay(chain, {piece.seg for piece in found.pieces if piece.told}, _began(known, found))
    plain = {piece.seg for piece in found.pieces if piece.plain}
    unread = tuple(seg for seg in replay.wanted(plain) if seg.base not in found.events)
    segs = [replay.take(seg, found.events.get(seg.base, ())) for seg in segs]
    entries = {seg.base: seg for seg in segs}
    made = tuple(replace(filler, seg=entries[filler.seg.base]) for filler in made)
    if replay.open:
        key = place.keys.compacted_key(place.topic_id, place.partition, chain.end, next(place.fresh))
        markers = abort_markers(replay.open, chain.end, epoch=epoch, now_ms=place.now_ms, key=key)
        segs, made = [*segs, markers.seg], (*made, markers)
    return _Log(tuple(segs), made, transactional=True, aborted=replay.open, unread=unread)


def _began(known: Known, found: Found) -> dict[tuple[int, int], int]:
    """The first offsets of aborted transactions by producer and marker, as all known commit records list them."""
    listed = [seg for segs in found.manifests.values() for seg in segs]
    listed += () if known.head is None else known.head.tail
    return {(each.producer_id, each.last): each.first for seg in listed for each in seg.aborted}


def _rebuilt(place: Place, plan: PartitionPlan, found: Found, log: _Log, epoch: int) -> PartitionPlan:
    meta, segs = plan.known.meta, log.segs
    at = _tail_start(segs)
    end = segs[-1].end if segs else plan.chain.end
    tail_base = segs[at].base if at < len(segs) else end
    chunks, manifests = _chunks(place, segs[:at], found.manifests, transactional=log.transactional)
    snap_key, snap_offset = _snapshot(found.snapshots, tail_base, plan.chain.end)
    head = Head(
        epoch=epoch,
        topic=place.topic,
        next=end,
        lso=end,
        tail=segs[at:],
        epochs=_epochs(plan.known.head, segs)[-EPOCHS_MAX:],
        bytes=sum(seg.size for seg in segs),
        max_ts=max((seg.max_ts for seg in segs), default=-1),
        snap_offset=snap_offset,
        snap_key=snap_key,
        transactional=log.transactional,
    )
    rebuilt = Meta(
        log_start=plan.log_start,
        manifest_end=tail_base,
        chunks=chunks,
        gc_seq=meta.gc_seq + 1,
        swept=min(meta.swept, plan.log_start),
        epochs_key=meta.epochs_key if found.epochs_kept else "",
    )
    return replace(plan, head=head, meta=rebuilt, fillers=log.made, manifests=manifests)


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


def _is_right(head: Head, meta: Meta, found: Found, plan: PartitionPlan, log: _Log) -> bool:
    """Whether head and meta list the log from its start on. What lies below is deleted: they may list segments that are
    gone, and the bucket may have some that nothing lists."""
    log_start = plan.log_start
    if (head.next, meta.log_start) != (plan.chain.end, log_start) or log.made or head.open:
        return False
    if any(chunk.key not in found.manifests for chunk in meta.chunks):
        return False
    listed = [seg for chunk in meta.chunks for seg in found.manifests[chunk.key]] + [*head.tail]
    right = [seg for seg in log.segs if seg.end > log_start]
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
