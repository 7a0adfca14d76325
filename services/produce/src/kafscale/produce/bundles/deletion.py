"""Which bundles of this instance may be deleted: the whole decision. Pure; all times are mono_ms.

A bundle is deleted by the instance that wrote it, when no head names it, each of its slices is dead
(`storage.bundle.is_dead`, which is final), its PUT has an answer, and `grace_ms` have passed since then: a reader may
have seen an older head. What happens to a slice shows in the head of its partition. The instance sees the heads of the
partitions that it owns change by change (`changed`). It asks for those that have moved away (`elsewhere`).

The sweep of upkeep deletes what an instance leaves behind when it ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from kafscale.storage.bundle import SliceEntry, Standing, is_dead
from kafscale.storage.heads import Head
from kafscale.storage.keys import BundleId, TopicId

PartitionKey = tuple[TopicId, int]


@dataclass(slots=True)
class _Bundle:
    alive: dict[PartitionKey, SliceEntry]
    answered: bool = False
    dead_since_ms: int | None = None


class OwnBundles:
    """Memory: some 500 bytes for each slice that is not dead. Their number is bounded by what tails may name."""

    def __init__(self, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self._bundles: dict[BundleId, _Bundle] = {}
        self._of: defaultdict[PartitionKey, set[BundleId]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._bundles)

    # --- what happens ------------------------------------------------------------------------

    def sealed(self, bundle_id: BundleId, entries: Iterable[SliceEntry]) -> None:
        """Its PUT begins."""
        alive = {(entry.topic_id, entry.partition): entry for entry in entries}
        self._bundles[bundle_id] = _Bundle(alive)
        for where in alive:
            self._of[where].add(bundle_id)

    def answered(self, bundle_id: BundleId, now_ms: int) -> None:
        """The store has it."""
        bundle = self._bundles[bundle_id]
        bundle.answered = True
        self._note(bundle, now_ms)

    def lost(self, bundle_id: BundleId) -> None:
        """Its PUT was given up without an answer, so it may still arrive. The sweep finds it then."""
        for where in self._bundles.pop(bundle_id).alive:
            self._release(where, bundle_id)

    def changed(self, where: PartitionKey, head: Head | None, now_ms: int) -> None:
        """The head of a partition, as it was read or written last; None: the topic was deleted."""
        named = {seg.bundle for seg in head.tail if seg.is_slice} if head is not None else set()
        standing = Standing(head.epoch, head.next) if head is not None else None
        for bundle_id in list(self._of.get(where, ())):
            bundle = self._bundles[bundle_id]
            if bundle_id not in named and is_dead(bundle.alive[where], standing):
                del bundle.alive[where]
                self._release(where, bundle_id)
                self._note(bundle, now_ms)

    def deleted(self, bundle_id: BundleId) -> None:
        """The store has confirmed it."""
        del self._bundles[bundle_id]

    def _release(self, where: PartitionKey, bundle_id: BundleId) -> None:
        self._of[where].discard(bundle_id)
        if not self._of[where]:
            del self._of[where]

    @staticmethod
    def _note(bundle: _Bundle, now_ms: int) -> None:
        if bundle.answered and not bundle.alive and bundle.dead_since_ms is None:
            bundle.dead_since_ms = now_ms

    # --- the decision ------------------------------------------------------------------------

    def elsewhere(self, owned: Iterable[PartitionKey]) -> set[PartitionKey]:
        """Partitions with slices that are not dead and whose heads this instance does not see change."""
        return self._of.keys() - set(owned)

    def due(self, now_ms: int) -> list[BundleId]:
        """Those to delete now. They are named again until they are `deleted`."""
        return [
            bundle_id
            for bundle_id, bundle in self._bundles.items()
            if bundle.dead_since_ms is not None and bundle.dead_since_ms + self._grace_ms <= now_ms
        ]
