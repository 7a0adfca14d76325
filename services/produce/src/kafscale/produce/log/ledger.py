"""The committed side of a partition: the head as it stands in etcd, and the one transaction that
may be under way over it.

Every value it sends is the compared predecessor plus something, so offsets are dense by
construction. While a transaction is out, nothing else is: its answer gives the revision that the
next one compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kafscale.produce.log.flight import Flight, Waiters
from kafscale.produce.log.model import CommitHead, MetaWrite
from kafscale.produce.log.producers import SnapshotWork
from kafscale.storage.heads import EPOCHS_MAX, TAIL_MAX, EpochStart, Head, Seg, encode_head
from kafscale.storage.manifests import Manifest, epoch_starts


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlan:
    """What a checkpoint under way will move and save."""

    number: int
    manifest: Manifest | None
    snapshot: SnapshotWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A transaction without an answer yet: a commit (`flights`), a checkpoint (`plan`), or neither,
    sent only to prove ownership for the `doubts` that ride on it."""

    txn: int
    over: int  # the revision it compares
    head: Head
    base: int
    flights: tuple[Flight, ...] = ()
    plan: CheckpointPlan | None = None
    doubts: Waiters = field(default_factory=Waiters)


class Ledger:
    def __init__(self, head: Head, revision: int) -> None:
        self.head = head
        self.revision = revision
        self.sent: Sent | None = None
        self._txns = 0

    @property
    def room(self) -> int:
        """How many segments the tail may still take."""
        return TAIL_MAX - len(self.head.tail)

    def commit(self, flights: Sequence[Flight], doubts: Waiters, attempt: bytes) -> CommitHead:
        """Fold uploaded flights, the first of which starts at `head.next`, into one put."""
        segs = tuple(flight.seg(self.head.epoch) for flight in flights)
        head = extended(self.head, segs, attempt)
        return self._send(head, None, flights=tuple(flights), plan=None, doubts=doubts)

    def checkpoint(self, plan: CheckpointPlan, snap_key: str, meta: MetaWrite, doubts: Waiters) -> CommitHead:
        moved = len(plan.manifest.segments) if plan.manifest is not None else 0
        head = replace(
            self.head,
            tail=self.head.tail[moved:],
            snap_offset=plan.snapshot.offset,
            snap_key=snap_key,
        )
        return self._send(head, meta, flights=(), plan=plan, doubts=doubts)

    def _send(
        self,
        head: Head,
        meta: MetaWrite | None,
        *,
        flights: tuple[Flight, ...],
        plan: CheckpointPlan | None,
        doubts: Waiters,
    ) -> CommitHead:
        assert self.sent is None, "one transaction per partition"
        self._txns += 1
        self.sent = Sent(
            txn=self._txns,
            over=self.revision,
            head=head,
            base=self.head.next,
            flights=flights,
            plan=plan,
            doubts=doubts,
        )
        return CommitHead(
            txn=self._txns, expected_revision=self.revision, head=head, value=encode_head(head), meta=meta
        )

    def take_sent(self, txn: int) -> Sent | None:
        """The transaction an answer is for; None when it was given up and its answer changes nothing."""
        sent = self.sent
        if sent is None or sent.txn != txn:
            return None
        self.sent = None
        return sent

    def adopt(self, head: Head, revision: int) -> None:
        assert revision > self.revision, (revision, self.revision)
        self.head = head
        self.revision = revision


def extended(head: Head, segs: Sequence[Seg], attempt: bytes) -> Head:
    """`head` with segments committed behind it. An epoch enters the history with its first record."""
    if not segs:
        return replace(head, attempt=attempt)
    tail = head.tail
    position = head.next
    for seg in segs:
        assert seg.base == position, f"segment {seg.base} does not follow {position - 1}"
        position = seg.end
    epochs = head.epochs
    if not epochs or epochs[-1].epoch != head.epoch:
        epochs = (*epochs, EpochStart(epoch=head.epoch, start=head.next))[-EPOCHS_MAX:]
    return Head(
        epoch=head.epoch,
        topic=head.topic,
        owner=head.owner,
        handoff_to=head.handoff_to,
        next=position,
        lso=position,
        attempt=attempt,
        tail=(*tail, *segs),
        epochs=epochs,
        bytes=head.bytes + sum(seg.size for seg in segs),
        max_ts=max(head.max_ts, *(seg.max_ts for seg in segs)),
        snap_offset=head.snap_offset,
        snap_key=head.snap_key,
    )


def plan_manifest(head: Head, keep: int) -> Manifest | None:
    """All of the tail but the newest `keep`, as a manifest; None when there is nothing to move."""
    moved = head.tail[: max(0, len(head.tail) - keep)]
    if not moved:
        return None
    return Manifest(segments=moved, epochs=epoch_starts(moved))
