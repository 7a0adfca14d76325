"""A transactional id as a function: step · next_deadline. Pure: no clock, no chance.

The laws (tests/transactions; the numbers are those of docs/protocol/transactions.md):

- T4: each transaction has its own number. T5: epochs never fall, and a fenced producer decides nothing.
- T3, T7: what was decided stays in `closing` until each participant has confirmed the end.
- Every request is answered exactly once, and every park ends.
- Persist, then reply: an answer that says more than "ask again" follows a write of the step that made it, or a proof
  that the slot's claim still holds (`Prove`). A coordinator that has lost its slot and does not know it would otherwise
  vouch for a transaction that is over, and records would be appended to it that nobody ends.

A step applies the event, then expires what is due, then judges the parked requests again. The shell keeps the order:
it writes `state` if it changed (`persisted.must_save`), then releases the actions, then arms one timer. It steps no
event during a write, or writes both together. If etcd refuses the write, it continues with `persisted.restored` of the
last written state, and the requests fail with COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import assert_never

from kafscale.coordinator.transactions.model import (
    Abandon,
    Action,
    Answer,
    Ended,
    EndTxn,
    Event,
    InitProducerId,
    Instant,
    Join,
    NotProven,
    Parked,
    Prove,
    Proven,
    Request,
    Rules,
    Tick,
    Transactions,
    Transition,
    Unproven,
    without_ended,
)
from kafscale.coordinator.transactions.requests import Case, aborted_by_fence, judge, refusal
from kafscale.storage.transactions import NO_EPOCH, Participants, TransactionState
from kafscale.wire.errors import ErrorCode

NEEDS_NO_PROOF = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""The client asks again after them, so they may be wrong."""


def step(transactions: Transactions, event: Event, now: Instant, rules: Rules) -> Transition:
    """Applies one event. A client's mistake is an answer, never an exception."""
    working = _Working.begin(transactions, now, rules)
    unused_ms = None
    match event:
        case InitProducerId() | Join() | EndTxn():
            working.ask(event)
        case Ended():
            working.take_ended(event)
        case Proven():
            working.take_proof(event.ask)
        case NotProven():
            working.take_no_proof(event.ask)
        case Abandon():
            working.abandon(event)
        case Tick():
            unused_ms = event.unused_ms
        case _:
            assert_never(event)
    working.expire(rules.expiration_ms if unused_ms is None else unused_ms)
    working.judge_parked()
    return working.finish()


def next_deadline(transactions: Transactions) -> int | None:
    """When `Tick` is due, in monotonic ms. None: never. After a step it is in the future."""
    due = [parked.deadline_ms for parked in transactions.parked]
    timeout_ms = transactions.timeout_ms if transactions.closing is None else None
    due += [
        each for each in (transactions.save_ms, transactions.expiration_ms, timeout_ms) if each is not None
    ]
    return min(due, default=None)


@dataclass(slots=True)
class _Working:
    """An id during one step. `state` is without the participants that have confirmed the end; `changed`: it differs
    in more than that from what etcd has."""

    before: Transactions
    now: Instant
    rules: Rules
    state: TransactionState | None
    ended: Participants
    parked: list[Parked]
    unproven: list[Unproven]
    changed: bool = False
    answers: list[Answer] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)

    @classmethod
    def begin(cls, transactions: Transactions, now: Instant, rules: Rules) -> _Working:
        stored = transactions.state
        state = None if stored is None else without_ended(stored, transactions.ended)
        parked, unproven = list(transactions.parked), list(transactions.unproven)
        return cls(transactions, now, rules, state, transactions.ended, parked, unproven)

    # -- events ---------------------------------------------------------------------------------

    def ask(self, request: Request) -> None:
        answer = self._judge(request)
        if answer is not None:
            self.answers.append(answer)
        elif len(self.parked) >= self.rules.parked_max:
            self.answers.append(refusal(request, ErrorCode.CONCURRENT_TRANSACTIONS))
        else:
            deadline_ms = self.now.mono_ms + _park_ms(request, self.rules)
            self.parked.append(Parked(request=request, deadline_ms=deadline_ms))

    def take_ended(self, event: Ended) -> None:
        closing = None if self.state is None else self.state.closing
        if self.state is None or closing is None:
            return
        if (closing.producer_id, closing.number) == (event.producer_id, event.number):
            self.ended |= closing.awaited & event.participants
            self.state = without_ended(self.state, event.participants)

    def take_proof(self, ask: int) -> None:
        self.actions += [each.answer for each in self.unproven if each.ask <= ask]
        self.unproven = [each for each in self.unproven if each.ask > ask]

    def take_no_proof(self, ask: int) -> None:
        """Later asks have a read of their own. Earlier ones have had theirs."""
        failed = [each.answer for each in self.unproven if each.ask == ask]
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.actions += [type(answer)(token=answer.token, error=error) for answer in failed]
        self.unproven = [each for each in self.unproven if each.ask != ask]

    def abandon(self, event: Abandon) -> None:
        self.parked = [each for each in self.parked if each.request.token != event.token]
        self.unproven = [each for each in self.unproven if each.answer.token != event.token]

    # -- time -----------------------------------------------------------------------------------

    def expire(self, unused_ms: int) -> None:
        """Aborts the transaction under way after its timeout; deletes a record that was unused for so long."""
        state, now_ms = self.state, self.now.mono_ms
        if state is None or state.closing is not None:
            return
        if state.current is not None:
            if _is_due(self._timeout_ms(state), now_ms):
                case = self._case(state)
                self._become(aborted_by_fence(case, state, last_epoch=NO_EPOCH))
        elif not self.changed and not self.parked and self._is_unused(unused_ms):
            self._become(None)

    def _is_unused(self, for_ms: int) -> bool:
        due_ms = self.before.expiration_ms
        return due_ms is not None and due_ms - self.rules.expiration_ms + for_ms <= self.now.mono_ms

    def judge_parked(self) -> None:
        """In order of arrival, until none can be answered."""
        moved = True
        while moved:
            moved = False
            for each in list(self.parked):
                answer = self._judge(each.request)
                if answer is None and each.deadline_ms <= self.now.mono_ms:
                    answer = refusal(each.request, ErrorCode.CONCURRENT_TRANSACTIONS)
                if answer is not None:
                    self.parked.remove(each)
                    self.answers.append(answer)
                    moved = True

    # -- the end of the step --------------------------------------------------------------------

    def finish(self) -> Transition:
        saved = self.changed or _is_due(self.before.save_ms, self.now.mono_ms)
        state = self.before.state
        if saved:
            wall_ms = self.now.wall_ms
            state = None if self.state is None else replace(self.state, changed_ms=wall_ms)
            self.ended = Participants()
        asks = self._release(saved)
        after = replace(
            self.before,
            state=state,
            ended=self.ended,
            parked=tuple(self.parked),
            unproven=tuple(self.unproven),
            asks=asks,
            began_ms=None if self.state is None else self._began_ms(self.state),
            timeout_ms=None if self.state is None else self._timeout_ms(self.state),
            expiration_ms=self._expiration_ms(saved),
            save_ms=self._save_ms(saved),
        )
        return Transition(transactions=after, actions=tuple(self.actions))

    def _release(self, saved: bool) -> int:
        """Answers follow the write of this step. Without one, those that are final wait for a proof."""
        asks = self.before.asks
        final = [] if saved else [answer for answer in self.answers if answer.error not in NEEDS_NO_PROOF]
        self.actions += [answer for answer in self.answers if answer not in final]
        if final:
            asks += 1
            self.unproven += [Unproven(answer=answer, ask=asks) for answer in final]
            self.actions.append(Prove(ask=asks))
        return asks

    def _judge(self, request: Request) -> Answer | None:
        judgement = judge(self._case(self.state, besides=request), request)
        self._become(judgement.state)
        return judgement.answer

    def _become(self, state: TransactionState | None) -> None:
        if state != self.state:
            self.state = state
            self.changed = True

    def _case(self, state: TransactionState | None, besides: Request | None = None) -> Case:
        waiting = [each.request for each in self.parked if each.request is not besides]
        return Case(
            id=self.before.id,
            coordinator_epoch=self.before.coordinator_epoch,
            state=state,
            init_waits=any(isinstance(request, InitProducerId) for request in waiting),
            began_ms=self.before.began_ms if self._is_the_one_before(state) else None,
            now=self.now,
            rules=self.rules,
        )

    def _is_the_one_before(self, state: TransactionState | None) -> bool:
        """Whether the transaction under way is the one that was under way before the step."""
        before = self.before.state
        if state is None or state.current is None or before is None or before.current is None:
            return False
        return state.number == before.number

    def _began_ms(self, state: TransactionState) -> int | None:
        if self._is_the_one_before(state):
            return self.before.began_ms
        return None if state.current is None else self.now.mono_ms

    def _timeout_ms(self, state: TransactionState) -> int | None:
        """When the transaction under way times out: the same time during its whole life."""
        if self._is_the_one_before(state):
            return self.before.timeout_ms
        return None if state.current is None else self.now.mono_ms + state.timeout_ms

    def _expiration_ms(self, saved: bool) -> int | None:
        if self.state is None or self.state.current is not None or self.state.closing is not None:
            return None
        return self.now.mono_ms + self.rules.expiration_ms if saved else self.before.expiration_ms

    def _save_ms(self, saved: bool) -> int | None:
        if saved or not self.ended:
            return None
        before = self.before.save_ms
        return self.now.mono_ms + self.rules.save_ended_ms if before is None else before


def _is_due(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms


def _park_ms(request: Request, rules: Rules) -> int:
    match request:
        case InitProducerId():
            return rules.init_park_ms
        case Join():
            return rules.join_park_ms
        case EndTxn():
            return rules.end_park_ms
        case _:
            assert_never(request)
