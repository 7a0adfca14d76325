"""Counts requests to the object store by what the changes of heads name. Pure.

A head names the bundles, segments and snapshots that the produce service writes. When a manifest is written, its
segments leave the tail. So the changes of all heads show these PUTs. They do not show PUTs that were repeated, nor
objects of an epoch that ended before the commit.

A topic's share of a bundle's PUT is the share of its slices' bytes. So the shares of all topics sum to all PUTs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from kafscale.log.heads import Head
from kafscale.operations.cost.load import Requests
from kafscale.operations.cost.model import MERGES, OBJECTS_PER_SEGMENT, READS_PER_CHECKPOINT


@dataclass(slots=True)
class Changes:
    """What a time's changes of heads show."""

    head_commits: int = 0
    segments: int = 0
    """Of a flush, or settled."""
    bundles: dict[bytes, Counter[str]] = field(default_factory=dict)
    """Of each, the bytes of its slices by topic."""
    snapshots: int = 0
    manifests: int = 0
    own: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Objects of one topic alone."""

    def note(self, before: Head | None, after: Head) -> None:
        """`before` None: the partition had no head, or an unreadable one."""
        self.head_commits += 1
        known = set(before.tail) if before is not None else set()
        for seg in after.tail:
            if seg in known:
                continue
            if seg.is_slice:
                self.bundles.setdefault(seg.bundle, Counter())[after.topic] += seg.size
            else:
                self.segments += 1
                self.own[after.topic] += OBJECTS_PER_SEGMENT
        if after.snap_key and (before is None or before.snap_key != after.snap_key):
            self.snapshots += 1
            self.own[after.topic] += 1
        if before is not None and before.tail and _first(after) > before.tail[0].base:
            self.manifests += 1  # only a checkpoint takes from the front of a tail
            self.own[after.topic] += 1 + MERGES

    def puts_by_topic(self) -> dict[str, float]:
        """Of the whole time."""
        puts = dict(self.own)
        for slices in self.bundles.values():
            whole = slices.total()
            for name, size in slices.items():
                puts[name] = puts.get(name, 0.0) + size / whole
        return puts

    def requests(self, over_s: float, *, loads_per_s: float | None, slice_bytes: int) -> Requests:
        """`loads_per_s`: GETs of the fetch and produce instances; None: not known."""
        objects = (
            len(self.bundles)
            + self.segments * OBJECTS_PER_SEGMENT
            + self.snapshots
            + self.manifests * (1 + MERGES)
        )
        merge_reads = self.manifests * READS_PER_CHECKPOINT / over_s
        return Requests(
            puts=objects / over_s,
            gets=None if loads_per_s is None else loads_per_s + merge_reads,
            deletes=objects / over_s,
            head_commits=self.head_commits / over_s,
            redundant_bytes=slice_bytes,
        )


def _first(head: Head) -> int:
    return head.tail[0].base if head.tail else head.next


def slice_bytes_of(head: Head) -> int:
    return sum(seg.size for seg in head.tail if seg.is_slice)
