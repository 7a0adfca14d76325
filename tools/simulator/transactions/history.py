"""What the clients of transactions know, and what each answer has to agree with.

A session is the life of one producer, from InitProducerId on. A transaction is known as committed, as aborted, or as
neither: then its client was not answered. `laws.py` holds the log against all of this at the end; what an answer alone
shows is judged here, when it comes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from tools.simulator.clients import Records

LATE_S: Final = 60.0
"""How long a request without an answer may still be on its way."""
WORN: Final = "refunds"
"""The transactional id whose epochs are soon used up: then it gets another producer id."""
Place = tuple[str, int]
"""A topic's name and a partition."""
Position = tuple[str, int]
"""A group, and a partition of the ledger."""


class Outcome(Enum):
    UNKNOWN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(eq=False, slots=True)
class Written:
    """A record of a transaction. `source`: where a copier has read it."""

    value: bytes
    place: Place
    sent_s: float
    source: tuple[int, int] | None = None
    offset: int | None = None
    """Of an acknowledged record."""


@dataclass(eq=False, slots=True)
class Transaction:
    session: Session
    began_s: float
    written: list[Written] = field(default_factory=list)
    offsets: dict[Position, int] = field(default_factory=dict)
    may_commit: bool = False
    """An EndTxn that commits was sent."""
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(eq=False, slots=True)
class InitAsk:
    """An InitProducerId without an epoch: it fences all producers before it."""

    asked_s: float
    answered_s: float | None = None

    def may_follow(self, other: InitAsk) -> bool:
        """Whether it may have been executed after the other one."""
        if self.answered_s is None:
            return self.asked_s >= other.asked_s - LATE_S
        return self is not other and self.answered_s > other.asked_s


@dataclass(eq=False, slots=True)
class Session:
    id: str
    name: str
    timeout_s: float
    ask: InitAsk | None = None
    """Whose answer began the session."""
    first: tuple[int, int] = (0, -1)
    """Which producer id of its id it began with, as a number, and with which epoch. Newer sessions have greater."""

    @property
    def asked_s(self) -> float:
        return float("inf") if self.ask is None else self.ask.asked_s

    @property
    def began_s(self) -> float:
        return float("inf") if self.ask is None or self.ask.answered_s is None else self.ask.answered_s


@dataclass(eq=False)
class Book:
    broken: list[str] = field(default_factory=list)
    topics: dict[str, Records] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    written: dict[bytes, tuple[Transaction, Written]] = field(default_factory=dict)
    shown: dict[tuple[Place, int], bytes] = field(default_factory=dict)
    """What readers of committed data were given."""
    hidden: dict[tuple[Place, int], bytes] = field(default_factory=dict)
    """What they took for aborted."""
    floors: dict[Position, int] = field(default_factory=dict)
    """The newest offset that was committed for certain. Offsets of one position only rise."""
    plain: dict[Position, set[int]] = field(default_factory=dict)
    """Offsets that were committed outside of transactions."""
    maybe: dict[Position, set[int]] = field(default_factory=dict)
    """Offsets of requests without an answer: they may have been executed late, after a newer one."""
    producers: dict[str, list[int]] = field(default_factory=dict)
    """The producer ids of each id, in their order."""
    fenced: int = 0
    copied: int = 0
    _inits: dict[str, list[InitAsk]] = field(default_factory=dict)
    _epochs: dict[tuple[int, int], str] = field(default_factory=dict)
    """Producer id and epoch -> the session that has it."""

    def records(self, topic: str) -> Records:
        return self.topics.setdefault(topic, Records(topic=topic, broken=self.broken))

    def counts(self) -> dict[str, int]:
        """For the summary of a run."""
        outcomes = Counter(each.outcome for each in self.transactions)
        return {
            "transactions": len(self.transactions),
            "transactions committed": outcomes[Outcome.COMMITTED],
            "transactions aborted": outcomes[Outcome.ABORTED],
            "refusals of fenced producers": self.fenced,
            "records read as committed": len(self.shown),
            "records taken for aborted": len(self.hidden),
            "records copied exactly once": self.copied,
        }

    # -- producers ------------------------------------------------------------------------------------

    def asks_init(self, session: Session, now_s: float) -> InitAsk:
        ask = InitAsk(now_s)
        self._inits.setdefault(session.id, []).append(ask)
        return ask

    def begins(self, session: Session, ask: InitAsk, producer_id: int, epoch: int) -> None:
        """InitProducerId was answered: epochs never fall."""
        session.ask = ask
        session.first = self.has_epoch(session, producer_id, epoch), epoch
        for other in self.sessions:
            if other.id == session.id and other.began_s < session.asked_s and other.first >= session.first:
                self.broken.append(
                    f"epoch fell: {session.name} has {session.first}, {other.name} had {other.first} before it"
                )
        self.sessions.append(session)

    def has_epoch(self, session: Session, producer_id: int, epoch: int) -> int:
        """An answer said so. Nobody else ever has the same one, and the id keeps its producer id, unless its epochs
        were used up. Returns which of the producer ids of the id it is."""
        owner = self._epochs.setdefault((producer_id, epoch), session.name)
        if owner != session.name:
            self.broken.append(f"one epoch, two producers: {session.name} and {owner} have {epoch}")
        known = self.producers.setdefault(session.id, [])
        if producer_id not in known:
            known.append(producer_id)
            if len(known) > 1 + (session.id == WORN):
                self.broken.append(f"another producer id: {session.name} has {producer_id}, after {known}")
        return known.index(producer_id)

    def is_fenced(self, transaction: Transaction, now_s: float, code: str, clocks_are_right: bool) -> None:
        """A client got an error that says so. There must be a reason: another producer of the id, or the timeout."""
        session = transaction.session
        self.fenced += 1
        mine = session.ask
        is_replaced = mine is None or any(each.may_follow(mine) for each in self._inits[session.id])
        is_old = now_s - transaction.began_s >= session.timeout_s
        if not is_replaced and not is_old and clocks_are_right:
            self.broken.append(f"fenced for no reason: {session.name} got {code}")

    def replaced_s(self, session: Session) -> float:
        """When a newer producer of the id was answered: from then on this one changes nothing."""
        newer = [
            other.began_s for other in self.sessions if other.id == session.id and other.first > session.first
        ]
        return min(newer, default=float("inf"))

    # -- readers and offsets --------------------------------------------------------------------------

    def shows(self, place: Place, offset: int, value: bytes) -> None:
        """To a reader of committed data."""
        self.shown[place, offset] = value
        found = self.written.get(value)
        if found is not None and not found[0].may_commit:
            self.broken.append(
                f"aborted read: {place[0]}/{place[1]} {offset} is {value!r}, nobody commits it"
            )

    def has_offset(self, position: Position, offset: int, floor: int) -> None:
        """A fetch of stable offsets said so. `floor`: of the moment when it was sent."""
        group, partition = position
        if offset in self.maybe.get(position, ()):
            return
        if offset < floor:
            self.broken.append(f"lost commit: {group} is at {partition}/{offset}, {floor} was committed")
        may_be = offset == -1 or any(
            each.may_commit and each.offsets.get(position) == offset for each in self.transactions
        )
        if not may_be and offset not in self.plain.get(position, ()):
            self.broken.append(f"aborted offset: {group} is at {partition}/{offset}, nobody commits it")

    def ends(self, transaction: Transaction, outcome: Outcome) -> None:
        transaction.outcome = outcome
        if outcome is Outcome.COMMITTED:
            for position, offset in transaction.offsets.items():
                self.reaches(position, offset)

    def reaches(self, position: Position, offset: int) -> None:
        """It was committed."""
        self.floors[position] = max(offset, self.floors.get(position, -1))
