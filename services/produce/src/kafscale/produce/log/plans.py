"""The plans of an owner: when it moves the tail into a manifest (a checkpoint), and when it settles slices.

A plan is made from the committed head alone. The shell writes its objects while commits go on. Its transaction takes
its turn like any commit. At most one plan of each kind is under way, and a plan that failed is forgotten: the next one
is made anew, because an object may only be referred to by a transaction whose compared meta revision was read before
its upload began. A checkpoint takes the segments that lead the tail and saves a producer snapshot; settling
(settling.py) replaces slices behind them. So the two do not meet.

Compaction replaces only what manifests list. So in a compacted topic (`Limits.tail_rest_ms`) segments do not stay in
the tail until there are many. All but the newest leave it as soon as no record was written for a second, but not more
often than every AGAIN_MS, and after `tail_rest_ms` when writes never pause. A hand-over moves them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile

from kafscale.log.heads import Head, Seg
from kafscale.log.manifests import Manifest, epoch_starts
from kafscale.produce.log.flight import Flight
from kafscale.produce.log.ledger import Ready
from kafscale.produce.log.model import (
    NEVER,
    Checkpointed,
    Instant,
    Limits,
    MetaWrite,
    SettleRun,
    TakeCheckpoint,
)
from kafscale.produce.log.producers import ProducerTable
from kafscale.produce.log.settling import Settling

QUIET_MS = 1_000
"""Without a commit: then a partition counts as quiet."""
AGAIN_MS = 10_000
"""Minimum time between two checkpoints of an idle partition: each costs two objects and a transaction."""
DOUBLINGS_MAX = 3
"""Of `checkpoint_retry_ms`, one after each failure. Commits may wait for a checkpoint, so it is not many."""
REST_KEEP = 1
"""The newest segment is never compacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """The manifest and the snapshot are in the store."""

    plan: TakeCheckpoint
    snap_key: str
    meta: MetaWrite

    def applied_to(self, head: Head) -> Head:
        moved = len(self.plan.manifest.segments) if self.plan.manifest is not None else 0
        return replace(
            head, tail=head.tail[moved:], snap_offset=self.plan.snapshot.offset, snap_key=self.snap_key
        )


class Plans:
    """Both kinds of plans of one writer. Each plan has a number of its own."""

    def __init__(self, producers: ProducerTable) -> None:
        numbers = count(1)
        self._checkpoints = Checkpoints(producers, numbers)
        self._settling = Settling(numbers)
        self._draining = False

    @property
    def delays_handover(self) -> bool:
        """Whether a checkpoint is under way. A run may be left to the next owner, who settles it again."""
        return self._checkpoints.under_way

    @property
    def planned_end(self) -> int:
        return self._settling.planned_end

    def slice_age_ms(self, head: Head, now: Instant) -> int | None:
        """Of the oldest slice that is not settled; None: there is none."""
        return self._settling.age_ms(head, now)

    def sealed(self, flight: Flight) -> None:
        """A slice in flight may repeat the end of the tail: no run goes into that."""
        if flight.home.replaces:
            self._settling.fold_from = flight.base

    def committed(self, flights: Sequence[Flight]) -> None:
        """A fold is always the first in flight."""
        if flights:
            self._settling.fold_from = NEVER

    def drain(self) -> None:
        """Begin no more runs."""
        self._draining = True

    def due_ms(self, head: Head, limits: Limits) -> int:
        due_ms = self._checkpoints.due_ms(head, limits)
        return due_ms if self._draining else min(due_ms, self._settling.due_ms(head, limits))

    def take(
        self, head: Head, limits: Limits, now: Instant, *, drained: bool
    ) -> Iterator[TakeCheckpoint | SettleRun]:
        """What is due, and the last checkpoint before a hand-over when all else is drained."""
        checkpoint = self._checkpoints.take(head, limits, now)
        if checkpoint is None and drained:
            checkpoint = self._checkpoints.take_closing(head, limits, now)
        run = None if self._draining else self._settling.take(head, limits, now)
        yield from (plan for plan in (checkpoint, run) if plan is not None)

    def saved(self, number: int, snap_key: str, meta: MetaWrite) -> None:
        self._checkpoints.saved(number, snap_key, meta)

    def rewritten(self, number: int, seg: Seg) -> None:
        self._settling.rewritten(number, seg)

    def take_ready(self) -> Ready | None:
        return self._checkpoints.take_ready() or self._settling.take_ready()

    def failed(self, number: int, limits: Limits, now: Instant) -> None:
        self._checkpoints.failed(number, limits, now)
        self._settling.failed(number, now)

    def refused(self, ready: Ready, now: Instant) -> None:
        """Meta moved: only a checkpoint compares it."""
        assert isinstance(ready, SavedCheckpoint), ready
        self._checkpoints.refused(ready.plan.plan, now)

    def applied(self, ready: Ready, old: Head, head: Head) -> Iterator[Checkpointed]:
        """The plan is in etcd."""
        if isinstance(ready, SavedCheckpoint):
            yield self._checkpoints.applied(ready.plan, head, old.snap_key)
        else:
            self._settling.applied()


class Checkpoints:
    def __init__(self, producers: ProducerTable, numbers: Iterator[int]) -> None:
        self._producers = producers
        self._numbers = numbers
        self._plan: TakeCheckpoint | None = None  # with the shell
        self._ready: SavedCheckpoint | None = None  # waits for its turn
        self._not_before_ms = 0
        self._doublings = 0  # of the wait after a failure
        self._closing_taken = False
        self._ripe_ms: int | None = None  # since when the tail has had more than its newest segment
        self._seen_next = -1
        self._grew_ms = 0  # when the committed end was seen to move last
        self._again_ms = 0  # no checkpoint of an idle partition before it

    @property
    def under_way(self) -> bool:
        return self._plan is not None

    def due_ms(self, head: Head, limits: Limits) -> int:
        """When the tail's length asks for the next plan, or its age does. Behind a slice nothing can move."""
        if self._plan is not None or (head.tail and head.tail[0].is_slice):
            return NEVER
        if len(head.tail) > limits.checkpoint_at:
            return self._not_before_ms
        if limits.tail_rest_ms is None or self._ripe_ms is None or len(head.tail) <= REST_KEEP:
            return NEVER
        quiet_ms = max(self._grew_ms + QUIET_MS, self._again_ms)
        return max(self._not_before_ms, min(quiet_ms, self._ripe_ms + limits.tail_rest_ms))

    def take(self, head: Head, limits: Limits, now: Instant) -> TakeCheckpoint | None:
        """A plan, if one is due."""
        if head.next != self._seen_next:
            self._seen_next, self._grew_ms = head.next, now.mono_ms
        if len(head.tail) <= REST_KEEP:
            self._ripe_ms = None
        elif self._ripe_ms is None:
            self._ripe_ms = now.mono_ms
        if self.due_ms(head, limits) > now.mono_ms:
            return None
        return self._take(head, limits.tail_keep if limits.tail_rest_ms is None else REST_KEEP, now)

    def take_closing(self, head: Head, limits: Limits, now: Instant) -> TakeCheckpoint | None:
        """Once before a hand-over: a snapshot up to the end spares the next owner the replay."""
        keep = len(head.tail) if limits.tail_rest_ms is None else REST_KEEP
        if self._closing_taken or self._plan is not None:
            return None
        if head.snap_offset >= head.next and len(head.tail) <= keep:
            return None
        self._closing_taken = True
        return self._take(head, keep, now)

    def _take(self, head: Head, keep: int, now: Instant) -> TakeCheckpoint:
        self._again_ms = now.mono_ms + AGAIN_MS
        manifest = plan_manifest(head, keep)
        snapshot = self._producers.begin_snapshot(
            head.next, now.wall_ms, head.open, transactional=head.transactional
        )
        self._plan = TakeCheckpoint(plan=next(self._numbers), manifest=manifest, snapshot=snapshot)
        return self._plan

    def saved(self, number: int, snap_key: str, meta: MetaWrite) -> None:
        if self._plan is not None and self._plan.plan == number:
            self._ready = SavedCheckpoint(plan=self._plan, snap_key=snap_key, meta=meta)

    def take_ready(self) -> SavedCheckpoint | None:
        ready, self._ready = self._ready, None
        return ready

    def failed(self, number: int, limits: Limits, now: Instant) -> None:
        if self._plan is not None and self._plan.plan == number:
            self._producers.abandon(self._plan.snapshot)
            self._plan = None
            self._ready = None
            self._not_before_ms = now.mono_ms + (limits.checkpoint_retry_ms << self._doublings)
            self._doublings = min(self._doublings + 1, DOUBLINGS_MAX)

    def refused(self, number: int, now: Instant) -> None:
        """Meta moved while the plan was under way. Nothing failed, so the next one need not wait: the tail may
        be full by now, and commits wait for it."""
        if self._plan is not None and self._plan.plan == number:
            self._producers.abandon(self._plan.snapshot)
            self._plan = None
            self._not_before_ms = now.mono_ms

    def applied(self, plan: TakeCheckpoint, head: Head, old_snap_key: str) -> Checkpointed:
        """The plan is in etcd: memory may forget the producers that its snapshot left out."""
        self._plan = None
        self._ripe_ms = None
        self._doublings = 0
        self._producers.forget(plan.snapshot)
        return Checkpointed(snap_key=head.snap_key, old_snap_key=old_snap_key)


def plan_manifest(head: Head, keep: int) -> Manifest | None:
    """The segments at the front of the tail, as a manifest, but none of its newest `keep`; None if nothing can move.
    A manifest lists no slice: slices, and what follows them, wait until they are settled."""
    leading = tuple(takewhile(lambda seg: not seg.is_slice, head.tail))
    moved = leading[: max(0, len(head.tail) - keep)]
    if not moved:
        return None
    return Manifest(segments=moved, epochs=epoch_starts(moved), transactional=head.transactional)
