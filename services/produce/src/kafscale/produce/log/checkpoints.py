"""When the head's tail is moved into a manifest, and what the producer snapshot that goes with it holds.

A plan is made from the committed head alone. The shell uploads it while commits go on; the
transaction takes its turn in the ledger like any commit. At most one plan is under way, and a plan
that failed is forgotten: the next one is made anew, because an object may only be referred to by a
transaction whose compared meta revision was read before its upload began.

Compaction replaces only what manifests list. So in a compacted topic (`Limits.tail_rest_ms`) segments do not rest in
the tail until there are many: all but the newest leave it as soon as no record was written for a second, not more often
than every AGAIN_MS, and when writes never pause after `tail_rest_ms`. So they do at a hand-over.
"""

from __future__ import annotations

from kafscale.produce.log.flush import NEVER
from kafscale.produce.log.ledger import CheckpointPlan, plan_manifest
from kafscale.produce.log.model import Checkpointed, Instant, Limits, MetaWrite, TakeCheckpoint
from kafscale.produce.log.producers import ProducerTable
from kafscale.storage.heads import Head

QUIET_MS = 1_000
"""Without a commit: then a partition counts as quiet."""
AGAIN_MS = 10_000
"""Between checkpoints for quiet's sake: each costs two objects and a transaction, as a commit does."""
REST_KEEP = 1
"""The newest segment is never compacted."""
Ready = tuple[CheckpointPlan, str, MetaWrite]


class Checkpoints:
    def __init__(self, producers: ProducerTable) -> None:
        self._producers = producers
        self._plan: CheckpointPlan | None = None  # with the shell
        self._ready: Ready | None = None  # uploaded, waits for its turn
        self._plans = 0
        self._not_before_ms = 0
        self._closing_taken = False
        self._ripe_ms: int | None = None  # since when the tail has had more than its newest segment
        self._seen_next = -1
        self._grew_ms = 0  # when the committed end was seen to move last
        self._again_ms = 0  # no checkpoint for quiet's sake before it

    @property
    def under_way(self) -> bool:
        return self._plan is not None

    def due_ms(self, head: Head, limits: Limits) -> int:
        """When the tail's length asks for the next plan, or its age does."""
        if self._plan is not None:
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
        self._plans += 1
        self._again_ms = now.mono_ms + AGAIN_MS
        manifest = plan_manifest(head, keep)
        snapshot = self._producers.begin_snapshot(head.next, now.wall_ms)
        self._plan = CheckpointPlan(number=self._plans, manifest=manifest, snapshot=snapshot)
        return TakeCheckpoint(plan=self._plans, manifest=manifest, snapshot=snapshot)

    def uploaded(self, number: int, snap_key: str, meta: MetaWrite) -> None:
        if self._plan is not None and self._plan.number == number:
            self._ready = (self._plan, snap_key, meta)

    def take_ready(self) -> Ready | None:
        ready, self._ready = self._ready, None
        return ready

    def failed(self, number: int, limits: Limits, now: Instant) -> None:
        if self._plan is not None and self._plan.number == number:
            self._producers.abandon(self._plan.snapshot)
            self._plan = None
            self._ready = None
            self._not_before_ms = now.mono_ms + limits.checkpoint_retry_ms

    def refused(self, number: int, now: Instant) -> None:
        """Meta moved while the plan was under way. Nothing failed, so the next one need not wait: the tail may
        be full by now, and commits wait for it."""
        if self._plan is not None and self._plan.number == number:
            self._producers.abandon(self._plan.snapshot)
            self._plan = None
            self._not_before_ms = now.mono_ms

    def applied(self, plan: CheckpointPlan, head: Head, old_snap_key: str, revision: int) -> Checkpointed:
        """The plan is in etcd: memory may forget the producers that its snapshot left out."""
        self._plan = None
        self._ripe_ms = None
        self._producers.forget(plan.snapshot)
        return Checkpointed(
            plan=plan.number, revision=revision, snap_key=head.snap_key, old_snap_key=old_snap_key
        )
