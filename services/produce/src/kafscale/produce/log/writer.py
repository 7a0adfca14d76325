"""The partition writer: one object per (partition, epoch), from its claim to its step-down.

The laws. A request is acknowledged after the commit that carries it, never before. Within an epoch an offset is bound
to one byte sequence for ever, so nothing assigned is taken back or assigned again: trouble that cannot be waited out
ends the epoch (`step_down`), the one failure path. A failure is reported only for what no transaction ever carried, or
what the head that refused the transaction shows to be absent; everything else is unknown (REQUEST_TIMED_OUT).

A sequence gap is fatal to some clients, and a writer that lost its partition without knowing it sees
gaps that are none. So OUT_OF_ORDER_SEQUENCE_NUMBER waits as a *doubt* for a transaction of this
writer to succeed, and for none other is one sent that changes nothing. The end of a transaction that is not open here
is a doubt too: another owner may have it open, and a transaction that was sent before the end came proves nothing.

`Pipeline` is what has its offsets and is in no transaction yet: the open buffer, and the flights that it becomes. The
instance asks every partition what it `wants`, and seals many open buffers into one bundle (`bundles/gather.py`). Only a
buffer that pays for objects of its own is sealed here, by the append that fills it, and what is left at a hand-over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from kafscale.log.heads import Head, Seg
from kafscale.log.segment import build_segment
from kafscale.log.transactions import End
from kafscale.produce.log.contents import Contents, Opening
from kafscale.produce.log.flight import Flight, InBundle, Objects, OpenBuffer, published
from kafscale.produce.log.intake import Intake
from kafscale.produce.log.ledger import Answers, Ledger, Outcome, Ready, Sent
from kafscale.produce.log.model import (
    NEVER,
    NO_OFFSET,
    NO_TIMESTAMP,
    Action,
    Arrival,
    Drained,
    Instant,
    Limits,
    MetaWrite,
    Part,
    PartitionId,
    PutFailure,
    Rejection,
    State,
    StepDownReason,
    SteppedDown,
    Token,
    TransactionEnd,
    Waiter,
    Waiters,
    Want,
)
from kafscale.produce.log.plans import Plans
from kafscale.produce.log.producers import ProducerTable, Repeat
from kafscale.produce.log.settling import ENTRY_ABORTS_MAX, Kept, KeptBudget, foldable
from kafscale.produce.log.uploading import TRIED, FoundObject, Tried, Uploads
from kafscale.storage.keys import Keyspace
from kafscale.wire.errors import ErrorCode


class Pipeline:
    """`uploads` holds the flights; `intake` the open buffer."""

    def __init__(
        self,
        partition: PartitionId,
        intake: Intake,
        limits: Limits,
        *,
        names: Keyspace,
        ids: Callable[[], bytes],
        actions: list[Action],
        kept: KeptBudget | None,
    ) -> None:
        self.intake = intake
        self.uploads = Uploads(intake.epoch, partition.topic_id, actions)
        self.kept = Kept(kept or KeptBudget(0))
        self._limits = limits
        self._partition = partition
        self._names = names
        self._ids = ids
        self._cleared = False

    def configure(self, limits: Limits) -> None:
        self._limits = limits

    @property
    def is_empty(self) -> bool:
        return not self.intake.open.parts and not len(self.uploads)

    @property
    def bytes_held(self) -> int:
        return self.intake.open.bytes + self.uploads.bytes_held  # that one fills, those on their way

    def waiters(self) -> Iterator[Waiters]:
        """In offset order."""
        for flight in self.uploads:
            yield flight.waiters
        yield self.intake.open.waiters

    def committed(self, flights: Iterable[Flight], head: Head) -> None:
        """The batches of slices stay in memory, to be folded and settled: not those of a commit that is applied after
        `clear`, because nothing would remove them again."""
        for flight in () if self._cleared else flights:
            if isinstance(flight.home, InBundle):
                self.kept.add(flight.home.batches)
        self.kept.keep_only(head.tail)

    def clear(self) -> None:
        """The epoch ends."""
        self._cleared = True
        self.kept.clear()
        self.uploads.clear()
        self.intake.replace_open()

    # --- sealing -----------------------------------------------------------------------------

    def seal(self, now: Instant) -> None:
        """Fix the open buffer's bytes for ever, as a segment with objects of its own."""
        buffer = self.intake.replace_open()
        place = (self._partition.topic, self._partition.partition, buffer.base)
        built = build_segment(buffer.base, buffer.batches, buffer.parts, now.wall_ms)
        home = Objects(
            built,
            attempt=self._ids(),
            epoch=self.intake.epoch,
            segment_key=self._names.segment_key(*place),
            index_key=self._names.index_key(*place),
        )
        self.uploads.add(Flight(buffer, built, home, now.wall_ms))
        self.uploads.start(self._limits.pipeline_max)

    def seal_slice(self, head: Head | None, planned_end: int, now: Instant) -> Flight:
        """The same, as a slice of a bundle that the caller builds and uploads. It may fold slices of the head's tail,
        but not behind another flight. None: a transaction changes the head."""
        opened, before = self.intake.replace_open(), list[OpenBuffer]()
        assert opened.parts, "there is something to seal"
        if head is not None and not len(self.uploads):
            before = foldable(head, self.kept, opened.bytes, planned_end, aborts=opened.aborts)
        buffer = opened.after(before) if before else opened
        buffer.waiters = opened.waiters
        built = build_segment(buffer.base, buffer.batches, buffer.parts, now.wall_ms)
        flight = Flight(buffer, built, InBundle(built, buffer, before), now.wall_ms)
        self.uploads.add(flight)
        return flight

    def wants(self, room: int, *, committing: bool) -> Want | None:
        """What the open buffer holds for the next bundle; None: nothing, or the pipeline is full. The tail has room for
        `room` entries behind those in a transaction. What is sealed must find a place there: a slice that waits for
        settling keeps its bundle in flight, and with it the partitions of the whole instance."""
        buffer = self.intake.open
        if not buffer.parts or len(self.uploads) >= min(self._limits.pipeline_max, room):
            return None
        hold_ms = self._limits.flush_interval_ms
        if not committing and not len(self.uploads):
            hold_ms = 0 if buffer.markers else min(self._limits.linger_ms, hold_ms)
        requests = len(buffer.waiters.items)
        return Want(buffer.bytes, requests, buffer.opened_ms, hold_ms, markers=buffer.markers > 0)


_WORKING = (State.SERVING, State.DRAINING)
_OPEN = (State.SERVING, State.DRAINING, State.DRAINED)


class PartitionWriter:
    """`head` was just claimed, at `revision`; `producers` knows the log up to `head.next`. Actions: see `model`."""

    def __init__(
        self,
        partition: PartitionId,
        head: Head,
        revision: int,
        *,
        producers: ProducerTable,
        log_start: int,
        limits: Limits,
        names: Keyspace,
        ids: Callable[[], bytes],  # gives 16 random bytes, never the same twice
        kept: KeptBudget | None = None,
    ) -> None:
        self._limits = limits
        self._ids = ids
        self._actions: list[Action] = []
        self._answers = Answers(self._actions, log_start)
        self._state = State.SERVING
        self._ledger = Ledger(head, revision)
        self._intake = Intake(head, producers)
        self._pipeline = Pipeline(
            partition, self._intake, limits, names=names, ids=ids, actions=self._actions, kept=kept
        )
        self._uploads = self._pipeline.uploads
        self.kept = self._pipeline.kept
        self.joins = self._intake.joins
        self.plans = self._plans = Plans(producers)
        self._doubts = Waiters()

    @property
    def state(self) -> State:
        return self._state

    @property
    def head(self) -> Head:
        return self._ledger.head

    @property
    def revision(self) -> int:
        return self._ledger.revision

    @property
    def bytes_held(self) -> int:
        return self._pipeline.bytes_held

    def opens(self, record_set: memoryview | None, arrival: Arrival) -> Contents | Opening | None:
        """See Intake.opens."""
        if self._state is not State.SERVING:
            return None
        return self._intake.opens(record_set, self._limits, self.bytes_held, arrival)

    def needs_join(self, record_set: memoryview | None, *, zstd_allowed: bool) -> bool:
        """See Intake.needs_join. A writer that accepts no more refuses without a question."""
        if self._state is not State.SERVING:
            return False
        return self._intake.needs_join(record_set, self._limits, zstd_allowed=zstd_allowed)

    def take_actions(self) -> list[Action]:
        """What is to be done now, in order; each is handed out once."""
        taken = self._actions[:]
        self._actions.clear()
        return taken

    def next_deadline(self) -> int | None:
        """When `tick` is due: in the past or now means at once, None means there is nothing to wait for."""
        due = min([waiters.deadline_ms for waiters in self._waiters()])
        if self._state in _WORKING:
            if self._doubts.items and self._ledger.sent is None:
                return 0  # the transaction that settles them can be sent at once
            plan_due_ms = self._plans.due_ms(self._ledger.head, self._limits)
            due = min(due, self._uploads.next_retry_ms(), plan_due_ms)
        return None if due >= NEVER else due

    def append(
        self,
        token: Token | None,  # None: acks=0, no reply
        record_set: memoryview | None,
        *,
        deadline_ms: int,  # mono_ms; an unresolved request gets REQUEST_TIMED_OUT then
        now: Instant,
        zstd_allowed: bool = True,  # Produce v7+
        contents: Contents | None = None,  # what came of `opens`; None: not opened
        adds: bool = False,  # see Intake.judge
    ) -> None:
        """Answer `token` now or when the commit decides; see `Reply`."""
        if self._state is not State.SERVING:
            self._answers.refuse(token, Rejection(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        intake = self._intake
        judged = intake.judge(
            record_set, self._limits, self.bytes_held, zstd_allowed, contents, now.wall_ms, adds=adds
        )
        if isinstance(judged, Rejection):
            if judged.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and token is not None:
                self._doubt(token, deadline_ms, judged.error)
            else:
                self._answers.refuse(token, judged)
        elif isinstance(judged, Repeat):
            self._repeat(token, judged, deadline_ms)
        else:
            base, append_time_ms = intake.assign(judged, self._limits, now, self._ledger.head.next)
            if token is not None:
                intake.open.waiters.add(Waiter(token, base, append_time_ms, deadline_ms))
            if intake.open.bytes >= self._limits.full_bytes:
                self._pipeline.seal(now)

    def end_transaction(
        self, token: Token | None, end: TransactionEnd, *, deadline_ms: int, now: Instant
    ) -> None:
        """Append the marker of a transaction if it is open up to the last assigned offset. `token` is answered with
        NONE when it is certain that nothing of it is open in the log any more, and that no batch of it will come.
        None: nobody waits for that."""
        if self._state is not State.SERVING:
            self._answers.refuse(token, Rejection(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        offset = self._intake.end(end, now, self._ledger.head.next)
        if offset is None:
            offset = self._marker_under_way(end.producer_id)
        if offset is None:
            if token is not None:
                self._doubt(token, deadline_ms, ErrorCode.NONE)
            return
        if token is not None:
            self._waiters_of(offset).add(Waiter(token, offset, NO_TIMESTAMP, deadline_ms))
        buffer = self._intake.open
        if buffer.aborts >= ENTRY_ABORTS_MAX or buffer.bytes >= self._limits.full_bytes:
            self._pipeline.seal(now)

    def _marker_under_way(self, producer_id: int) -> int | None:
        """The producer's last marker without a commit yet. A commit may take a part of what is assigned, so it proves
        nothing about a marker that it does not contain."""
        events = [event for flight in self.flights() for event in flight.events] + self._intake.open.events
        ends = (each.offset for each in events if isinstance(each, End) and each.producer_id == producer_id)
        return max(ends, default=None)

    def _doubt(self, token: Token, deadline_ms: int, answer: ErrorCode) -> None:
        """`answer`: if the partition is still owned."""
        self._doubts.add(Waiter(token, NO_OFFSET, NO_TIMESTAMP, deadline_ms, answer))

    def _repeat(self, token: Token | None, known: Repeat, deadline_ms: int) -> None:
        """What has its offsets already shares the outcome of the original: that of its last batch."""
        if token is None:
            return
        append_time_ms = known.ts if self._limits.log_append_time else NO_TIMESTAMP
        waiter = Waiter(token, known.base, append_time_ms, deadline_ms)
        if known.last_base < self._ledger.head.next:
            self._answers.acknowledge((waiter,), self._ledger.revision)
        else:
            self._waiters_of(known.last_base).add(waiter)

    def _waiters_of(self, offset: int) -> Waiters:
        for flight in self.flights():
            if flight.base <= offset < flight.end:
                return flight.waiters
        return self._intake.open.waiters_at(offset)

    def wants(self) -> Want | None:
        """What this partition has for the instance's next bundle."""
        if self._state not in _WORKING:
            return None
        return self._pipeline.wants(self._ledger.room_ahead, committing=self._ledger.committing)

    def without_room(self) -> list[bytes]:
        """The bundles whose slices of this partition are stored and only wait for room in the tail."""
        return self._uploads.without_room(self._ledger.room_ahead)

    def seal_slice(self, now: Instant) -> Flight:
        """Answer by `slice_stored` or `slice_failed`, once, when the outcome of the bundle is certain."""
        flight = self._pipeline.seal_slice(self._ledger.resting_head, self._plans.planned_end, now)
        self._plans.sealed(flight)
        return flight

    def slice_stored(self, base: int, bundle: bytes, etag: str, position: int, now: Instant) -> None:
        self._uploads.stored(base, bundle, etag, position)
        self._advance(now)

    def slice_failed(self, base: int, reason: StepDownReason, now: Instant) -> None:
        """The bundle will never be committed: the offsets of its slices are used up, so the epoch ends."""
        if self._uploads.holds_slice(base):
            self.step_down(reason, now)

    def upload_done(self, base: int, part: Part, etag: str, now: Instant) -> None:
        self._uploads.done(base, part, etag)
        self._advance(now)

    def upload_conflict(self, base: int, part: Part, now: Instant) -> None:
        self._uploads.conflict(base, part)
        self._advance(now)

    def object_found(self, base: int, part: Part, found: FoundObject | None, now: Instant) -> None:
        self._stop_or_advance(self._uploads.found(base, part, found, self._limits, now), now)

    def upload_unknown(self, base: int, part: Part, now: Instant, tried: Tried = TRIED) -> None:
        self._stop_or_advance(self._uploads.unknown(base, part, self._limits, now, tried), now)

    def upload_failed(self, base: int, part: Part, failure: PutFailure, now: Instant) -> None:
        if self._uploads.expects(base, part):
            self.step_down(failure.reason, now)

    def _stop_or_advance(self, reason: StepDownReason | None, now: Instant) -> None:
        if reason is None:
            self._advance(now)
        else:
            self.step_down(reason, now)

    def committed(self, txn: int, revision: int, now: Instant) -> None:
        sent = self._ledger.take_sent(txn)
        if sent is not None:
            self._applied(sent, sent.head, revision, now)

    def commit_refused(
        self, txn: int, current: Head | None, revision: int, *, ambiguous: bool, now: Instant
    ) -> None:
        """The head was not at the compared revision: fenced, or an earlier send was applied after all."""
        sent = self._ledger.take_sent(txn)
        if sent is None:
            return
        if sent.plan is not None:
            self._plan_refused(sent, sent.plan, current, revision, now)
            return
        outcome = sent.judge_commit(current, ambiguous=ambiguous)
        if outcome is Outcome.COMMITTED and current == sent.head:
            self._applied(sent, sent.head, revision, now)  # and nothing has happened since
        else:
            self._answers.decide(sent, outcome, revision)
            self._lose(current, now)

    def commit_rejected(self, txn: int, now: Instant) -> None:
        """etcd refused to propose it, so it is not applied; that is our bug or our rights."""
        sent = self._ledger.take_sent(txn)
        if sent is not None:
            self._answers.reject(sent, StepDownReason.COMMIT_REJECTED.error)
            self.step_down(StepDownReason.COMMIT_REJECTED, now)
            self._state = State.CLOSED

    def _applied(self, sent: Sent, head: Head, revision: int, now: Instant) -> None:
        """The transaction is in etcd. Only here and in `Answers.decide` are requests acknowledged."""
        old = self._ledger.head
        self._ledger.adopt(head, revision)
        self._intake.producers.committed(head.next)
        self._pipeline.committed(sent.flights, head)
        self._plans.committed(sent.flights)
        if sent.flights:
            for flight in sent.flights:
                self._answers.acknowledge(flight.waiters.take_all(), revision)
            self._actions.append(published(sent.flights, head, revision))
        self._answers.settle_doubts(sent.doubts.take_all(), revision)
        if sent.plan is not None:
            self._actions.extend(self._plans.applied(sent.plan, old, head))
        self._state = State.CLOSED if self._state is State.CLOSING else self._state
        self._advance(now)

    def checkpoint_ready(self, plan: int, snap_key: str, meta: MetaWrite, now: Instant) -> None:
        self._plans.saved(plan, snap_key, meta)
        self._advance(now)

    def run_rewritten(self, plan: int, seg: Seg, now: Instant) -> None:
        self._plans.rewritten(plan, seg)
        self._advance(now)

    def plan_failed(self, plan: int, now: Instant) -> None:
        self._plans.failed(plan, self._limits, now)
        self._advance(now)

    def _plan_refused(
        self, sent: Sent, plan: Ready, current: Head | None, revision: int, now: Instant
    ) -> None:
        outcome = sent.judge_plan(current, revision)
        if outcome is Outcome.COMMITTED:
            self._applied(sent, sent.head, revision, now)
        elif outcome is Outcome.ABSENT:
            for doubt in sent.doubts.take_all():
                self._doubts.add(doubt)
            self._plans.refused(plan, now)
            self._advance(now)
        else:
            self._answers.fail(sent.doubts.take_all(), ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._lose(current, now)

    def tick(self, now: Instant) -> None:
        """Time has passed: expire requests, retry uploads, plan what is due."""
        for waiters in self._waiters():
            self._answers.fail(waiters.take_expired(now.mono_ms), ErrorCode.REQUEST_TIMED_OUT)
        self._advance(now)

    def configure(self, limits: Limits, now: Instant) -> None:
        self._limits = limits
        self._pipeline.configure(limits)
        self._advance(now)

    def moved_log_start(self, log_start: int) -> None:
        self._answers.log_start = max(self._answers.log_start, log_start)

    def begin_handoff(self, now: Instant) -> None:
        """Refuse appends from now on, commit what there is, then say Drained."""
        if self._state is State.SERVING:
            self._state = State.DRAINING
            self._plans.drain()
            if self._intake.open.parts:
                self._pipeline.seal(now)
            self._advance(now)

    def released_head(self, handoff_to: str) -> Head:
        assert self._state is State.DRAINED, self._state
        return replace(self._ledger.head, owner="", handoff_to=handoff_to)

    def step_down(self, reason: StepDownReason, now: Instant) -> None:
        """End the epoch: whatever no transaction carries is definitely refused; the rest is resolved."""
        if self._state not in _OPEN:
            return
        for waiters in self._pipeline.waiters():
            self._answers.fail(waiters.take_all(), reason.error)
        self._pipeline.clear()
        self._answers.fail(self._doubts.take_all(), reason.error)
        self._state = State.CLOSING if self._ledger.sent is not None else State.CLOSED
        self._actions.append(SteppedDown(reason=reason))

    def _lose(self, current: Head | None, now: Instant) -> None:
        """The head is not mine any more."""
        self.step_down(StepDownReason.TOPIC_DELETED if current is None else StepDownReason.FENCED, now)
        self._state = State.CLOSED

    def _advance(self, now: Instant) -> None:
        """Start everything that may now be started, in the order of the path."""
        if self._state not in _WORKING:
            return
        self._uploads.retry_due(now)
        self._uploads.start(self._limits.pipeline_max)
        if self._ledger.sent is None:
            self._send_next()
        self._take_plans(now)
        self._finish_drain()

    def _send_next(self) -> None:
        """The ledger is free: a plan that is ready goes first, for it makes room in the tail."""
        ready = self._plans.take_ready()
        if ready is not None:
            self._actions.append(self._ledger.carry_out(ready, self._take_doubts()))
            return
        flights = self._uploads.take_uploaded(self._ledger.room)
        if flights or self._doubts.items:
            self._actions.append(self._ledger.commit(flights, self._take_doubts(), self._ids()))

    def _take_doubts(self) -> Waiters:
        taken, self._doubts = self._doubts, Waiters()
        return taken

    def _take_plans(self, now: Instant) -> None:
        drained = self._state is State.DRAINING and self._empty()
        self._actions.extend(self._plans.take(self._ledger.head, self._limits, now, drained=drained))

    def _finish_drain(self) -> None:
        if self._state is State.DRAINING and self._empty() and not self._plans.delays_handover:
            self._state = State.DRAINED
            self._actions.append(Drained())

    def _empty(self) -> bool:
        return self._pipeline.is_empty and self._ledger.sent is None

    def flights(self) -> Iterator[Flight]:
        if self._ledger.sent is not None:
            yield from self._ledger.sent.flights
        yield from self._uploads

    def _waiters(self) -> list[Waiters]:
        return [self._doubts, *self._ledger.waiters(), *self._pipeline.waiters()]
