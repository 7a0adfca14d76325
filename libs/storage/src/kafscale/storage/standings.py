"""What the heads of all partitions say about bundles: which they name, and which slices are dead. Pure.

Heads may be read one after another, because "dead" is final (`bundle.is_dead`). The names and the standing of a head
must come from one read of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafscale.storage.bundle import SliceEntry, Standing, is_dead, standing_of, was_committed
from kafscale.storage.heads import Head
from kafscale.storage.keys import BundleId, TopicId

PartitionKey = tuple[TopicId, int]


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
