"""A transactional producer, as Kafka's clients are: which requests it sends, and what it does with each answer.

TV2 is the protocol of KIP-890: Produce and TxnOffsetCommit join the transaction, and each end raises the epoch. With
TV1 the client joins by requests of their own. A batch is sent until its outcome is known, or the client loses patience:
then it must abort, and a TV1 client raises its epoch (KIP-360), because the batch may still arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final, NamedTuple

from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch
from kafscale.wire.schema import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    produce,
    txn_offset_commit,
)

from tools.simulator.clients import PRODUCE_TIMEOUTS_MS, Client, Unanswered, in_turns
from tools.simulator.transactions.history import Book, Outcome, Place, Session, Transaction, Written
from tools.simulator.transactions.offsets import Group

FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,  # its successor has another producer id
    }
)
NOT_EXECUTED: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Retriable answers to an EndTxn which decide nothing. After the others its outcome is unknown."""
BATCH_RECORDS: Final = 3
UNDER_WAY_MAX: Final = 5
"""Batches of a partition. Kafka remembers so many of a producer."""
IMPATIENT: Final = 0.1
"""The share of batches without an answer that are given up."""


class Versions(NamedTuple):
    init: int
    add_partitions: int
    add_offsets: int
    produce: int
    commit_offsets: int
    end: int

    @property
    def is_tv2(self) -> bool:
        return self.end >= 5


TV1: Final = Versions(init=4, add_partitions=3, add_offsets=3, produce=9, commit_offsets=3, end=3)
TV2: Final = Versions(init=5, add_partitions=3, add_offsets=4, produce=12, commit_offsets=5, end=5)


class Fenced(Exception):
    """The session is over."""


class Abortable(Exception):
    """The transaction can only be aborted."""


@dataclass(eq=False, slots=True)
class Batch:
    place: Place
    written: Sequence[Written]
    data: bytes


@dataclass(eq=False)
class TransactionalProducer:
    """One session."""

    client: Client
    book: Book
    session: Session
    versions: Versions
    may_lose_patience: bool
    clocks_are_right: Callable[[], bool]
    _who: tuple[int, int] = (-1, -1)
    _count: int = 0
    _sequences: dict[Place, int] = field(default_factory=dict)
    _transaction: Transaction | None = None
    _joined: set[Place | str] = field(default_factory=set)
    """Partitions and the group, of this transaction."""
    _is_in_doubt: bool = False
    """A batch was given up."""

    # -- the session ----------------------------------------------------------------------------------

    async def begin_session(self) -> None:
        session = self.session
        request = self._init_request()
        while True:
            ask = self.book.asks_init(session, self._now_s())
            try:
                answer = await self.client.ask(init_producer_id, self.versions.init, request)
            except Unanswered:
                await self.client.rest()
                continue
            ask.answered_s = self._now_s()
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                break
            if not code.retriable:
                self._refused("InitProducerId", code)
            await self.client.rest()
        self._becomes(answer.producer_id, answer.producer_epoch)
        self.book.begins(session, ask, *self._who)

    async def _raise_epoch(self) -> None:
        """KIP-360."""
        request = self._init_request()
        code, answer = await self._ask(
            init_producer_id, self.versions.init, request, lambda answer: answer.error_code
        )
        if code is not ErrorCode.NONE:
            self._refused("InitProducerId", code)
        self._becomes(answer.producer_id, answer.producer_epoch)
        self.book.has_epoch(self.session, *self._who)

    def _init_request(self) -> init_producer_id.InitProducerIdRequest:
        producer_id, epoch = self._who
        return init_producer_id.InitProducerIdRequest(
            transactional_id=self.session.id,
            transaction_timeout_ms=int(self.session.timeout_s * 1_000),
            producer_id=producer_id,
            producer_epoch=epoch,
        )

    def _becomes(self, producer_id: int, epoch: int) -> None:
        if self._who != (producer_id, epoch):
            self._who = producer_id, epoch
            self._sequences.clear()

    # -- a transaction --------------------------------------------------------------------------------

    def begin(self) -> Transaction:
        self._transaction = Transaction(self.session, self._now_s())
        self.book.transactions.append(self._transaction)
        self._joined.clear()
        return self._transaction

    async def send(self, records: Mapping[Place, Sequence[tuple[int, int] | None]]) -> None:
        """Records with these sources. Raises Fenced and Abortable."""
        if not self.versions.is_tv2:
            await self._add_partitions([place for place in records if place not in self._joined])
        self._joined.update(records)
        batches = [
            self._batch(place, sources[begin : begin + BATCH_RECORDS])
            for place, sources in records.items()
            for begin in range(0, len(sources), BATCH_RECORDS)
        ]
        turns = in_turns(batches, lambda batch: batch.place)
        for begin in range(0, len(turns), UNDER_WAY_MAX):
            await self._send_all(
                [each for turn in turns[begin : begin + UNDER_WAY_MAX] for each in turn.values()]
            )

    async def _send_all(self, batches: list[Batch]) -> None:
        """Until their outcome is known. Raises Fenced and Abortable."""
        while batches := await self._send(batches):
            if self.may_lose_patience and self.client.chance.random() < IMPATIENT:
                self._is_in_doubt = True
                raise Abortable("a batch was given up")
            await self.client.rest()

    async def commit_offsets(self, group: Group, offsets: Mapping[int, int]) -> bool:
        """Whether it was sent once, so that no copy can come late. Raises Fenced."""
        self._open().offsets.update(
            {(group.name, partition): offset for partition, offset in offsets.items()}
        )
        if not self.versions.is_tv2 and group.name not in self._joined:
            await self._add_group(group.name)
        self._joined.add(group.name)
        producer_id, epoch = self._who
        parts = [
            txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=offset)
            for each, offset in offsets.items()
        ]
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=self.session.id,
            group_id=group.name,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name=group.topic, partitions=parts)],
        )
        doubts: list[object] = []
        code, _ = await self._ask(
            txn_offset_commit,
            self.versions.commit_offsets,
            request,
            lambda answer: next(
                (p.error_code for t in answer.topics for p in t.partitions if p.error_code), 0
            ),
        )
        if code is not ErrorCode.NONE:
            self._refused("TxnOffsetCommit", code)
        return not doubts

    async def end(self, commit: bool) -> None:
        """Raises Fenced."""
        transaction = self._open()
        if not self._joined:
            self._over(Outcome.ABORTED)
            return
        transaction.may_commit = transaction.may_commit or commit
        producer_id, epoch = self._who
        request = end_txn.EndTxnRequest(
            transactional_id=self.session.id, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        doubts: list[object] = []
        code, answer = await self._ask(
            end_txn, self.versions.end, request, lambda answer: answer.error_code, doubts
        )
        if code is not ErrorCode.NONE:
            is_certain = not transaction.may_commit or not doubts
            self._over(Outcome.ABORTED if is_certain else Outcome.UNKNOWN)
            self._refused(f"EndTxn (commit {commit})", code, transaction)
        self._over(Outcome.COMMITTED if commit else Outcome.ABORTED)
        if self.versions.is_tv2:
            self._becomes(answer.producer_id, answer.producer_epoch)
            self.book.has_epoch(self.session, *self._who)
        elif self._is_in_doubt:
            await self._raise_epoch()
        self._is_in_doubt = False

    def _over(self, outcome: Outcome) -> None:
        self.book.ends(self._open(), outcome)
        self._transaction = None

    def _open(self) -> Transaction:
        assert self._transaction is not None, "a transaction has begun"
        return self._transaction

    # -- requests -------------------------------------------------------------------------------------

    async def _add_partitions(self, places: Sequence[Place]) -> None:
        if not places:
            return
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        producer_id, epoch = self._who
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.session.id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[
                add_partitions_to_txn.AddPartitionsToTxnRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )

        def code_of(answer: add_partitions_to_txn.AddPartitionsToTxnResponse) -> int:
            found = [p for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition]
            return next((p.partition_error_code for p in found if p.partition_error_code), 0)

        code, _ = await self._ask(add_partitions_to_txn, self.versions.add_partitions, request, code_of)
        if code is not ErrorCode.NONE:
            self._refused("AddPartitionsToTxn", code)

    async def _add_group(self, group: str) -> None:
        producer_id, epoch = self._who
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=self.session.id, producer_id=producer_id, producer_epoch=epoch, group_id=group
        )
        code, _ = await self._ask(
            add_offsets_to_txn, self.versions.add_offsets, request, lambda answer: answer.error_code
        )
        if code is not ErrorCode.NONE:
            self._refused("AddOffsetsToTxn", code)

    def _batch(self, place: Place, sources: Sequence[tuple[int, int] | None]) -> Batch:
        transaction, sent_s = self._open(), self._now_s()
        written = []
        for source in sources:
            origin = "" if source is None else f"<{source[0]}:{source[1]}"
            value = f"{self.session.name}:{self._count}{origin}".encode()
            self._count += 1
            each = Written(value, place, sent_s, source)
            self.book.written[value] = transaction, each
            written.append(each)
        transaction.written += written
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + len(written)
        padding = b"." * self.client.chance.choice((0, 100, 2_000))
        producer_id, epoch = self._who
        data = build_batch(
            [Record(timestamp=1_700_000_000_000, key=padding, value=each.value) for each in written],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        return Batch(place, written, data)

    async def _send(self, batches: list[Batch]) -> list[Batch]:
        """Those whose outcome is not known yet. Several batches of a partition are on their way at a time."""
        turns = in_turns(batches, lambda batch: batch.place)
        version = self.versions.produce
        answers = await self.client.answers(
            [(produce, version, self._produce_request(each)) for each in turns]
        )
        unknown: dict[Place, list[Batch]] = {}
        for turn, answer in zip(turns, answers, strict=True):
            found = {
                (topic.name, part.index): part
                for topic in (() if answer is None else answer.responses)
                for part in topic.partition_responses
            }
            for place, batch in turn.items():
                part = found.get(place)
                if part is None or not self._answered(batch, part, is_next=place not in unknown):
                    unknown.setdefault(place, []).append(batch)
        return [batch for each in unknown.values() for batch in each]

    def _produce_request(self, batches: Mapping[Place, Batch]) -> produce.ProduceRequest:
        topics: dict[str, list[produce.ProduceRequestPartition]] = {}
        for (topic, partition), each in batches.items():
            part = produce.ProduceRequestPartition(index=partition, records=each.data)
            topics.setdefault(topic, []).append(part)
        return produce.ProduceRequest(
            transactional_id=self.session.id,
            acks=-1,
            timeout_ms=self.client.chance.choice(PRODUCE_TIMEOUTS_MS),
            topic_data=[
                produce.ProduceRequestTopic(name=topic, partition_data=parts)
                for topic, parts in topics.items()
            ],
        )

    def _answered(self, batch: Batch, part: produce.ProduceResponsePartition, *, is_next: bool) -> bool:
        """Whether the outcome is known now. `is_next`: that of all batches before it is. Raises Abortable: an older
        epoch may be the work of a timeout, and then an EndTxn of TV2 that aborts gives the producer its new epoch."""
        code = ErrorCode(part.error_code)
        if code is ErrorCode.NONE:
            for number, each in enumerate(batch.written):
                each.offset = part.base_offset + number
            return True
        if code.retriable or (code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_next):
            return False
        self._judge_refusal("Produce", code, self._open())
        self._is_in_doubt = True
        raise Abortable(code.name)

    async def _ask(
        self,
        api: ModuleType,
        version: int,
        request: object,
        code_of: Callable[[Any], int],
        doubts: list[object] | None = None,
    ) -> tuple[ErrorCode, Any]:
        """Until an answer is final. `doubts`: gets the answers after which the request may have been executed."""
        while True:
            try:
                answer = await self.client.ask(api, version, request)
            except Unanswered as why:
                why_not: object = why
            else:
                code = ErrorCode(code_of(answer))
                if not code.retriable:
                    return code, answer
                why_not = code
            if doubts is not None and why_not not in NOT_EXECUTED:
                doubts.append(why_not)
            await self.client.rest()

    def _refused(self, what: str, code: ErrorCode, transaction: Transaction | None = None) -> None:
        """Raises Fenced."""
        now_s = self._now_s()
        transaction = transaction or self._transaction or Transaction(self.session, now_s)
        self._judge_refusal(what, code, transaction)
        raise Fenced(f"{what}: {code.name}")

    def _judge_refusal(self, what: str, code: ErrorCode, transaction: Transaction) -> None:
        """A producer that does nothing wrong is refused only when it is fenced."""
        if code in FENCED:
            self.book.is_fenced(transaction, self._now_s(), f"{what}: {code.name}", self.clocks_are_right())
        else:
            self.book.broken.append(f"refused: {self.session.name} got {code.name} for {what}")

    def _now_s(self) -> float:
        return self.client.world.loop.time()
