"""The state of the protocol. Every value is immutable and hashable, so that equal states are found again."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeVar

T = TypeVar("T")

PARTITIONS = (0, 1)
BOTH = 0b11
"""Sets of partitions, as bits."""

Outcome = Literal["commit", "abort"]
COMMIT: Outcome = "commit"
ABORT: Outcome = "abort"
Producer = Literal["A", "B"]
PRODUCERS: tuple[Producer, ...] = ("A", "B")


class Transaction(NamedTuple):
    """A transaction as its producer means it: the producer's first, second, …"""

    producer: Producer
    turn: int


class End(NamedTuple):
    """A fact: the transaction with this number was decided."""

    number: int
    outcome: Outcome


class Decision(NamedTuple):
    end: End
    by: Producer | None
    """The producer whose EndTxn decided; None: the coordinator, which fences."""


# -- the coordinator --------------------------------------------------------------------------------


class Closing(NamedTuple):
    """A decided transaction that has not ended everywhere."""

    end: End
    marker_epoch: int
    awaited: int
    """The partitions that have not answered DONE."""


class Record(NamedTuple):
    """`x/{slot}/{id}`."""

    epoch: int = 0
    number: int = 0
    current: int | None = None
    """The partitions of the transaction under way."""
    closing: Closing | None = None
    last: Outcome | None = None
    last_epoch: int | None = None
    """The epoch that was raised by an InitProducerId which named it."""

    def awaits(self, partition: int) -> bool:
        return self.closing is not None and bool(self.closing.awaited >> partition & 1)

    def has_joined(self, partition: int) -> bool:
        return self.current is not None and bool(self.current >> partition & 1)

    def with_joined(self, partitions: int) -> Record:
        """The record with these partitions in the current transaction, which begins if there is none."""
        if self.current is None:
            return self._replace(number=self.number + 1, current=partitions)
        return self._replace(current=self.current | partitions)


class Coordinator(NamedTuple):
    claim: int
    memory: Record


# -- between services -------------------------------------------------------------------------------


class Batch(NamedTuple):
    """A batch of a producer, on its way for ever."""

    transaction: Transaction
    epoch: int
    partition: int


class Question(NamedTuple):
    """Join: an owner asks whether its partition belongs to the transaction of a producer epoch."""

    partition: int
    leader_epoch: int
    epoch: int
    add: bool


class Vouched(NamedTuple):
    """The answer to a join. `ended`: what closing still awaits this partition for."""

    partition: int
    leader_epoch: int
    epoch: int
    number: int
    ended: End | None


class Done(NamedTuple):
    """DONE: a partition acknowledges an end."""

    partition: int
    number: int


class EndTxn(NamedTuple):
    """A copy of a client's request that has reached a front door, and may reach a coordinator late."""

    transaction: Transaction
    epoch: int
    outcome: Outcome
    began: int | None
    """TV1: the newest number when it reached the front door. Its age says so; see `_is_stale`."""


# -- owners -----------------------------------------------------------------------------------------


class Data(NamedTuple):
    """A batch in a log, with the number that its owner appended it under."""

    transaction: Transaction
    epoch: int
    number: int


class Marker(NamedTuple):
    number: int
    outcome: Outcome


class Joined(NamedTuple):
    epoch: int
    number: int


class Opened(NamedTuple):
    """An entry of `open` in a head."""

    epoch: int
    number: int
    first: int


class Owner(NamedTuple):
    """One `Partition` object: it serves one leader epoch."""

    leader_epoch: int
    joined: Joined | None = None
    """What the coordinator has vouched for."""
    crossed: int = 0
    """The highest number whose end came while a question was out."""
    open: Joined | None = None
    """What has batches, assigned or committed, and no marker."""
    newest_epoch: int = -1
    """The newest producer epoch that it has seen."""
    waiting: tuple[Batch, ...] = ()
    """Batches that wait for a join."""
    asked: tuple[int, ...] = ()
    """Producer epochs whose question is out."""
    assigned: tuple[Data | Marker, ...] = ()
    """Not yet committed."""
    proofs: tuple[int, ...] = ()
    """Ends of nothing: acknowledged when a transaction of this owner was applied."""
    unheard: bool = False
    """Such a transaction was applied before, and its answer is late. Only STALE_PROOF looks at it."""


class Head(NamedTuple):
    leader_epoch: int = 1
    log: tuple[Data | Marker, ...] = ()
    open: Opened | None = None

    @property
    def last_stable(self) -> int:
        return len(self.log) if self.open is None else self.open.first


# -- clients ----------------------------------------------------------------------------------------


Phase = Literal["idle", "adding", "sending", "ending", "init", "raising", "over"]
"""What a client does next. `init`: InitProducerId of a new producer. `raising`: one with its epoch (KIP-360)."""


class Client(NamedTuple):
    phase: Phase = "idle"
    turn: int = 0
    epoch: int = 0


class State(NamedTuple):
    record: Record = Record()
    slot: int = 1
    """The newest claim of the slot."""
    coordinators: tuple[Coordinator, ...] = (Coordinator(1, Record()),)
    """The last one holds the slot."""
    heads: tuple[Head, ...] = (Head(), Head())
    owners: tuple[tuple[Owner, ...], ...] = ((Owner(1),), (Owner(1),))
    """Of each partition; the last one has the newest leader epoch, if it lives."""
    a: Client = Client()
    b: Client = Client()
    batches: frozenset[Batch] = frozenset()
    questions: frozenset[Question] = frozenset()
    answers: frozenset[Vouched] = frozenset()
    dones: frozenset[Done] = frozenset()
    late: frozenset[EndTxn] = frozenset()
    decisions: frozenset[Decision] = frozenset()
    committed: frozenset[Transaction] = frozenset()
    """Those whose own EndTxn decided commit."""
    acked: frozenset[tuple[Transaction, int]] = frozenset()
    """Transaction and partition, acknowledged to the producer."""
    timeouts: int = 0
    """Aborts by the coordinator that are left."""
    taken_over: bool = False
    """The InitProducerId of B was answered."""
    losses: int = 1
    """Answers to InitProducerId that may still be lost. Each repeat raises the epoch."""

    def client(self, producer: Producer) -> Client:
        return self.a if producer == "A" else self.b

    def with_client(self, producer: Producer, client: Client) -> State:
        return self._replace(a=client) if producer == "A" else self._replace(b=client)

    def with_memory(self, at: int, memory: Record) -> State:
        known = self.coordinators[at]._replace(memory=memory)
        return self._replace(coordinators=replaced(self.coordinators, at, known))

    def without_coordinator(self, at: int) -> State:
        return self._replace(coordinators=without(self.coordinators, at))

    def with_owner(self, partition: int, at: int, owner: Owner) -> State:
        mine = replaced(self.owners[partition], at, owner)
        return self._replace(owners=replaced(self.owners, partition, mine))

    def without_owner(self, partition: int, at: int) -> State:
        mine = without(self.owners[partition], at)
        return self._replace(owners=replaced(self.owners, partition, mine))


class Config(NamedTuple):
    """A configuration: how often each thing may happen."""

    version: int = 2
    """1: the client's protocol before KIP-890 part 2; 2: with it."""
    overlap: bool = True
    transactions: tuple[int, ...] = (BOTH, BOTH)
    """The partitions of A's transactions."""
    takeover: int = 0
    """The partitions of B's transaction; 0: B never comes."""
    slot_claims: int = 1
    claims: tuple[int, int] = (2, 1)
    """The highest leader epoch of each partition."""
    timeouts: int = 0
    aborts: bool = False
    """A may abort as well."""
    late_ends: bool = False
    """Copies of EndTxn may come late with TV1 too. With TV2 they always may."""

    def partitions_of(self, transaction: Transaction) -> int:
        return self.transactions[transaction.turn - 1] if transaction.producer == "A" else self.takeover


def replaced(of: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*of[:index], value, *of[index + 1 :])


def without(of: tuple[T, ...], index: int) -> tuple[T, ...]:
    return (*of[:index], *of[index + 1 :])
