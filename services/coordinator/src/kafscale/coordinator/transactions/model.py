"""The events, the state and the actions of a transactional id: values only.

Every request has a *token*, an opaque number of the shell. Exactly one answer carries it, in the same step or in a
later one. Until then the request is *parked*. Names and rules are Kafka's (TransactionCoordinator, Kafka 4), with one
addition: each transaction of an id has a number, which every participant learns.

TV1 and TV2 are the two protocols of clients: a TV2 client sends EndTxn 5 or later (KIP-890, part 2), and each of its
transactions has an epoch of its own. The version of the request decides, each time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple, NewType

from kafscale.storage.transactions import ClosingTransaction, Outcome, Participants, TransactionState
from kafscale.wire.errors import ErrorCode

Token = NewType("Token", int)
LAST_EPOCH: Final = 32_766
"""The last epoch that a producer gets. 32,767 is only for a marker, and for a fence that no producer learns."""
NO_TRANSACTION: Final = 0
"""Numbers begin at 1."""


class Instant(NamedTuple):
    """The time of an event. Deadlines use `mono_ms`; stored times use `wall_ms`."""

    mono_ms: int
    wall_ms: int


class Phase(Enum):
    """The state of an id in Kafka's words, as tools show it."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings and bounds. The same id may be stepped with other rules at any time."""

    expiration_ms: int = 7 * 24 * 3_600_000  # transactional.id.expiration.ms
    participants_max: int = 10_000
    participants_bytes_max: int = 500_000
    """Of one transaction in the record. A record may have two, and etcd takes requests of 1.5 MiB. So a decision always
    fits."""
    parked_max: int = 100
    init_park_ms: int = 1_000
    join_park_ms: int = 200
    end_park_ms: int = 500
    save_ended_ms: int = 1_000  # how long confirmed ends may be in memory alone


# --- events -----------------------------------------------------------------------------


class ProducerEpoch(NamedTuple):
    """A producer id and an epoch of it."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """`fresh_id`: an unused producer id, which the id gets if it is new or has used all epochs. `expected`: what the
    client believes to be (v3 and later, KIP-360)."""

    token: Token
    fresh_id: int
    timeout_ms: int
    expected: ProducerEpoch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A partition owner or a group's coordinator asks whether `participants` belong to the transaction of the producer.
    With `add` they join it, and the first of them begins it. AddPartitionsToTxn and AddOffsetsToTxn are joins too."""

    token: Token
    producer: ProducerEpoch
    participants: Participants
    add: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxn:
    """`tv2`: see the module. `fresh_id`: an unused producer id; the shell draws it if the epoch is LAST_EPOCH.
    `reached_ms`: when the request reached a front door, in monotonic ms of this process (now minus its age)."""

    token: Token
    producer: ProducerEpoch
    commit: bool
    tv2: bool
    reached_ms: int
    fresh_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """These participants have confirmed the end of the transaction. Repeated and late ones change nothing."""

    producer_id: int
    number: int
    participants: Participants


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """The answer to `Prove`: a read that began after it has found the slot's claim unchanged."""

    ask: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotProven:
    """The answer to `Prove`: etcd did not say. (If the claim has changed, the shell ends the machine.)"""

    ask: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandon:
    """The client of `token` has disconnected, or the request's deadline has passed."""

    token: Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed. `unused_ms`: a record that was unused for so long may be deleted; None: as `Rules` say."""

    unused_ms: int | None = None


Request = InitProducerId | Join | EndTxn
Event = Request | Ended | Proven | NotProven | Abandon | Tick


# --- answers and actions ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerAnswer:
    """The answer to InitProducerId and EndTxn. Without an error, `producer` is who the client is from now on."""

    token: Token
    error: ErrorCode = ErrorCode.NONE
    producer: ProducerEpoch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """`ended`: the transaction before, if it still awaits some of those who ask; `awaited` has only these. They carry
    the end out before they use `number`. `began_ms`: when the coordinator heard of the transaction first, in monotonic
    ms; a TV1 TxnOffsetCommit that is older belongs to an earlier one."""

    token: Token
    error: ErrorCode = ErrorCode.NONE
    number: int = NO_TRANSACTION
    began_ms: int | None = None
    ended: ClosingTransaction | None = None


Answer = ProducerAnswer | JoinAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Prove:
    """The shell reads and compares the slot's claim now, and returns `Proven` or `NotProven` with the same number."""

    ask: int


Action = Answer | Prove


# --- state ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """A request that waits until the closing transaction has ended, at most until `deadline_ms`."""

    request: Request
    deadline_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unproven:
    """An answer from memory that waits for the proof `ask`, or for a later one."""

    answer: Answer
    ask: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """One transactional id. `state`: what etcd must have before an answer of the step leaves; None: no record."""

    id: str
    coordinator_epoch: int  # of the slot's claim
    state: TransactionState | None = None
    # the fields below are not persisted
    ended: Participants = (
        Participants()
    )  # of `state.closing`: they have confirmed the end since the last write
    parked: tuple[Parked, ...] = ()  # in order of arrival
    unproven: tuple[Unproven, ...] = ()
    asks: int = 0  # how many proofs were asked for
    began_ms: int | None = None  # when the transaction under way began, or was read from etcd
    timeout_ms: int | None = None  # when it is aborted
    expiration_ms: int | None = (
        None  # when the record is deleted; None while a transaction is under way or closing
    )
    save_ms: int | None = None  # when `ended` is written at the latest

    @property
    def exists(self) -> bool:
        return self.state is not None or bool(self.parked) or bool(self.unproven)

    @property
    def closing(self) -> ClosingTransaction | None:
        """The transaction that is still to be ended somewhere, as this process knows it."""
        return None if self.state is None else without_ended(self.state, self.ended).closing


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """The id after a step. If its state changed, the shell writes it, and the actions follow the write."""

    transactions: Transactions
    actions: tuple[Action, ...] = ()


def without_ended(state: TransactionState, ended: Participants) -> TransactionState:
    """The state without the participants that have confirmed the end, and without `closing` once all have."""
    if state.closing is None or not ended:
        return state
    awaited = state.closing.awaited - ended
    return replace(state, closing=replace(state.closing, awaited=awaited) if awaited else None)


def phase_of(state: TransactionState) -> Phase:
    """`closing` counts only if nothing is under way."""
    if state.current is not None:
        return Phase.ONGOING
    if state.closing is not None:
        return Phase.PREPARE_COMMIT if state.closing.commit else Phase.PREPARE_ABORT
    match state.last:
        case Outcome.NONE:
            return Phase.EMPTY
        case Outcome.COMMIT:
            return Phase.COMPLETE_COMMIT
        case Outcome.ABORT:
            return Phase.COMPLETE_ABORT
