"""The world of slices, with producers of transactions. Each is its own coordinator, and decides at once.

A batch of a producer that has not joined its transaction waits until the coordinator was asked, whose answer may come
late or never. An end is repeated until an owner says that it is carried out. With `bumps` an end raises the epoch, as
in KIP-890: then a question adds the partition, the producer may abort what is on its way, and its next transaction
overlaps the end of the last one. Without, a question verifies, and the producer waits for its answers and for the end.

A producer that writes to several partitions has one `Transactional` in each, its lanes; see `transactions_world`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from bundle_world import BundleWorld
from kafscale.log.heads import Seg
from kafscale.log.manifests import decode_manifest
from kafscale.produce.log.model import NO_OFFSET, Action, Reply, SteppedDown, TransactionEnd
from kafscale.wire.batches import read_batch_header
from kafscale.wire.errors import ErrorCode
from kafscale.wire.markers import Marker
from kafscale.wire.records import build_batch
from writer_clients import RETRIABLE, Batch, Idempotent, Send, ensure, records_of
from writer_shell import TIMEOUT_MS, Owner, Request
from writer_truth import marker_value


class Joined(NamedTuple):
    """The coordinator's answer to a join."""

    error: ErrorCode = ErrorCode.NONE
    number: int = 0
    ended: TransactionEnd | None = None  # the transaction before, which may still be open


LATE = -2
"""A connection whose answers nobody waits for."""
NO_ANSWER = Joined(ErrorCode.NOT_ENOUGH_REPLICAS)


@dataclass(slots=True, eq=False)
class Transactional(Idempotent):
    """The batches of the present transaction are in `batches`. `decided`: those that ended, with their records.

    `joined`: the coordinator has this partition in the present transaction. `closing`: the end that it awaits here."""

    bumps: bool = False
    number: int = 1
    joined: bool = False
    closing: TransactionEnd | None = None
    old: list[Batch] = field(default_factory=list)
    decided: dict[int, tuple[bool, list[bytes]]] = field(default_factory=dict)
    lanes: list[Transactional] = field(init=False)

    def __post_init__(self) -> None:
        self.lanes = [self]

    def make(self, count: int) -> Batch:
        first = self.next_seq
        values = [f"x{self.producer_id}-{self.number}-{first + n}".encode() for n in range(count)]
        data = build_batch(
            records_of(values, first),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=first,
            transactional=True,
        )
        self.next_seq += count
        self.joined |= not self.bumps  # its client has added the partition
        batch = Batch(values, data, first, number=self.number)
        self.batches.append(batch)
        return batch

    def hear(self, send: Send, error: ErrorCode) -> None:
        """CONCURRENT_TRANSACTIONS: an answer and an end crossed, or an owner from before knows of an older one."""
        if error is not ErrorCode.CONCURRENT_TRANSACTIONS:
            Idempotent.hear(self, send, error)
        elif send.connection == self.connection:
            self.reset()

    @property
    def is_closing(self) -> bool:
        return any(lane.closing is not None for lane in self.lanes)

    @property
    def may_begin(self) -> bool:
        """Whether the next transaction may, as the coordinator judges it."""
        return self.bumps or not self.is_closing

    def join(self, epoch: int) -> Joined:
        """The coordinator is asked about a batch of this epoch."""
        if epoch != self.epoch:
            return Joined(ErrorCode.INVALID_PRODUCER_EPOCH)
        if not self.may_begin:
            return Joined(ErrorCode.CONCURRENT_TRANSACTIONS)
        self.joined |= self.bumps
        if not self.joined:
            return Joined(ErrorCode.TRANSACTION_ABORTABLE)
        return Joined(number=self.number, ended=self.closing)

    def decide(self, commit: bool) -> None:
        """The coordinator's transaction, for all lanes. A commit waits for all answers."""
        begun = any(lane.batches for lane in self.lanes)
        if self.is_closing or not begun or not (self.all_done or (self.bumps and not commit)):
            return
        for lane in self.lanes:
            lane._decided(commit)

    def has_ended(self, end: TransactionEnd) -> None:
        """It is proven here."""
        if self.closing is end:
            self.closing = None

    @property
    def all_done(self) -> bool:
        return all(lane.done for lane in self.lanes)

    def _decided(self, commit: bool) -> None:
        if self.batches:
            self.decided[self.number] = commit, [value for batch in self.batches for value in batch.values]
        if self.joined:
            self.closing = TransactionEnd(
                producer_id=self.producer_id,
                number=self.number,
                commit=commit,
                marker_epoch=self.epoch + self.bumps,
                coordinator_epoch=self.number,
            )
        self.number += 1
        self.old += self.batches
        self.batches, self.joined = [], False
        self.reset()
        if self.bumps:
            self.epoch, self.next_seq = self.epoch + 1, 0


def open_number(owner: Owner, producer: Transactional) -> int:
    """Of the transaction that is open up to the last assigned offset; 0: none is."""
    begun = owner.writer._intake.transactions.of(producer.producer_id)
    return 0 if begun is None else begun.number


def epoch_of(send: Send) -> int:
    return read_batch_header(send.batch.data).producer_epoch


@dataclass(slots=True)
class Ending:
    """The coordinator hears of an end."""

    producer: Transactional
    end: TransactionEnd

    def hear(self, send: Send, error: ErrorCode) -> None:
        ensure(error is ErrorCode.NONE or error in RETRIABLE, f"an end was answered {error.name}")
        if error is ErrorCode.NONE:
            self.producer.has_ended(self.end)


class TransactionWorld(BundleWorld):
    """The methods that flaws override say what the protocol does."""

    limits = replace(BundleWorld.limits, transactions=True)
    producer_type = Transactional
    producer_type = Transactional

    def __init__(self, instances: int = 2) -> None:
        super().__init__(instances)
        self.begin_transactions()

    def begin_transactions(self) -> None:
        self.transactional = self._producers()
        self.reached: Counter[str] = Counter()

    def _producers(self) -> list[Transactional]:
        first = 1_000 * len(self.incarnations)
        return [self.producer_type(first + n, bumps=bool(n % 2)) for n in range(3)]

    def recreate_topic(self) -> None:
        before = self.truth
        super().recreate_topic()
        if self.truth is not before:
            self.transactional = self._producers()

    # --- moves ---------------------------------------------------------------------------------

    def send_transactional(self, instance: int, which: int, *, fresh: bool = True, count: int = 1) -> None:
        owner, producer = self._target(instance), self.transactional[which]
        if owner is None or owner.truth is not self.truth:
            return
        if producer.may_begin:
            self._send_next(owner, producer, fresh=fresh, count=count)

    def _append(self, owner: Owner, send: Send) -> None:
        """As the shell of a partition: what needs a join waits for it, with all that follow of its producer."""
        producer, data = send.producer, memoryview(send.batch.data)
        if not isinstance(producer, Transactional) or not owner.writer.needs_join(data, zstd_allowed=True):
            super()._append(owner, send)
            return
        token = next(self._token)
        self.tokens[token] = send, owner
        waiting = owner.waiting.get(producer.producer_id)
        if waiting is not None:
            waiting.append(token)
            return
        owner.waiting[producer.producer_id] = [token]
        owner.writer.joins.asked(producer.producer_id)
        self._ask(owner, producer, epoch_of(send))

    def _ask(self, owner: Owner, producer: Transactional, epoch: int) -> None:
        """The coordinator's answer travels too: an end may overtake it."""
        unknown = lambda: self._joined(owner, producer, epoch, NO_ANSWER)  # noqa: E731

        def run() -> Callable[[], None]:
            joined = producer.join(epoch)
            answer = Request("joined", owner, lambda: heard(joined), unknown)
            return lambda: self.network.append(answer)

        def heard(joined: Joined) -> Callable[[], None]:
            return lambda: self._joined(owner, producer, epoch, joined)

        self.network.append(Request("join", owner, run, unknown))

    def _joined(self, owner: Owner, producer: Transactional, epoch: int, joined: Joined) -> None:
        tokens, joins, error = owner.waiting.pop(producer.producer_id, None), owner.writer.joins, joined.error
        if tokens is None:
            return  # the writer has stopped
        if error is not ErrorCode.NONE:
            joins.unanswered(producer.producer_id)
        else:
            if joined.ended is not None:
                self.reached["end of a join"] += open_number(owner, producer) == joined.ended.number
                self.ended_first(owner, producer, joined.ended)
            if joins.answered(producer.producer_id, epoch, joined.number):
                self.reached["begun beside"] += producer.is_closing
            else:
                self.reached["crossed"] += 1
                error = ErrorCode.CONCURRENT_TRANSACTIONS
        for token in tokens:
            send, _ = self.tokens.pop(token)
            if send.connection not in (producer.connection, LATE):
                self._hear(send, ErrorCode.REQUEST_TIMED_OUT)  # its client has given it up
            elif epoch_of(send) != epoch:
                self._append(owner, send)
            elif error is not ErrorCode.NONE:
                self._hear(send, error)
            else:
                super()._append(owner, send)

    def ended_first(self, owner: Owner, producer: Transactional, end: TransactionEnd) -> None:
        """The end that comes with an answer, before what the answer allows."""
        self.carry_out(owner, producer, end)

    def send_late(self, instance: int, which: int) -> None:
        """A batch of a transaction that is decided: a front door has held it all the time."""
        owner, producer = self._target(instance), self.transactional[which]
        if owner is not None and owner.truth is self.truth and producer.old:
            batch = producer.old[-1 - next(self._token) % min(3, len(producer.old))]
            self._append(owner, Send(batch, producer, LATE))

    def cross(self, instance: int, which: int) -> None:
        """The coordinator answers questions and decides, and the end is here before the answers."""
        self.send_transactional(instance, which)
        for request in [each for each in self.network if each.what == "join"]:
            self.deliver(self.network.index(request))
        self.decide(which, commit=False)
        self.end(instance, which)

    def rush(self) -> None:
        """All that is on its way arrives, and its answers."""
        for instance in range(len(self.serving)):
            self.seal(instance)
        for _ in range(2 * len(self.network)):
            if self.network:
                self.deliver(0)

    def _perform(self, owner: Owner, action: Action) -> None:
        if isinstance(action, SteppedDown):
            waiting, owner.waiting = owner.waiting, {}
            for token in [token for tokens in waiting.values() for token in tokens]:
                send, _ = self.tokens.pop(token)
                self._hear(send, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        super()._perform(owner, action)

    def decide(self, which: int, *, commit: bool) -> None:
        self.transactional[which].decide(commit)

    def end(self, instance: int, which: int) -> None:
        """The coordinator's End arrives at this instance."""
        owner, producer = self._target(instance), self.transactional[which]
        if owner is not None and producer.closing is not None and owner.truth is self.truth:
            self.carry_out(owner, producer, producer.closing)

    def carry_out(self, owner: Owner, producer: Transactional, end: TransactionEnd) -> None:
        marker = marker_value(producer.producer_id, Marker(end.commit, end.coordinator_epoch))
        token = next(self._token)
        self.tokens[token] = (Send(Batch([marker], b""), Ending(producer, end), 0), owner)
        owner.writer.end_transaction(token, end, deadline_ms=self.now_ms + TIMEOUT_MS, now=self.now())
        self._drain(owner)

    def _reply(self, owner: Owner, reply: Reply) -> None:
        send, _ = self.tokens[reply.token]
        if isinstance(send.producer, Ending) and reply.error is ErrorCode.NONE and owner.truth.alive:
            ended = send.producer.end
            owner.truth.transactions.is_over(ended.producer_id, ended.number)
            if open_number(owner, send.producer.producer) > ended.number:
                self.reached["proof beside" if reply.base_offset == NO_OFFSET else "marker beside"] += 1
            if reply.base_offset == NO_OFFSET:  # it has no marker
                del self.tokens[reply.token]
                self._hear(send, reply.error)
                return
        super()._reply(owner, reply)

    # --- the end -------------------------------------------------------------------------------

    def heal(self) -> None:
        super().heal()
        for _ in range(20):
            self.go_on()
            for producer in self.transactional:
                producer.decide(commit=True)
            self.end_all()
            self._settle()
        self.judge()

    def go_on(self) -> None:
        """What was not acknowledged is sent again."""
        for which, producer in enumerate(self.transactional):
            while producer.next_to_send() is not None and producer.may_begin:
                self.send_transactional(0, which, fresh=False)

    def end_all(self) -> None:
        for which in range(len(self.transactional)):
            self.end(0, which)

    def judge(self) -> None:
        for producer in self.transactional:
            ensure(producer.closing is None, "an end is never proven")
            ensure(not producer.batches, "a producer never gets through")
            for number, (commit, values) in producer.decided.items():
                self._judge(producer.producer_id, number, commit, values)
        ensure(not self.truth.transactions.open, "a transaction stays open")
        self.truth.transactions.searches_find(self._entries(), len(self.truth.values))

    def _entries(self) -> list[Seg]:
        """Of all manifests, then of the tail."""
        head, (meta, _) = self.head(), self._meta(self.truth)
        manifests = [decode_manifest(self.s3.objects[chunk.key].body) for chunk in meta.chunks]
        return [seg for manifest in manifests for seg in manifest.segments] + list(head.tail if head else ())

    def _judge(self, producer_id: int, number: int, commit: bool, values: list[bytes]) -> None:
        """T1: committed, and all of its records are under its commit marker; else none."""
        outcome = self.truth.transactions.outcomes.get((producer_id, number))
        there = [value in self.truth.places for value in values]
        if commit:
            ensure(outcome is True and all(there), f"{values} were committed, {there} are there: {outcome}")
        else:
            ensure(outcome is False or not any(there), f"{values} were aborted: {outcome}")
