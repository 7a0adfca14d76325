"""Which partitions this instance should claim, keep or give away. Pure decisions over a view.

The laws: a live owner is never robbed; whoever rendezvous hashing over the ready instances prefers
gets the partition in the end; a view that is out of date costs a redirect, never a wrong commit.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafscale.storage.claims import NO_NODE, Grounds, grounds, node_of, rendezvous
from kafscale.storage.heads import OwnerRecord
from kafscale.storage.keys import TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The produce instances as this one sees them."""

    me: str
    draining: bool
    ready: frozenset[int]  # node ids that take partitions
    live: frozenset[str]  # instance ids whose lease stands


def claimable(fleet: Fleet, topic_id: TopicId, partition: int, record: OwnerRecord | None) -> Grounds | None:
    """On what grounds this instance should claim the partition now, or None if it should not."""
    if fleet.draining:
        return None
    if record is None:
        why: Grounds | None = Grounds.FIRST
    else:
        why = grounds(record.owner, record.handoff_to, me=fleet.me, live=fleet.live, ready=fleet.ready)
    if why in (None, Grounds.MINE, Grounds.HANDED_OVER):
        return why
    return why if rendezvous(topic_id, partition, fleet.ready) == node_of(fleet.me) else None


def successor(fleet: Fleet, topic_id: TopicId, partition: int) -> int:
    """The node that should have a partition of ours instead; `NO_NODE` when we should keep it."""
    mine = node_of(fleet.me)
    candidates = fleet.ready - {mine} if fleet.draining else fleet.ready
    best = rendezvous(topic_id, partition, candidates)
    return NO_NODE if best == mine else best
