"""A partition as its owners, upkeep and crashes leave it in the bucket, and etcd as it was at any time. Pure.

The content of an offset is its leader epoch: an offset of an epoch has one sequence of bytes. Every move follows
docs/protocol/commit.md; what a move stores may also stay uncommitted, as after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from kafscale.log.heads import EpochStart, Head, ManifestRef, Meta, Seg
from kafscale.operations.rollforward.chain import Piece
from kafscale.operations.rollforward.plan import Found, Known
from kafscale.storage.keys import Keyspace, TopicId

KEYS = Keyspace("test")
TOPIC_ID = TopicId(bytes(15) + b"\1")
OVERHEAD = 48
"""Bytes of a segment's header and footer."""
RECORD = 100


def seg_of(base: int, end: int, epoch: int, etag: str, *, size: int | None = None, **more: object) -> Seg:
    is_slice = "bundle" in more
    return replace(
        Seg(
            base=base,
            last_delta=end - base - 1,
            size=OVERHEAD + RECORD * (end - base) if size is None else size,
            etag=etag,
            crc32c=0,
            index_size=0 if is_slice else 28,
            index_etag="" if is_slice else etag,
            epoch=epoch,
            min_ts=base,
            max_ts=end,
            records=end - base,
            batches=1,
            created_ms=1,
        ),
        **more,  # type: ignore[arg-type]
    )


@dataclass
class LostEtcd:
    """`truth`: the epoch of each committed offset. `snapshots`: head and meta as they were at some times."""

    random: Random
    truth: list[int] = field(default_factory=list)
    epoch: int = 1
    head: Head = field(default_factory=lambda: Head(epoch=1, topic="orders", owner="1/a"))
    meta: Meta = field(default_factory=Meta)
    broken: bool = False
    """A flight was given up: the epoch has to end before more is written."""
    tree: dict[int, tuple[Seg, bool]] = field(default_factory=dict)
    """Base -> the object with the ordinary name, and whether it was settled."""
    slices: list[Seg] = field(default_factory=list)
    compacted: list[Seg] = field(default_factory=list)
    manifests: dict[str, tuple[Seg, ...]] = field(default_factory=dict)
    producers: dict[str, int] = field(default_factory=dict)
    snapshots: list[tuple[Head, Meta]] = field(default_factory=list)
    _names: int = 0

    def name(self) -> str:
        self._names += 1
        return f"{self._names:032x}"

    # -- the owner ------------------------------------------------------------------------------------

    def claim(self) -> None:
        self.epoch += self.random.randint(1, 3)
        self.broken = False
        self.head = replace(self.head, epoch=self.epoch)

    def write(self) -> None:
        """Up to four flights. Some are stored, and those before the first that is not may be committed."""
        if self.broken:
            self.claim()
        base = self.head.next
        flights: list[tuple[Seg, bool]] = []
        for _ in range(self.random.randint(1, 4)):
            end = base + self.random.randint(1, 9)
            flights.append((self._flight(base, end), self.random.random() < 0.85))
            base = end
        stored = next((at for at, (_, there) in enumerate(flights) if not there), len(flights))
        committed = self.random.choice([stored, stored, self.random.randint(0, stored)])
        for seg, there in flights:
            if there:
                self._store(seg)
        self._commit([seg for seg, _ in flights[:committed]])
        self.broken = committed < len(flights)

    def fold(self) -> None:
        """A slice repeats the newest slices of its epoch."""
        if self.broken:
            self.claim()
        count = 0
        for seg in reversed(self.head.tail):
            if not seg.is_slice or seg.epoch != self.epoch or count == 3:
                break
            count += 1
        taken = self.head.tail[len(self.head.tail) - count :]
        base = taken[0].base if taken else self.head.next
        seg = self._slice(base, self.head.next + self.random.randint(1, 9), self.epoch)
        self._store(seg)
        if self.random.random() < 0.8:
            self.head = replace(self.head, tail=self.head.tail[: len(self.head.tail) - count])
            self._commit([seg])
        else:
            self.broken = True

    def settle(self) -> None:
        """A run of slices becomes a segment; the plan may end after its upload."""
        tail = self.head.tail
        first = next((at for at, seg in enumerate(tail) if seg.is_slice), len(tail))
        run = [seg for seg in tail[first:] if seg.is_slice and seg.epoch == tail[first].epoch]
        run = run[: self.random.randint(1, 5)]
        if not run or any(a.end != b.base for a, b in zip(run, run[1:], strict=False)):
            return
        seg = seg_of(run[0].base, run[-1].end, run[0].epoch, self.name())
        self.tree[seg.base] = seg, True
        if self.random.random() < 0.8:
            self.head = replace(self.head, tail=(*tail[:first], seg, *tail[first + len(run) :]))

    def checkpoint(self) -> None:
        tail = self.head.tail
        at = next((at for at, seg in enumerate(tail) if seg.is_slice), len(tail))
        at = self.random.randint(0, at)
        if at == 0:
            return
        key = KEYS.manifest_key(TOPIC_ID, 0, tail[0].base, self.name())
        self.manifests[key] = tail[:at]
        snap = KEYS.snapshot_key(TOPIC_ID, 0, self.head.next, self.name())
        self.producers[snap] = self.head.next
        if self.random.random() < 0.8:
            self._publish(self._refs([*self.meta.chunks], key), tail[:at][-1].end)
            self.producers.pop(self.head.snap_key, None)
            self.head = replace(self.head, tail=tail[at:], snap_key=snap, snap_offset=self.head.next)

    # -- upkeep -----------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Moves the log start to the end of a segment, and deletes the oldest objects first. It may be interrupted."""
        listed = self._listed()
        gone = listed[: self.random.randint(0, len(listed))]
        if not gone:
            return
        self.meta = replace(self.meta, log_start=max(self.meta.log_start, gone[-1].end))
        # Dead slices and orphans are deleted within hours and days, before the records beside them expire.
        start = self.meta.log_start
        self.slices = [seg for seg in self.slices if seg in self.head.tail or seg.base >= start]
        self.tree = {base: found for base, found in self.tree.items() if found[0] in listed or base >= start}
        for seg in gone[: self.random.choice([len(gone), self.random.randint(0, len(gone))])]:
            if seg.is_slice:
                return
            if seg.key:
                self.compacted = [each for each in self.compacted if each != seg]
            elif self.tree.get(seg.base, (None, False))[0] == seg:
                del self.tree[seg.base]
            self.meta = replace(self.meta, swept=max(self.meta.swept, seg.end))

    def compact(self) -> None:
        """Neighbours of one epoch in the manifests become one smaller object; what they were may stay for a while."""
        every = [seg for chunk in self.meta.chunks for seg in self.manifests[chunk.key]]
        every = [seg for seg in every if seg.end > self.meta.log_start]
        if not every:
            return
        first = self.random.randrange(len(every))
        group = [seg for seg in every[first : first + 3] if seg.epoch == every[first].epoch]
        if any(a.end != b.base for a, b in zip(group, group[1:], strict=False)):
            return
        name = self.name()
        key = KEYS.compacted_key(TOPIC_ID, 0, group[0].base, name)
        size = max(sum(seg.size for seg in group) - 60, 109)
        seg = seg_of(group[0].base, group[-1].end, group[0].epoch, name, size=size, key=key)
        self.compacted.append(seg)
        if self.random.random() < 0.2:
            return  # it was never published
        kept = [each for chunk in self.meta.chunks for each in self.manifests[chunk.key]]
        at = kept.index(group[0])
        merged = (*kept[:at], seg, *kept[at + len(group) :])
        manifest = KEYS.manifest_key(TOPIC_ID, 0, merged[0].base, self.name())
        self.manifests[manifest] = merged
        old = [chunk.key for chunk in self.meta.chunks]
        self._publish(self._refs([], manifest), self.meta.manifest_end)
        if self.random.random() < 0.7:
            for each in old:
                del self.manifests[each]
            for each in group:
                self.tree = {base: found for base, found in self.tree.items() if found[0] != each}
                self.compacted = [other for other in self.compacted if other != each]

    def delete_bundles(self) -> None:
        """Of slices that the head names no more, and never will."""
        self.slices = [
            seg
            for seg in self.slices
            if seg in self.head.tail
            or not (self.head.epoch > seg.epoch or self.head.next >= seg.end)
            or self.random.random() < 0.5
        ]

    def back_up(self) -> None:
        self.snapshots.append((self.head, self.meta))

    # -- and what remains ---------------------------------------------------------------------------

    def found(self) -> Found:
        listed = {seg.etag for segs in self.manifests.values() for seg in segs}
        pieces = [Piece(seg, settled or seg.etag in listed) for seg, settled in self.tree.values()]
        pieces += [Piece(seg, False) for seg in self.slices]
        pieces += [Piece(seg, True) for seg in self.compacted if seg.etag in listed]
        self.random.shuffle(pieces)
        return Found(
            pieces=tuple(pieces),
            manifests=dict(self.manifests),
            snapshots=dict(self.producers),
            epoch=max((piece.seg.epoch for piece in pieces), default=0),
        )

    def _flight(self, base: int, end: int) -> Seg:
        if self.random.random() < 0.5:
            return self._slice(base, end, self.epoch)
        return seg_of(base, end, self.epoch, self.name())

    def _slice(self, base: int, end: int, epoch: int) -> Seg:
        bundle = bytes.fromhex(self.name())
        return seg_of(base, end, epoch, bundle.hex(), bundle=bundle, position=32)

    def _store(self, seg: Seg) -> None:
        if seg.is_slice:
            self.slices.append(seg)
        else:
            self.tree[seg.base] = seg, False

    def _commit(self, segs: Sequence[Seg]) -> None:
        for seg in segs:
            self.truth += [seg.epoch] * (seg.end - len(self.truth))
            epochs = self.head.epochs
            if not epochs or epochs[-1].epoch != seg.epoch:
                epochs = (*epochs, EpochStart(epoch=seg.epoch, start=self.head.next))
            self.head = replace(
                self.head, next=seg.end, lso=seg.end, tail=(*self.head.tail, seg), epochs=epochs
            )

    def _listed(self) -> list[Seg]:
        return [seg for chunk in self.meta.chunks for seg in self.manifests[chunk.key]] + [*self.head.tail]

    def _refs(self, chunks: list[ManifestRef], key: str) -> tuple[ManifestRef, ...]:
        segs = self.manifests[key]
        ref = ManifestRef(key=key, first=segs[0].base, last=segs[-1].last, count=len(segs))
        return (*chunks, ref)

    def _publish(self, chunks: tuple[ManifestRef, ...], end: int) -> None:
        self.meta = replace(self.meta, chunks=chunks, manifest_end=end)


def known(snapshot: tuple[Head, Meta] | None) -> Known:
    """Etcd with this snapshot, or without the partition."""
    if snapshot is None:
        return Known()
    return Known(head=snapshot[0], head_revision=1, meta=snapshot[1], meta_revision=1)
