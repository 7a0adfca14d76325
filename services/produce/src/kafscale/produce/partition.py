"""The shell of one partition: performs what its writer asks for and feeds the answers back.

Nothing is decided here. Requests that come before the writer exists (claim under way, log being
loaded) are held in arrival order and handed to it in that order, or all refused together, so that
no request ever passes an earlier one; so do those behind one whose records are being opened. Batches of a transaction
that its producer has not joined here wait for the answer of its coordinator (`joins.py`), with all that follow of that
producer and with no others. A partition
object serves one epoch and is then dropped; after a step-down it lives on only to feed its writer until
the last commit is resolved.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, assert_never

import structlog
from kafscale.log.claims import head_in
from kafscale.produce.bundles.bundler import Bundler
from kafscale.produce.checkpoint import Checkpointer
from kafscale.produce.joins import Answer as JoinAnswer
from kafscale.produce.joins import Joins
from kafscale.produce.log.contents import Contents, Opening
from kafscale.produce.log.ledger import head_txn
from kafscale.produce.log.model import (
    Action,
    Arrival,
    Checkpointed,
    CommitHead,
    Drained,
    HeadObject,
    Instant,
    PartitionId,
    Published,
    PutObject,
    Rejection,
    Reply,
    SettleRun,
    StepDownReason,
    SteppedDown,
    TakeCheckpoint,
    TransactionEnd,
)
from kafscale.produce.log.producer_budget import ProducerBudget
from kafscale.produce.log.producers import ProducerTable
from kafscale.produce.log.settling import KeptBudget
from kafscale.produce.log.writer import PartitionWriter
from kafscale.produce.metrics import ProduceMetrics
from kafscale.produce.opener import LINE_MAX, NO_PLACE, Opener
from kafscale.produce.penalties import ClaimPenalties
from kafscale.produce.pump import Alarm, Pump
from kafscale.produce.puts import Uploader
from kafscale.produce.requests import AppendOrder, Caller, Request, Requests, RequestSpans, behind
from kafscale.produce.settler import Settler
from kafscale.produce.shared_fills import SharedFills
from kafscale.produce.transactions import Transaction
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import Clock
from kafscale.runtime.committer import Answer, Committer, Settled
from kafscale.runtime.shared_cache import SharedCache
from kafscale.storage.keys import Keyspace
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.system import monotonic_s
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

NO_JOIN = Contents(
    Rejection(
        ErrorCode.NOT_ENOUGH_REPLICAS, "Too many batches wait for the coordinators of their transactions."
    )
)


class Phase(Enum):
    """CLAIMING → LOADING → SERVING → GONE; from any of them to GONE."""

    CLAIMING = auto()
    LOADING = auto()
    SERVING = auto()
    GONE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What all partitions of an instance share."""

    uploader: Uploader
    keyspace: Keyspace
    committer: Committer
    opener: Opener
    checkpointer: Checkpointer
    settler: Settler
    pump: Pump
    append_order: AppendOrder
    joins: Joins
    penalties: ClaimPenalties
    producer_budget: ProducerBudget
    budget: MemoryBudget
    clock: Clock
    metrics: ProduceMetrics
    tasks: asyncio.TaskGroup
    shared: SharedCache | None
    bundler: Bundler
    kept: KeptBudget
    drained: Callable[[Partition], None]
    stepped_down: Callable[[Partition, StepDownReason], None]

    def now(self) -> Instant:
        return Instant(self.clock.now_ms(), self.clock.wall_ms())

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """A task of the instance. One that is being torn down begins nothing more: its outcomes stay unknown."""
        try:
            self.tasks.create_task(work)
        except RuntimeError:  # what a task group says while it shuts down
            work.close()


class Partition:
    """See the module's law."""

    def __init__(self, id_: PartitionId, tools: Tools) -> None:
        self.id = id_
        self.phase = Phase.CLAIMING
        self.writer: PartitionWriter | None = None
        self.held_since_ms = 0  # of the oldest held request; 0: none
        self._tools = tools
        self.key = (id_.topic_id, id_.partition)
        self.spans = RequestSpans()
        self._requests = Requests(self.key, tools.append_order, tools.budget, self.spans)
        self._held: deque[Request] = deque()
        self._fills = SharedFills(tools.shared) if tools.shared is not None else None
        self._unread: deque[Request] = deque()  # in order; the first is being opened
        self._behind: list[Request] = []  # to be refused, in the next drive
        self._waiting: dict[int, list[Request]] = {}  # for a join, in order, by producer id
        self._ends: dict[tuple[int, int], tuple[Request, TransactionEnd]] = {}  # until the log is loaded
        self.producers = ProducerTable()
        self.loaded = asyncio.Event()  # or given up: what is to be known of the log is known
        me = weakref.ref(self)  # a partition that is given up is freed at once, with what it keeps
        self._alarm = Alarm(lambda: _touch(me))

    def __repr__(self) -> str:
        return f"{self.id.topic}/{self.id.partition}"

    # --- requests --------------------------------------------------------------------------

    def append(
        self,
        caller: Caller,
        slot: int,
        records: memoryview | None,
        now: Instant,
        *,
        converted: bool = False,
    ) -> None:
        """Take the next request in order; `caller` gets the answer later, never from within this call."""
        request = self._requests.take(caller, slot, records, converted)
        if self.writer is None:
            if not self._held:
                self.held_since_ms = now.mono_ms
            self._held.append(request)
            return
        self._enter(self.writer, request, now)
        self._tools.pump.touch(self)

    def serve(self, writer: PartitionWriter, producers: ProducerTable) -> None:
        """The log is loaded: the held requests go first, in their order."""
        assert self.phase is Phase.LOADING, self.phase
        self.phase = Phase.SERVING
        self.writer = writer
        self.producers = producers
        producers.join(self._tools.producer_budget)
        self.loaded.set()
        self.held_since_ms = 0
        held, self._held = self._held, deque()
        now = self._tools.now()
        if len(producers):
            self._requests.took_over(now)
        ends, self._ends = self._ends, {}
        for request, end in ends.values():
            self._end(writer, request, end, now)
        for request in held:
            if not self._given_up(request, now):
                self._enter(writer, request, now)
        self._tools.pump.touch(self)

    def _enter(self, writer: PartitionWriter, request: Request, now: Instant) -> None:
        """Appends it, or lets it wait: for the coordinator of its transaction, or for its turn."""
        asked = request.caller.transaction
        if asked is None or not self._waits_for_join(writer, request, asked, now):
            self._enter_line(writer, request, now)

    def _enter_line(self, writer: PartitionWriter, request: Request, now: Instant) -> None:
        """It waits for its turn if it is opened outside the event loop, or an earlier request is."""
        if self._unread:
            if len(self._unread) >= LINE_MAX:
                self._feed(writer, request, now, NO_PLACE)
            else:
                self._unread.append(request)
            return
        found = self._opens(writer, request)
        if not isinstance(found, Opening):
            self._feed(writer, request, now, found)
            return
        self._unread.append(request)
        opens, feed = partial(self._opens, writer), partial(self._feed_late, writer)
        self._tools.begin(self._tools.opener.open_all(self._unread, found, opens, feed))

    def _opens(self, writer: PartitionWriter, request: Request) -> Contents | Opening | None:
        tools, turn = self._tools, self._tools.opener.turn
        arrival = Arrival(
            wall_ms=tools.clock.wall_ms(),
            zstd_allowed=request.caller.zstd_allowed,
            converted=request.converted,
            light=turn.has_time,
        )
        began_s = monotonic_s()
        found = writer.opens(request.records, arrival)
        turn.spent(monotonic_s() - began_s)
        return found

    def _given_up(self, request: Request, now: Instant) -> bool:
        """Whether nobody waits for it any more. Then it is answered, and not appended late."""
        if not request.given_up(now.mono_ms):
            return False
        self._answer(Reply(token=request.token, error=ErrorCode.REQUEST_TIMED_OUT))
        return True

    def _feed_late(self, writer: PartitionWriter, request: Request, contents: Contents | None = None) -> None:
        now = self._tools.now()
        if not self._given_up(request, now):
            self._feed(writer, request, now, contents)
        self._tools.pump.touch(self)

    def _feed(
        self, writer: PartitionWriter, request: Request, now: Instant, contents: Contents | None = None
    ) -> None:
        if self._requests.is_behind(request, self.producers, now):
            self._behind.append(request)
            return
        if contents is not None:
            contents = self._requests.hold(request, contents)
        transaction = request.caller.transaction
        writer.append(
            request.token,
            request.records,
            deadline_ms=request.caller.deadline_ms,
            now=now,
            zstd_allowed=request.caller.zstd_allowed,
            contents=contents,
            adds=transaction is not None and transaction.adds,
        )

    def refuse_held(self, error: ErrorCode) -> None:
        """Answer every request alike that the writer has not seen: none of them was appended."""
        waiting = [request for some in self._waiting.values() for request in some]
        ends = [request for request, _ in self._ends.values()]
        refused = (*self._held, *self._unread, *waiting, *ends)
        self._tools.joins.leave(len(waiting))
        self._held.clear()
        self._unread.clear()
        self._waiting.clear()
        self._ends.clear()
        self.held_since_ms = 0
        for request in refused:
            self._answer(Reply(token=request.token, error=error))

    def give_up(self, error: ErrorCode) -> None:
        """The claim failed or the log could not be loaded: this object is done."""
        assert self.writer is None, self
        self.phase = Phase.GONE
        self.loaded.set()
        self.refuse_held(error)

    # --- transactions ----------------------------------------------------------------------

    def _waits_for_join(
        self, writer: PartitionWriter, request: Request, asked: Transaction, now: Instant
    ) -> bool:
        if writer.joins.number_of(asked.producer_id, asked.epoch) is not None:
            return False
        if not writer.needs_join(request.records, zstd_allowed=request.caller.zstd_allowed):
            return False
        if not self._tools.joins.take_place():
            self._feed(writer, request, now, NO_JOIN)
            return True
        waiting = self._waiting.get(asked.producer_id)
        if waiting is not None:
            waiting.append(request)
            return True
        self._waiting[asked.producer_id] = [request]
        writer.joins.asked(asked.producer_id)
        self._tools.joins.ask(asked, self, request.caller.span)
        return True

    def joined(self, asked: Transaction, answer: JoinAnswer) -> None:
        """The answer to the question about a producer: its requests go on in their order, or are refused together."""
        writer, waiting = self.writer, self._waiting.pop(asked.producer_id, None)
        if writer is None or waiting is None:
            return  # the writer has stopped, and they were refused
        self._tools.joins.leave(len(waiting))
        now, error = self._tools.now(), self._judge_join(writer, asked, answer)
        for request in waiting:
            if self._given_up(request, now):
                continue
            if request.caller.transaction != asked:
                self._enter(
                    writer, request, now
                )  # another epoch of the producer: it has a question of its own
            elif error is ErrorCode.NONE:
                self._enter_line(writer, request, now)
            else:
                self._answer(Reply(token=request.token, error=error))
        self._tools.pump.touch(self)

    def _judge_join(self, writer: PartitionWriter, asked: Transaction, answer: JoinAnswer) -> ErrorCode:
        if answer.error is not ErrorCode.NONE:
            writer.joins.unanswered(asked.producer_id)
            return answer.error
        if answer.ended is not None:
            now = self._tools.now()
            writer.end_transaction(None, answer.ended, deadline_ms=now.mono_ms, now=now)
        joined = writer.joins.answered(asked.producer_id, asked.epoch, answer.number)
        return ErrorCode.NONE if joined else ErrorCode.CONCURRENT_TRANSACTIONS

    def end(self, caller: Caller, slot: int, end: TransactionEnd, now: Instant) -> None:
        """Carry out what a coordinator has decided. `caller` gets NONE when it is certain that it is done."""
        request = self._requests.take(caller, slot, None, False)
        if self.writer is not None:
            self._end(self.writer, request, end, now)
            self._tools.pump.touch(self)
            return
        before = self._ends.pop((end.producer_id, end.number), None)
        self._ends[end.producer_id, end.number] = request, end
        if before is not None:
            self._answer(Reply(token=before[0].token, error=ErrorCode.REQUEST_TIMED_OUT))  # it was sent again

    def _end(self, writer: PartitionWriter, request: Request, end: TransactionEnd, now: Instant) -> None:
        writer.end_transaction(request.token, end, deadline_ms=request.caller.deadline_ms, now=now)

    # --- the writer ------------------------------------------------------------------------

    def drive(self, now: Instant) -> None:
        """Let time pass for the writer and perform its actions. Called by the pump."""
        writer = self.writer
        if writer is None:
            return
        refused, self._behind = self._behind, []
        for request in refused:
            self._requests.settle(request, behind(request))
        due_ms = writer.next_deadline()
        if due_ms is not None and due_ms <= now.mono_ms:
            writer.tick(now)
        actions = writer.take_actions()
        while actions:
            for action in actions:
                self._perform(writer, action)
            actions = writer.take_actions()
        due_ms = writer.next_deadline()
        if due_ms is not None:
            self._alarm.arm(due_ms, now.mono_ms)

    def _perform(self, writer: PartitionWriter, action: Action) -> None:
        match action:
            case Reply():
                self._answer(action)
            case CommitHead():
                self._commit(writer, action)
            case PutObject():
                self._tools.begin(self._put(writer, action))
            case HeadObject():
                self._tools.begin(self._head(writer, action))
            case TakeCheckpoint() | SettleRun():
                self._tools.begin(self._plan(writer, action))
            case Published() | Checkpointed():
                self._note(action)
            case Drained():
                self._tools.drained(self)
            case SteppedDown():
                self._stepped_down(action.reason)
            case _:
                assert_never(action)

    def _note(self, done: Published | Checkpointed) -> None:
        if isinstance(done, Published):
            self._count(done)
            self._tools.penalties.committed(self.key)
            self._tools.bundler.committed(self, done.segments, self._tools.now())
            if self._fills is not None:
                self._fills.committed(done.segments)
            return
        self._tools.metrics.checkpoints.inc()
        if done.old_snap_key:
            self._tools.begin(self._tools.checkpointer.drop_snapshot(done.old_snap_key))

    def _count(self, done: Published) -> None:
        """Each record once: a fold repeats some that were counted before."""
        metrics, wall_ms, segments = self._tools.metrics, self._tools.clock.wall_ms(), done.segments
        topic = metrics.topics.of(self.id.topic)
        topic.records.inc(sum(seg.records for seg in segments) - done.repeated.records)
        topic.bytes.inc(sum(seg.size for seg in segments) - done.repeated.bytes)
        metrics.folded_bytes.inc(done.repeated.bytes)
        for seg in segments:
            metrics.segment_bytes.observe(seg.size)
            metrics.flush_seconds.observe(max(0, wall_ms - seg.created_ms) / 1000)
        metrics.flushes.inc(len(segments))

    def _commit(self, writer: PartitionWriter, action: CommitHead) -> None:
        tools, span = self._tools, self.spans.commit(writer, action)
        txn = head_txn(tools.keyspace, self.id, action)
        tools.committer.submit(txn, partial(self._settled, writer, action), span=span)

    def _answer(self, reply: Reply) -> None:
        self._requests.answer(reply, self._tools.now())

    def _stepped_down(self, reason: StepDownReason) -> None:
        self.phase = Phase.GONE
        self.producers.leave()
        if self._fills is not None:
            self._fills.close()
        self._tools.bundler.stopped(self, self._tools.now())
        self._tools.metrics.stepdowns.labels(reason.name.lower()).inc()
        if reason is not StepDownReason.RELEASED:
            log.warning("writer stepped down", partition=repr(self), reason=reason.name.lower())
        self.refuse_held(reason.error)  # before anybody may claim: none may be passed by a later one
        self._tools.stepped_down(self, reason)

    async def _put(self, writer: PartitionWriter, action: PutObject) -> None:
        etag = await self._tools.uploader.put(
            writer,
            action,
            is_wanted=lambda: self.phase is not Phase.GONE,
            span=partial(self.spans.put, writer, action),
        )
        if etag is not None and self._fills is not None:
            self._fills.uploaded(action, etag)
        self._tools.pump.touch(self)

    async def _head(self, writer: PartitionWriter, action: HeadObject) -> None:
        await self._tools.uploader.head(writer, action)
        self._tools.pump.touch(self)

    async def _plan(self, writer: PartitionWriter, plan: TakeCheckpoint | SettleRun) -> None:
        tools = self._tools
        if isinstance(plan, SettleRun):
            await tools.settler.carry_out(self.id, writer, plan, tools.now)
        else:
            await tools.checkpointer.carry_out(self.id, writer, plan, tools.now)
        tools.pump.touch(self)

    def _settled(self, writer: PartitionWriter, action: CommitHead, answer: Answer) -> None:
        now = self._tools.now()
        if not isinstance(answer, Settled):
            writer.commit_rejected(action.txn, now)
        elif answer.result.succeeded:
            writer.committed(action.txn, answer.revision, now)
        else:
            self._refused(writer, action.txn, answer, now)
        self._tools.pump.touch(self)

    def _refused(self, writer: PartitionWriter, txn: int, answer: Settled, now: Instant) -> None:
        """A head that cannot be read shows as little as one that is gone: an outcome that is uncertain stays so."""
        head, revision = None, 0
        try:
            head, revision = head_in(answer.result)
        except UnreadableValue as error:
            log.error("head unreadable", partition=repr(self), why=str(error))
            writer.step_down(StepDownReason.DAMAGED, now)
        writer.commit_refused(txn, head, revision, ambiguous=answer.ambiguous, now=now)


def _touch(partition: weakref.ref[Partition]) -> None:
    """If it is still there."""
    found = partition()
    if found is not None:
        found._tools.pump.touch(found)
