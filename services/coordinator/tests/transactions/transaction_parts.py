"""The processes of `transaction_world`: coordinators of the id, the line of a group, and partitions.

A coordinator steps the real machine and does what the shell does: it writes the record under the slot's claim, repeats
the write while its outcome is unknown, and releases the actions after it. The line of a group makes the real changes of
`groups/pending.py`. A partition is an owner that makes no mistake and never moves; owners are proven elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kafscale.coordinator.groups import pending
from kafscale.coordinator.groups.pending import Change, Pending, Place
from kafscale.coordinator.transactions import machine
from kafscale.coordinator.transactions.model import (
    LAST_EPOCH,
    Action,
    Answer,
    Event,
    Instant,
    JoinAnswer,
    ProducerAnswer,
    ProducerEpoch,
    Prove,
    Proven,
    Request,
    Rules,
    Token,
    Transactions,
)
from kafscale.coordinator.transactions.persisted import encoded, must_save, restored
from kafscale.storage.etcd.client import Compare, Delete, KeyValue, Put, Range, Txn, TxnResult
from kafscale.storage.groups import CommittedOffset, encode_committed
from kafscale.storage.keys import Keyspace, PartitionKey, SlotId, TopicId
from kafscale.storage.slots import slot_fence, slot_of
from kafscale.storage.transactions import (
    ClosingTransaction,
    PendingOffsets,
    TransactionState,
    decode_pending,
    decode_transaction,
)
from kafscale.testkit.etcd_model.model import EtcdModel
from kafscale.wire.errors import ErrorCode

KEYS = Keyspace()
NAME, GROUP = "id", "group"
ID_SLOT, GROUP_SLOT = slot_of(NAME), slot_of(GROUP)
RECORD = KEYS.transaction(ID_SLOT, NAME)
P0, P1 = (TopicId(b"t" * 16), 0), (TopicId(b"t" * 16), 1)
Txn_ = tuple[str, int]
"""Of which client, and its how manyth transaction."""


class Violation(Exception):
    """A law does not hold."""


@dataclass
class Etcd:
    """One atomic step for each request."""

    memory: EtcdModel = field(default_factory=EtcdModel)

    def txn(self, txn: Txn) -> TxnResult:
        return self.memory.txn(txn)

    def kv(self, key: bytes) -> KeyValue | None:
        return self.memory.get(key)

    def revision(self, key: bytes) -> int:
        kv = self.kv(key)
        return 0 if kv is None else kv.mod_revision

    def record(self) -> TransactionState | None:
        kv = self.kv(RECORD)
        return None if kv is None else decode_transaction(kv.value)

    def pending(self) -> list[PendingOffsets]:
        prefix = KEYS.pendings_prefix(GROUP_SLOT, GROUP)
        return [decode_pending(kv.value) for kv in self.memory.under(prefix)]

    def claim(self, slot: SlotId) -> int:
        """By a new coordinator. The value does not matter here: every write compares the revision."""
        self.txn(Txn(success=(Put(KEYS.slot_claim(slot), b""),)))
        return self.revision(KEYS.slot_claim(slot))


@dataclass
class Write:
    """Under way. `tries`: how often it may have been applied."""

    txn: Txn
    after: Transactions
    value: bytes | None
    actions: list[Action]
    tries: int = 0


class Coordinator:
    """`hear`: called with each answer and its token."""

    fences = True
    replies_early = False

    def __init__(self, etcd: Etcd, epoch: int, now: Instant, rules: Rules) -> None:
        self.etcd, self.rules = etcd, rules
        self.claim = etcd.claim(ID_SLOT)
        self.machine: Transactions = restored(NAME, epoch, etcd.record(), now, rules)
        self.revision = etcd.revision(RECORD)
        self.inbox: list[Event] = []
        self.write: Write | None = None
        self.proofs: list[int] = []
        self.waiting: dict[Token, Callable[[Answer], None]] = {}
        self.tokens = 0
        self.is_over = False

    def ask(
        self, request_of: Callable[[Token], Request], hear: Callable[[Answer], None], now: Instant
    ) -> None:
        self.tokens += 1
        token = Token(self.tokens)
        self.waiting[token] = hear
        self.tell(request_of(token), now)

    def tell(self, event: Event, now: Instant) -> None:
        if self.is_over:
            return
        self.inbox.append(event)
        if self.write is None:
            self.step(now)

    def step(self, now: Instant) -> None:
        actions: list[Action] = []
        after = self.machine
        while self.inbox:
            done = machine.step(after, self.inbox.pop(0), now, self.rules)
            after = done.transactions
            actions += done.actions
        if not must_save(self.machine, after):
            self.machine = after
            self.release(actions)
            return
        if self.replies_early:
            self.release(actions)
            actions = []
        value = encoded(after)
        fence = (slot_fence(KEYS, ID_SLOT, self.claim),) if self.fences else ()
        over = (Compare(RECORD, "mod", "=", self.revision),) if self.fences else ()
        txn = Txn(
            compare=(*fence, *over),
            success=(Delete(RECORD) if value is None else Put(RECORD, value),),
            failure=(Range(KEYS.slot_claim(ID_SLOT)), Range(RECORD)),
        )
        self.write = Write(txn, after, value, actions)

    def send(self, now: Instant, *, answered: bool) -> None:
        """The write is applied; its answer may be lost, and then it is sent again later."""
        write = self.write
        if write is None or self.is_over:
            return
        result = self.etcd.txn(write.txn)
        write.tries += 1
        if not answered:
            return
        kv = self.etcd.kv(RECORD)
        ours = kv is not None and kv.value == write.value
        mine = self.etcd.revision(KEYS.slot_claim(ID_SLOT)) == self.claim
        if not result.succeeded and not (write.tries > 1 and ours and mine):
            self.die()
            return
        self.revision = self.etcd.revision(RECORD)
        self.write, self.machine = None, write.after
        self.release(write.actions)
        if self.inbox:
            self.step(now)

    def prove(self, now: Instant) -> None:
        """Answers the oldest proof that was asked for, by a read now."""
        if self.is_over or not self.proofs:
            return
        if self.etcd.revision(KEYS.slot_claim(ID_SLOT)) != self.claim:
            self.die()
            return
        self.tell(Proven(ask=self.proofs.pop(0)), now)

    def release(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Prove):
                self.proofs.append(action.ask)
            else:
                self.waiting.pop(action.token)(action)

    def die(self) -> None:
        """The slot is lost, or the process is killed: whoever waits hears that it is not the coordinator."""
        self.is_over = True
        waiting, self.waiting = self.waiting, {}
        for token, hear in waiting.items():
            hear(ProducerAnswer(token=token, error=ErrorCode.NOT_COORDINATOR))

    @property
    def closing(self) -> ClosingTransaction | None:
        """What was written: ends of a decision that is only on its way would be believed."""
        return self.machine.closing


@dataclass(eq=False)
class Batch:
    """Records of a client for a partition, or offsets of it for the group (`offset`)."""

    txn: Txn_
    producer: ProducerEpoch
    add: bool
    offset: int = -1
    where: PartitionKey = P0


@dataclass(eq=False)
class Question:
    batch: Batch
    crossed: int = 0


@dataclass
class Log:
    """A partition with its owner. `entries`: data as (txn, producer id, number), markers as (producer id, number,
    commit)."""

    participant: PartitionKey
    data: list[tuple[int, Txn_, int, int]] = field(default_factory=list)  # position, txn, producer id, number
    markers: list[tuple[int, int, int, bool]] = field(
        default_factory=list
    )  # position, producer id, number, commit
    position: int = 0
    open: dict[int, int] = field(default_factory=dict)  # producer id: number
    joined: dict[ProducerEpoch, int] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)  # producer id: newest epoch
    questions: list[Question] = field(default_factory=list)

    def holds(self, txn: Txn_) -> bool:
        return any(each[1] == txn for each in self.data)

    def receive(self, batch: Batch) -> Question | bool:
        """Appended or known: True. Refused: False. Else the question to ask."""
        if self.holds(batch.txn):
            return True
        producer = batch.producer
        if producer.epoch < self.seen.get(producer.producer_id, -1):
            return False
        number = self.joined.get(producer)
        if number is not None and self.open.get(producer.producer_id, number) == number:
            self.append(batch, number)
            return True
        if any(question.batch.producer == producer for question in self.questions):
            return False  # it waits for the question that is out
        question = Question(batch)
        self.questions.append(question)
        return question

    def hear(self, question: Question, answer: Answer) -> bool:
        """Whether the batch is appended."""
        self.questions.remove(question)
        if not isinstance(answer, JoinAnswer) or answer.error:
            return False
        if answer.ended is not None:
            self.end(answer.ended)
            question.crossed = max(question.crossed, answer.ended.number)
        producer = question.batch.producer
        if answer.number <= question.crossed or producer.epoch < self.seen.get(producer.producer_id, -1):
            return False
        if self.open.get(producer.producer_id, answer.number) != answer.number:
            return False
        self.joined[producer] = answer.number
        if not self.holds(question.batch.txn):
            self.append(question.batch, answer.number)
        return True

    def append(self, batch: Batch, number: int) -> None:
        producer_id, epoch = batch.producer
        self.data.append((self.position, batch.txn, producer_id, number))
        self.position += 1
        self.open[producer_id] = number
        self.seen[producer_id] = epoch

    def end(self, ended: ClosingTransaction) -> None:
        """Returns when the end is carried out, or nothing of the transaction is there."""
        for question in self.questions:
            if question.batch.producer.producer_id == ended.producer_id:
                question.crossed = max(question.crossed, ended.number)
        self.joined = {
            producer: number
            for producer, number in self.joined.items()
            if producer.producer_id != ended.producer_id or number > ended.number
        }
        if self.open.get(ended.producer_id) == ended.number:
            del self.open[ended.producer_id]
            self.markers.append((self.position, ended.producer_id, ended.number, ended.commit))
            self.position += 1
            self.seen[ended.producer_id] = max(self.seen.get(ended.producer_id, -1), ended.marker_epoch)


class GroupLine:
    """The line of the group in one coordinator of its slot. One change at a time."""

    def __init__(self, etcd: Etcd) -> None:
        self.etcd = etcd
        self.claim = etcd.claim(GROUP_SLOT)
        self.known: dict[int, Pending] = {}
        prefix = KEYS.pendings_prefix(GROUP_SLOT, GROUP)
        for kv in etcd.memory.under(prefix):
            place = self.place(KEYS.parse_pending(kv.key)[2])
            self.known[place.producer_id] = pending.loaded(place, kv)
        self.is_over = False

    def place(self, producer_id: int) -> Place:
        return Place(
            keyspace=KEYS, slot_id=GROUP_SLOT, claim=self.claim, group=GROUP, producer_id=producer_id
        )

    def of(self, producer_id: int) -> Pending:
        return self.known.get(producer_id, Pending(place=self.place(producer_id)))

    def ask(self, batch: Batch) -> None:
        producer_id = batch.producer.producer_id
        self.known[producer_id] = pending.with_question(self.of(producer_id))

    def hear(self, batch: Batch, answer: Answer) -> bool:
        """Whether the offset is pending now."""
        producer_id, epoch = batch.producer
        put = False
        if isinstance(answer, JoinAnswer) and not answer.error and not self.is_over:
            if answer.ended is not None:
                self.end(answer.ended)
            change = pending.put(
                self.of(producer_id), epoch, answer.number, {batch.where: committed(batch.offset)}
            )
            put = isinstance(change, Change) and self.apply(producer_id, change)
        self.known[producer_id] = pending.without_question(self.of(producer_id))
        return put

    def end(self, ended: ClosingTransaction, parts: int = 1_000) -> bool:
        """At most so many transactions of it. Whether it is confirmed."""
        producer_id = ended.producer_id
        self.known[producer_id] = pending.with_end(self.of(producer_id), ended.number)
        for _ in range(parts):
            change = pending.end(self.of(producer_id), ended.number, commit=ended.commit)
            if change is None:
                self.is_over |= self.etcd.revision(KEYS.slot_claim(GROUP_SLOT)) != self.claim
                return not self.is_over
            if not self.apply(producer_id, change):
                return False
        return False

    def apply(self, producer_id: int, change: Change) -> bool:
        result = self.etcd.txn(change.txn)
        tries = 1
        if self.etcd.memory.revision % 3 == 0:  # the answer is lost, and the same transaction is sent again
            result, tries = self.etcd.txn(change.txn), 2
        after = pending.after_change(
            self.of(producer_id), change, result, result.revision, ambiguous=tries > 1
        )
        if after is None:
            self.is_over = True
            return False
        self.known[producer_id] = after
        return True

    def commit(self, where: PartitionKey, offset: int) -> bool:
        """A plain commit."""
        key = KEYS.committed(GROUP_SLOT, GROUP, *where)
        fence = slot_fence(KEYS, GROUP_SLOT, self.claim)
        value = encode_committed(committed(offset))
        return self.etcd.txn(Txn(compare=(fence,), success=(Put(key, value),))).succeeded


def committed(offset: int) -> CommittedOffset:
    return CommittedOffset(offset=offset, commit_ms=0)


class Setting(NamedTuple):
    """The protocol of the clients, and the epoch at which the story begins."""

    tv: int
    epoch: int = 0


SETTINGS = (
    Setting(1),
    Setting(2),
    Setting(2, LAST_EPOCH - 2),
)
