"""Which bundles of this instance may be deleted: the whole decision. Pure; all times are mono_ms.

A bundle is deleted by the instance that wrote it, when no head names it, each of its slices is dead
(`log.bundle.is_dead`, which is final within one history of etcd), its PUT has an answer, and `grace_ms` have passed
since then: a reader may have seen an older head. What happens to a slice shows in the head of its partition. The
instance sees the heads of the partitions that it owns change by change (`changed`). It asks for those that have moved
away (`elsewhere`).

A slice that this instance has acknowledged is in the log for good. If a head shows that it never was, etcd went back:
the slice stays, and `changed` says so.

The sweep of upkeep deletes what an instance leaves behind when it ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from kafscale.log.bundle import SliceEntry, is_dead, standing_of, was_committed
from kafscale.log.heads import Head
from kafscale.produce.bundles.dead import DeadBundles
from kafscale.storage.keys import BundleId, TopicId

PartitionKey = tuple[TopicId, int]


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
