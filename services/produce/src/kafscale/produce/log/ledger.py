"""The committed side of a partition: the head as etcd has it, the one transaction that may be under way over it, what
became of that transaction, and the checkpoints that move the head's tail into a manifest.

Every value it sends is the compared predecessor plus something, so offsets are dense by
construction. While a transaction is out, nothing else is: its answer gives the revision that the
next one compares.

When etcd answers "the head is another", the head that refused the transaction shows whether an earlier send of it was
applied (`judge_commit`). Evidence, in this order: the commit's attempt id; the epoch history, by which an offset
inside my epoch was committed by me and by no other writer. `Answers.acknowledge` is called for committed offsets
only, and names the real offset. `Answers.fail` carries a code that means "certainly not appended", or
REQUEST_TIMED_OUT, the only answer to an unknown outcome.

`Checkpoints` plans when the tail is moved, and what the producer snapshot that goes with it holds. A plan is made from
the committed head alone. The shell uploads it while commits go on; its transaction takes its turn like any commit. At
most one plan is under way, and a plan that failed is forgotten: the next one is made anew, because an object may only
be referred to by a transaction whose compared meta revision was read before its upload began.

Compaction replaces only what manifests list. So in a compacted topic (`Limits.tail_rest_ms`) segments do not stay in
the tail until there are many. All but the newest leave it as soon as no record was written for a second, but not more
often than every AGAIN_MS, and after `tail_rest_ms` when writes never pause. A hand-over moves them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import takewhile

from kafscale.produce.log.flight import Flight
from kafscale.produce.log.flush import NEVER
from kafscale.produce.log.model import (
    Action,
    Checkpointed,
    CommitHead,
    Instant,
    Limits,
    MetaWrite,
    PartitionId,
    Rejection,
    Reply,
    TakeCheckpoint,
    Token,
    Waiter,
    Waiters,
)
from kafscale.produce.log.producers import ProducerTable
from kafscale.storage.etcd.client import Compare, Put, Range, Txn
from kafscale.storage.heads import EPOCHS_MAX, TAIL_MAX, EpochStart, Head, Seg, encode_head
from kafscale.storage.keys import Keyspace
from kafscale.storage.manifests import Manifest, epoch_starts
from kafscale.wire.errors import ErrorCode

QUIET_MS = 1_000
"""Without a commit: then a partition counts as quiet."""
AGAIN_MS = 10_000
"""Between checkpoints for quiet's sake: each costs two objects and a transaction, as a commit does."""
REST_KEEP = 1
"""The newest segment is never compacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A transaction without an answer yet: a commit (`flights`), a checkpoint (`plan`), or neither,
    sent only to prove ownership for the `doubts` that ride on it."""

    txn: int
    over: int  # the revision it compares
    head: Head
    base: int
    flights: tuple[Flight, ...] = ()
    plan: TakeCheckpoint | None = None
    doubts: Waiters = field(default_factory=Waiters)

    def judge_commit(self, current: Head | None, *, ambiguous: bool) -> Outcome:
        return judge_commit(self.head, self.base, current, ambiguous=ambiguous)

    def judge_checkpoint(self, current: Head | None, revision: int) -> Outcome:
        return judge_checkpoint(self.head, self.over, current, revision)


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
        return self._send(head, None, doubts, flights=tuple(flights))

    def checkpoint(self, plan: TakeCheckpoint, snap_key: str, meta: MetaWrite, doubts: Waiters) -> CommitHead:
        moved = len(plan.manifest.segments) if plan.manifest is not None else 0
        head = replace(
            self.head,
            tail=self.head.tail[moved:],
            snap_offset=plan.snapshot.offset,
            snap_key=snap_key,
        )
        return self._send(head, meta, doubts, plan=plan)

    def _send(
        self,
        head: Head,
        meta: MetaWrite | None,
        doubts: Waiters,
        *,
        flights: tuple[Flight, ...] = (),
        plan: TakeCheckpoint | None = None,
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
    """The segments at the front of the tail, as a manifest, but none of its newest `keep`; None if nothing can move.
    A manifest lists no slice: slices, and what follows them, wait until they are settled."""
    leading = tuple(takewhile(lambda seg: not seg.is_slice, head.tail))
    moved = leading[: max(0, len(head.tail) - keep)]
    if not moved:
        return None
    return Manifest(segments=moved, epochs=epoch_starts(moved))


def head_txn(keyspace: Keyspace, id_: PartitionId, action: CommitHead) -> Txn:
    """If head (and meta) are as expected they are put, else the head is read."""
    key = keyspace.head(id_.topic_id, id_.partition)
    compares = [Compare(key, "mod", "=", action.expected_revision)]
    puts = [Put(key, action.value)]
    if action.meta is not None:
        meta_key = keyspace.meta(id_.topic_id, id_.partition)
        compares.append(Compare(meta_key, "mod", "=", action.meta.expected_revision))
        puts.append(Put(meta_key, action.meta.value))
    return Txn(compare=tuple(compares), success=tuple(puts), failure=(Range(key),))


class Outcome(Enum):
    COMMITTED = auto()
    ABSENT = auto()  # definitely not committed, and no late copy can be
    UNKNOWABLE = auto()  # the evidence is gone; the requests must not be answered with a failure


def judge_commit(sent: Head, base: int, current: Head | None, *, ambiguous: bool) -> Outcome:
    """`sent` would have committed [base, sent.next); `current` is the head that refused it."""
    if current is not None and current.attempt == sent.attempt:
        return Outcome.COMMITTED
    if not ambiguous:
        return Outcome.ABSENT
    if current is None:
        return Outcome.UNKNOWABLE
    if current.next <= base:
        return Outcome.ABSENT
    return _by_history(sent.epoch, base, sent.next, current)


def _by_history(epoch: int, base: int, end: int, current: Head) -> Outcome:
    for position, start in enumerate(current.epochs):
        if start.epoch != epoch:
            continue
        later = current.epochs[position + 1 :]
        epoch_end = later[0].start if later else current.next
        return Outcome.COMMITTED if start.start <= base and end <= epoch_end else Outcome.ABSENT
    pruned = len(current.epochs) == EPOCHS_MAX and current.epochs[0].epoch > epoch
    if not pruned:
        return Outcome.ABSENT  # a history without my epoch: it committed nothing
    for seg in current.tail:
        if seg.base <= base < seg.end:
            return Outcome.COMMITTED if seg.epoch == epoch else Outcome.ABSENT
    return Outcome.UNKNOWABLE


def judge_checkpoint(sent: Head, sent_over: int, current: Head | None, revision: int) -> Outcome:
    """COMMITTED: it is the head now. ABSENT: the head is untouched, so meta moved. UNKNOWABLE: fenced."""
    if revision == sent_over:
        return Outcome.ABSENT
    return Outcome.COMMITTED if current == sent else Outcome.UNKNOWABLE


class Answers:
    def __init__(self, actions: list[Action], log_start: int) -> None:
        self._actions = actions
        self.log_start = log_start

    def acknowledge(self, waiters: Sequence[Waiter], revision: int) -> None:
        for waiter in waiters:
            self._actions.append(
                Reply(
                    token=waiter.token,
                    error=ErrorCode.NONE,
                    base_offset=waiter.base_offset,
                    log_append_time_ms=waiter.log_append_time_ms,
                    log_start_offset=self.log_start,
                    revision=revision,
                )
            )

    def fail(self, waiters: Sequence[Waiter], error: ErrorCode) -> None:
        for waiter in waiters:
            self._actions.append(Reply(token=waiter.token, error=error))

    def refuse(self, token: Token | None, why: Rejection) -> None:
        """Nothing of the request was appended."""
        if token is not None:
            self._actions.append(Reply(token=token, error=why.error, message=why.message, faults=why.faults))

    def decide(self, sent: Sent, outcome: Outcome, revision: int) -> None:
        """Answers the requests of the transaction that ended the epoch."""
        self.fail(sent.doubts.take_all(), ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for flight in sent.flights:
            waiters = flight.waiters.take_all()
            if outcome is Outcome.COMMITTED:
                self.acknowledge(waiters, revision)
            elif outcome is Outcome.ABSENT:
                self.fail(waiters, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                self.fail(waiters, ErrorCode.REQUEST_TIMED_OUT)

    def reject(self, sent: Sent, error: ErrorCode) -> None:
        """The transaction was never proposed."""
        for waiters in (sent.doubts, *(flight.waiters for flight in sent.flights)):
            self.fail(waiters.take_all(), error)


Ready = tuple[TakeCheckpoint, str, MetaWrite]


class Checkpoints:
    def __init__(self, producers: ProducerTable) -> None:
        self._producers = producers
        self._plan: TakeCheckpoint | None = None  # with the shell
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
        self._plans += 1
        self._again_ms = now.mono_ms + AGAIN_MS
        manifest = plan_manifest(head, keep)
        snapshot = self._producers.begin_snapshot(head.next, now.wall_ms)
        self._plan = TakeCheckpoint(plan=self._plans, manifest=manifest, snapshot=snapshot)
        return self._plan

    def uploaded(self, number: int, snap_key: str, meta: MetaWrite) -> None:
        if self._plan is not None and self._plan.plan == number:
            self._ready = (self._plan, snap_key, meta)

    def take_ready(self) -> Ready | None:
        ready, self._ready = self._ready, None
        return ready

    def failed(self, number: int, limits: Limits, now: Instant) -> None:
        if self._plan is not None and self._plan.plan == number:
            self._producers.abandon(self._plan.snapshot)
            self._plan = None
            self._ready = None
            self._not_before_ms = now.mono_ms + limits.checkpoint_retry_ms

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
        self._producers.forget(plan.snapshot)
        return Checkpointed(snap_key=head.snap_key, old_snap_key=old_snap_key)
