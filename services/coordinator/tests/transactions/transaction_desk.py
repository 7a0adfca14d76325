"""One transactional id at a desk: every step of every test goes through it, and it judges each step.

It does what the shell does: it keeps what was written, answers `Prove` when the test says so, and holds the open
tokens. Judged in each step: a token is answered once; what is final follows a write or a proof; epochs and numbers
never fall; a closing transaction loses only those that confirmed its end; deadlines are in the future; the state comes
back from its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kafscale.coordinator.transactions.machine import NEEDS_NO_PROOF, next_deadline, step
from kafscale.coordinator.transactions.model import (
    Abandon,
    Answer,
    Ended,
    EndTxn,
    Event,
    InitProducerId,
    Instant,
    Join,
    NotProven,
    ProducerEpoch,
    Prove,
    Proven,
    Rules,
    Tick,
    Token,
    Transactions,
    Transition,
)
from kafscale.coordinator.transactions.persisted import encoded, must_save, restored
from kafscale.storage.keys import TopicId
from kafscale.storage.transactions import Participant, Participants, TransactionState, decode_transaction

NAME = "id"
WALL_MS = 1_000_000_000
P0, P1 = (TopicId(b"t" * 16), 0), (TopicId(b"t" * 16), 1)
TIMEOUT_MS = 60_000


@dataclass
class Desk:
    """`ids`: the next unused producer id."""

    rules: Rules = field(default_factory=Rules)
    state: TransactionState | None = None
    mono_ms: int = 5_000
    ids: int = 1_000
    tokens: int = 0
    open: set[Token] = field(default_factory=set)
    answers: dict[Token, Answer] = field(default_factory=dict)
    proofs: list[int] = field(default_factory=list)
    writes: int = 0
    holds_proofs: bool = False

    def __post_init__(self) -> None:
        self.machine = restored(NAME, 3, self.state, self.now, self.rules)

    @property
    def now(self) -> Instant:
        return Instant(self.mono_ms, WALL_MS + self.mono_ms)

    # -- requests -------------------------------------------------------------------------------

    def token(self) -> Token:
        self.tokens += 1
        self.open.add(Token(self.tokens))
        return Token(self.tokens)

    def init(self, expected: ProducerEpoch | None = None, timeout_ms: int = TIMEOUT_MS) -> Token:
        self.ids += 1
        token = self.token()
        self.step(InitProducerId(token=token, fresh_id=self.ids, timeout_ms=timeout_ms, expected=expected))
        return token

    def join(self, producer: ProducerEpoch, *some: Participant, add: bool = True) -> Token:
        token = self.token()
        self.step(Join(token=token, producer=producer, participants=Participants.of(*some), add=add))
        return token

    def end(self, producer: ProducerEpoch, *, commit: bool, tv2: bool = True, age_ms: int = 0) -> Token:
        self.ids += 1
        token = self.token()
        reached_ms = self.mono_ms - age_ms
        self.step(
            EndTxn(
                token=token,
                producer=producer,
                commit=commit,
                tv2=tv2,
                reached_ms=reached_ms,
                fresh_id=self.ids,
            )
        )
        return token

    def ended(self, *some: Participant, number: int | None = None, producer_id: int | None = None) -> None:
        """These have confirmed the end of what is closing."""
        assert self.machine.state is not None
        closing = self.machine.state.closing
        if closing is not None:
            number = closing.number if number is None else number
            producer_id = closing.producer_id if producer_id is None else producer_id
        assert number is not None
        assert producer_id is not None
        self.step(Ended(producer_id=producer_id, number=number, participants=Participants.of(*some)))

    def wait(self, ms: int) -> None:
        self.mono_ms += ms
        self.step(Tick())

    def restart(self) -> None:
        """Another coordinator claims the slot, and reads what was written."""
        self.open.clear()
        self.proofs.clear()
        epoch = self.machine.coordinator_epoch + 1
        self.machine = restored(NAME, epoch, self.machine.state, self.now, self.rules)

    # -- steps ----------------------------------------------------------------------------------

    def step(self, event: Event) -> Transition:
        before = self.machine
        done = step(before, event, self.now, self.rules)
        self.machine = done.transactions
        saved = must_save(before, self.machine)
        self.writes += saved
        if isinstance(event, Abandon):
            self.open.discard(event.token)
        proven = isinstance(event, Proven)
        for action in done.actions:
            if isinstance(action, Prove):
                self.proofs.append(action.ask)
                continue
            assert action.token in self.open, "a token is answered once"
            self.open.remove(action.token)
            self.answers[action.token] = action
            assert saved or proven or action.error in NEEDS_NO_PROOF, "final, and from unproven memory"
        self._judge(before, event)
        while self.proofs and not self.holds_proofs:
            self.step(Proven(ask=self.proofs.pop(0)))
        return done

    def fail_proofs(self) -> None:
        while self.proofs:
            self.step(NotProven(ask=self.proofs.pop(0)))

    def _judge(self, before: Transactions, event: Event) -> None:
        after = self.machine
        held = {each.request.token for each in after.parked} | {each.answer.token for each in after.unproven}
        assert held == self.open
        due_ms = next_deadline(after)
        assert due_ms is None or due_ms > self.mono_ms
        value = encoded(after)
        assert value is None or decode_transaction(value) == after.state
        if before.state is None or after.state is None:
            return
        if before.state.producer_id == after.state.producer_id:
            assert after.state.epoch >= before.state.epoch
        assert after.state.number >= before.state.number
        old, new = before.closing, after.closing
        if old is not None:
            there = Participants() if new is None or new.number != old.number else new.awaited
            gone = event.participants if isinstance(event, Ended) else Participants()
            assert old.awaited - gone <= there, "an end was dropped before its participant confirmed it"


def started(desk: Desk) -> ProducerEpoch:
    """The producer after InitProducerId."""
    return producer_in(desk, desk.init())


def producer_in(desk: Desk, token: Token) -> ProducerEpoch:
    answer = desk.answers[token]
    producer = getattr(answer, "producer", None)
    assert isinstance(producer, ProducerEpoch), answer
    return producer


def at_epoch(desk: Desk, epoch: int) -> ProducerEpoch:
    """Sets the epoch, which would take many requests otherwise."""
    assert desk.machine.state is not None
    state = replace(desk.machine.state, epoch=epoch)
    desk.machine = replace(desk.machine, state=state)
    return ProducerEpoch(state.producer_id, epoch)
