"""Which bundles of this instance may be deleted: the whole decision. Pure; all times are mono_ms.

A bundle is deleted by the instance that wrote it, when no head names it, each of its slices is dead
(`log.bundle.is_dead`, which is final within one history of etcd), its PUT has an answer, and `grace_ms` have passed
since then: a reader may have seen an older head. What happens to a slice shows in the head of its partition. The
instance sees the heads of the partitions that it owns change by change (`changed`). It asks for those that have moved
away (`elsewhere`).

A slice that this instance has acknowledged is in the log for good. If a head shows that it never was, etcd went back:
the slice stays, and `changed` says so.

Dead bundles wait for their deletion in `DeadBundles`, oldest first. A directory takes hundreds of bundles a second, and
each waits for a quarter of an hour. So the ids of a second are one string of bytes, and a look costs as much as it
finds. The sweep of upkeep deletes what an instance leaves behind when it ends.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kafscale.log.bundle import SliceEntry, is_dead, standing_of, was_committed
from kafscale.log.heads import Head
from kafscale.storage.keys import BundleId, PartitionKey

ID_BYTES: Final = 16
PART_MS: Final = 1_000
DEAD_MAX: Final = 500_000
"""8 MB. What is more is left to the sweep of upkeep: the store refuses the deletions, or takes too few."""


@dataclass(slots=True)
class _Part:
    """`ids` died between `first_ms` and `last_ms`."""

    first_ms: int
    last_ms: int
    ids: bytearray


class DeadBundles:
    def __init__(self, grace_ms: int, dead_max: int = DEAD_MAX) -> None:
        self._grace_ms = grace_ms
        self._dead_max = dead_max
        self._parts: deque[_Part] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, bundle_id: BundleId, now_ms: int) -> None:
        if self._count == self._dead_max:
            return
        if not self._parts or now_ms >= self._parts[-1].first_ms + PART_MS:
            self._parts.append(_Part(now_ms, now_ms, bytearray()))
        part = self._parts[-1]
        part.last_ms = now_ms
        part.ids += bundle_id
        self._count += 1

    def take(self, now_ms: int, at_most: int) -> list[BundleId]:
        """Those that are dead for the grace, out of here."""
        found: list[BundleId] = []
        while self._parts and len(found) < at_most and self._parts[0].last_ms + self._grace_ms <= now_ms:
            ids = self._parts[0].ids
            some = bytes(ids[: (at_most - len(found)) * ID_BYTES])
            del ids[: len(some)]
            found += [BundleId(some[at : at + ID_BYTES]) for at in range(0, len(some), ID_BYTES)]
            if not ids:
                self._parts.popleft()
        self._count -= len(found)
        return found

    def put_back(self, some: Iterable[BundleId], now_ms: int) -> None:
        """Taken, and not deleted: they are due again at once."""
        ids = bytearray(b"".join(some))
        if ids:
            since_ms = now_ms - self._grace_ms
            self._parts.appendleft(_Part(since_ms - PART_MS, since_ms, ids))
            self._count += len(ids) // ID_BYTES


@dataclass(slots=True)
class _Bundle:
    alive: dict[PartitionKey, SliceEntry]
    acknowledged: set[PartitionKey] = field(default_factory=set)
    answered: bool = False


class OwnBundles:
    """Memory: some 500 bytes for each slice that is not dead. Their number is bounded by what tails may name."""

    def __init__(self, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self._bundles: dict[BundleId, _Bundle] = {}
        self._of: defaultdict[PartitionKey, set[BundleId]] = defaultdict(set)
        self.dead = DeadBundles(grace_ms)

    def __len__(self) -> int:
        return len(self._bundles) + len(self.dead)

    # --- what happens ------------------------------------------------------------------------

    def sealed(self, bundle_id: BundleId, entries: Iterable[SliceEntry]) -> None:
        """Its PUT begins."""
        alive = {(entry.topic_id, entry.partition): entry for entry in entries}
        self._bundles[bundle_id] = _Bundle(alive)
        for where in alive:
            self._of[where].add(bundle_id)

    def answered(self, bundle_id: BundleId, now_ms: int) -> None:
        """The store has it."""
        self._bundles[bundle_id].answered = True
        self._note(bundle_id, now_ms)

    def lost(self, bundle_id: BundleId) -> None:
        """Its PUT was given up without an answer, so it may still arrive. The sweep finds it then."""
        for where in self._bundles.pop(bundle_id).alive:
            self._release(where, bundle_id)

    def acknowledged(self, where: PartitionKey, bundle_id: BundleId) -> None:
        """Its slice of the partition is committed, and the producers know."""
        bundle = self._bundles.get(bundle_id)
        if bundle is not None and where in bundle.alive:
            bundle.acknowledged.add(where)

    def changed(
        self, where: PartitionKey, head: Head, now_ms: int, asked: frozenset[BundleId] | None = None
    ) -> str | None:
        """The head of a partition, as it was read or written last. `asked`: of `elsewhere`, when it was asked for.

        Returns how the head contradicts what this instance has acknowledged: the proof that etcd went back.
        """
        named = {seg.bundle for seg in head.tail if seg.is_slice}
        standing = standing_of(head)
        proof = None
        for bundle_id in self._of.get(where, set()) - named:
            bundle = self._bundles[bundle_id]
            entry = bundle.alive[where]
            if where in bundle.acknowledged and (asked is None or bundle_id in asked):
                if not was_committed(entry, standing):
                    proof = (
                        f"the head of {head.topic}/{where[1]} has epoch {head.epoch} and high watermark {head.next}, "
                        f"and this instance has acknowledged offset {entry.last} in epoch {entry.leader_epoch}"
                    )
                    continue
            elif where in bundle.acknowledged:
                continue  # it was committed after this head was asked for
            if is_dead(entry, standing):
                self._drop(where, bundle_id, now_ms)
        return proof

    def deleted_topic(self, where: PartitionKey, now_ms: int) -> None:
        """The topic of the partition was deleted, as a mark of the deletion shows."""
        for bundle_id in list(self._of.get(where, ())):
            self._drop(where, bundle_id, now_ms)

    def _drop(self, where: PartitionKey, bundle_id: BundleId, now_ms: int) -> None:
        del self._bundles[bundle_id].alive[where]
        self._release(where, bundle_id)
        self._note(bundle_id, now_ms)

    def _release(self, where: PartitionKey, bundle_id: BundleId) -> None:
        self._of[where].discard(bundle_id)
        if not self._of[where]:
            del self._of[where]

    def _note(self, bundle_id: BundleId, now_ms: int) -> None:
        bundle = self._bundles[bundle_id]
        if bundle.answered and not bundle.alive:
            del self._bundles[bundle_id]
            self.dead.add(bundle_id, now_ms)

    # --- the decision ------------------------------------------------------------------------

    def elsewhere(self, owned: Iterable[PartitionKey]) -> dict[PartitionKey, frozenset[BundleId]]:
        """Partitions with slices that are not dead and whose heads this instance does not see change; of each the
        bundles whose slices it has acknowledged by now."""
        mine = set(owned)
        return {
            where: frozenset(each for each in some if where in self._bundles[each].acknowledged)
            for where, some in self._of.items()
            if where not in mine
        }
