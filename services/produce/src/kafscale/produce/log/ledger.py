"""The committed side of a partition: the head as etcd has it, the one transaction that may be under way over it, and
what became of that transaction.

Every value it sends is the compared predecessor plus something, so offsets are dense by
construction. While a transaction is out, nothing else is: its answer gives the revision that the
next one compares.

When etcd answers "the head is another", the head that refused the transaction shows whether an earlier send of it was
applied (`judge_commit`). Evidence, in this order: the commit's attempt id; the epoch history, by which an offset
inside my epoch was committed by me and by no other writer. `Answers.acknowledge` is called for committed offsets
only, and names the real offset. `Answers.fail` carries a code that means "certainly not appended", or
REQUEST_TIMED_OUT, the only answer to an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Protocol

from kafscale.log.heads import EPOCHS_MAX, TAIL_MAX, EpochStart, Head, Seg, encode_head
from kafscale.log.isolation import aborted_in
from kafscale.log.transactions import Event, Transactions
from kafscale.produce.log.flight import Flight
from kafscale.produce.log.model import (
    Action,
    CommitHead,
    MetaWrite,
    PartitionId,
    Rejection,
    Reply,
    Token,
    Waiter,
    Waiters,
)
from kafscale.storage.etcd.client import Compare, Put, Range, Txn
from kafscale.storage.keys import Keyspace
from kafscale.wire.errors import ErrorCode


class Ready(Protocol):
    """A plan whose objects are in the store: one transaction may put it into etcd."""

    @property
    def meta(self) -> MetaWrite | None:
        """What the transaction also does with meta."""

    def applied_to(self, head: Head) -> Head: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A transaction without an answer yet: a commit (`flights`), a plan that is ready, or neither,
    sent only to prove ownership for the `doubts` that ride on it: gaps, and ends of what is not open."""

    txn: int
    over: int  # the revision it compares
    head: Head
    base: int
    flights: tuple[Flight, ...] = ()
    plan: Ready | None = None
    doubts: Waiters = field(default_factory=Waiters)

    def judge_commit(self, current: Head | None, *, ambiguous: bool) -> Outcome:
        return judge_commit(self.head, self.base, current, ambiguous=ambiguous)

    def judge_plan(self, current: Head | None, revision: int) -> Outcome:
        return judge_plan(self.head, self.over, current, revision)


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

    @property
    def room_ahead(self) -> int:
        """The same behind the transaction that is under way, whatever becomes of it."""
        return self.room if self.sent is None else min(self.room, TAIL_MAX - len(self.sent.head.tail))

    @property
    def resting_head(self) -> Head | None:
        """None while a transaction changes it."""
        return self.head if self.sent is None else None

    @property
    def committing(self) -> bool:
        """Whether records are in a transaction without an answer yet."""
        return self.sent is not None and bool(self.sent.flights)

    def waiters(self) -> Iterator[Waiters]:
        """The requests that the outstanding transaction will answer."""
        if self.sent is not None:
            yield self.sent.doubts
            yield from (flight.waiters for flight in self.sent.flights)

    def commit(self, flights: Sequence[Flight], doubts: Waiters, attempt: bytes) -> CommitHead:
        """Put uploaded flights behind the log, in one transaction."""
        segs = tuple(flight.seg(self.head.epoch) for flight in flights)
        head = extended(self.head, segs, attempt, [flight.events for flight in flights])
        return self._send(head, None, doubts, flights=tuple(flights))

    def carry_out(self, ready: Ready, doubts: Waiters) -> CommitHead:
        return self._send(ready.applied_to(self.head), ready.meta, doubts, plan=ready)

    def _send(
        self,
        head: Head,
        meta: MetaWrite | None,
        doubts: Waiters,
        *,
        flights: tuple[Flight, ...] = (),
        plan: Ready | None = None,
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


def extended(head: Head, segs: Sequence[Seg], attempt: bytes, events: Sequence[Sequence[Event]] = ()) -> Head:
    """`head` with segments committed behind it. The first may repeat entries at the tail's end, and replaces them. An
    epoch enters the history with its first record. `events`: of each segment, which transactions its own batches begin
    and end; not those of batches that it repeats."""
    if not segs:
        return replace(head, attempt=attempt)
    tail = tuple(seg for seg in head.tail if seg.end <= segs[0].base)
    folded = head.tail[len(tail) :]
    position = folded[0].base if folded else head.next
    for seg in segs:
        assert seg.base == position, f"segment {seg.base} does not follow {position - 1}"
        position = seg.end
    transactions, transactional = Transactions(head.open), head.transactional or any(events)
    if transactional:
        aborts = [aborted_in(folded), *((),) * (len(segs) - 1)]
        segs = [transactions.entry(*each) for each in zip(segs, events, aborts, strict=True)]
    epochs = head.epochs
    if not epochs or epochs[-1].epoch != head.epoch:
        epochs = (*epochs, EpochStart(epoch=head.epoch, start=head.next))[-EPOCHS_MAX:]
    return replace(
        head,
        next=position,
        lso=transactions.stable_end(position),
        attempt=attempt,
        tail=(*tail, *segs),
        epochs=epochs,
        bytes=head.bytes + sum(seg.size for seg in segs) - sum(seg.size for seg in folded),
        max_ts=max(head.max_ts, *(seg.max_ts for seg in segs)),
        open=transactions.open,
        transactional=transactional,
    )


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


def judge_plan(sent: Head, sent_over: int, current: Head | None, revision: int) -> Outcome:
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

    def settle_doubts(self, doubts: Sequence[Waiter], revision: int) -> None:
        """A transaction of this writer was applied that was sent after they came."""
        for doubt in doubts:
            self._actions.append(Reply(token=doubt.token, error=doubt.error, revision=revision))

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
