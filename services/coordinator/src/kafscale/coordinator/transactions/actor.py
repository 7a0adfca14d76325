"""One transactional id that is at work: steps its machine, writes its record, and only then releases the actions.

The laws:

- An answer leaves after the record of its step is written (persist, then reply).
- During a write, events wait in a bounded inbox. They are then stepped together, so many requests cost few writes.
- What is `closing` is passed on after the write that decided it: an end that is sent is a fact.
- If a write is fenced by another claim of the slot, the actor ends, and every waiting request gets NOT_COORDINATOR.
- If etcd refuses a write, nothing was written. Every waiting request fails with a retriable error, and the id returns
  to its last written state. The numbers of proofs go on, so a proof that is still under way vouches for no later
  question.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import structlog
from kafscale.coordinator.slots import Held
from kafscale.coordinator.transactions import machine
from kafscale.coordinator.transactions.model import (
    Abandon,
    Action,
    Answer,
    EndTxn,
    Event,
    InitProducerId,
    Instant,
    Join,
    Parked,
    Prove,
    Request,
    Rules,
    Tick,
    Token,
    Transactions,
    Transition,
)
from kafscale.coordinator.transactions.persisted import encoded, must_save, restored
from kafscale.coordinator.transactions.requests import refusal
from kafscale.runtime.committer import Answer as Settlement
from kafscale.runtime.committer import Committer, Settled
from kafscale.storage.etcd.client import Compare, Delete, Put, Range, Txn
from kafscale.storage.etcd.ops import range_at
from kafscale.storage.keys import Keyspace
from kafscale.storage.slots import slot_fence
from kafscale.storage.transactions import Outcome, TransactionState
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

INBOX_MAX: Final = 10_000


class Decision(NamedTuple):
    """A transaction was decided. `cause`: `tv1` and `tv2` are EndTxn of such a client; else `timeout`, or `fence`,
    which is an InitProducerId."""

    outcome: str
    cause: str


CAUSES: Final = ("tv1", "tv2", "timeout", "fence")
DECISIONS: Final = tuple(Decision(outcome, cause) for outcome in ("commit", "abort") for cause in CAUSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all actors share. The callbacks are those of the registry: `settled` after each step whose record is
    written, `undone` before the step back after a write that was refused, `prove` for a question to etcd, `fenced` for
    a claim that is lost."""

    committer: Committer
    keyspace: Keyspace
    rules: Rules
    now: Callable[[], Instant]
    settled: Callable[[IdActor], None]
    undone: Callable[[IdActor], None]
    prove: Callable[[IdActor, int], None]
    fenced: Callable[[Held], None]
    decided: Callable[[Decision], None]


class IdActor:
    """See the module's laws. `value` and `revision`: the record as etcd has it, None and 0 if there is none."""

    def __init__(
        self,
        name: str,
        held: Held,
        state: TransactionState | None,
        shared: Shared,
        *,
        value: bytes | None = None,
        revision: int = 0,
    ) -> None:
        self.name = name
        self.held = held
        self.value = value
        self.revision = revision
        self._shared = shared
        self.transactions = restored(name, held.slot.epoch, state, shared.now(), shared.rules)
        self._key = shared.keyspace.transaction(held.slot_id, name)
        self._inbox: deque[Event] = deque()
        self._waiting: dict[Token, tuple[Request, asyncio.Future[Answer]]] = {}
        self._tokens = 0
        self._writing = False
        self._ended = False
        self._timer: asyncio.TimerHandle | None = None
        self._arm()

    @property
    def is_quiet(self) -> bool:
        """Nothing is under way: the record alone says all that is known."""
        state = self.transactions.state
        if self._waiting or self._inbox or self._writing:
            return False
        return state is None or (state.current is None and state.closing is None)

    def ask(self, request_of: Callable[[Token], Request]) -> asyncio.Future[Answer]:
        """The answer. Cancelling the future abandons the request."""
        self._tokens += 1
        token = Token(self._tokens)
        request = request_of(token)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self._ended or len(self._inbox) >= INBOX_MAX:
            error = ErrorCode.NOT_COORDINATOR if self._ended else ErrorCode.COORDINATOR_NOT_AVAILABLE
            answer.set_result(refusal(request, error))
            return answer
        self._waiting[token] = request, answer
        self.tell(request)
        if not answer.done():
            answer.add_done_callback(lambda done: self._abandoned(token) if done.cancelled() else None)
        return answer

    def tell(self, event: Event) -> None:
        """Steps an event without an answer."""
        if self._ended:
            return
        self._inbox.append(event)
        if not self._writing:
            self._step_inbox()

    def end(self) -> None:
        """This process no longer coordinates the id, or has no need of an actor. Waiting requests get
        NOT_COORDINATOR."""
        self._ended = True
        self._disarm()
        self._inbox.clear()
        self._refuse_all(ErrorCode.NOT_COORDINATOR)

    def _refuse_all(self, error: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, {}
        for request, answer in waiting.values():
            if not answer.done():
                answer.set_result(refusal(request, error))

    def _abandoned(self, token: Token) -> None:
        if self._waiting.pop(token, None) is not None:
            self.tell(Abandon(token=token))

    # -- steps ----------------------------------------------------------------------------------

    def _step_inbox(self) -> None:
        """Steps the waiting events. What they change is one write."""
        shared, now = self._shared, self._shared.now()
        after, actions, decisions = self.transactions, list[Action](), list[Decision]()
        while self._inbox:
            event = self._inbox.popleft()
            done = machine.step(after, event, now, shared.rules)
            decision = decision_of(after, event, done)
            if decision is not None:
                decisions.append(decision)
            after = done.transactions
            actions += done.actions
        if must_save(self.transactions, after):
            self._write(after, actions, decisions)
        else:
            self._settle(after, actions)

    def _settle(self, after: Transactions, actions: Sequence[Action]) -> None:
        self.transactions = after
        for action in actions:
            if isinstance(action, Prove):
                self._shared.prove(self, action.ask)
                continue
            _, answer = self._waiting.pop(action.token, (None, None))
            if answer is not None and not answer.done():
                answer.set_result(action)
        self._arm()
        self._shared.settled(self)

    def _write(self, after: Transactions, actions: list[Action], decisions: list[Decision]) -> None:
        value = encoded(after)
        shared, held = self._shared, self.held
        txn = Txn(
            compare=(
                slot_fence(shared.keyspace, held.slot_id, held.revision),
                Compare(self._key, "mod", "=", self.revision),
            ),
            success=(Delete(self._key) if value is None else Put(self._key, value),),
            failure=(Range(shared.keyspace.slot_claim(held.slot_id), keys_only=True), Range(self._key)),
        )

        def done(answer: Settlement) -> None:
            self._writing = False
            if self._ended:
                return
            if not isinstance(answer, Settled):
                log.error("record of transactional id refused by etcd", id=self.name, why=answer.reason)
                self._undo()
                return
            revision = self._written(answer, value)
            if revision is None:
                shared.fenced(held)
                return
            self.revision, self.value = revision, value
            for decision in decisions:
                shared.decided(decision)
            self._settle(after, actions)
            if self._inbox:
                self._step_inbox()

        self._writing = True
        shared.committer.submit(txn, done, key=self._key)

    def _written(self, answer: Settled, value: bytes | None) -> int | None:
        """The revision of the record after the write; None if another claim or another writer came first."""
        if answer.result.succeeded:
            return 0 if value is None else answer.revision
        slots, records = range_at(answer.result, 0).kvs, range_at(answer.result, 1).kvs
        if not slots or slots[0].mod_revision != self.held.revision:
            return None
        found = records[0].value if records else None
        if answer.ambiguous and found == value:  # an earlier try of the same bytes was applied
            return records[0].mod_revision if records else 0
        log.error("record of transactional id changed by another writer", id=self.name)
        return None

    def _undo(self) -> None:
        """Returns to the last written state. What waits, and what is in the inbox, fails with a retriable error. Ends
        that were confirmed meanwhile are forgotten as well, and asked for again."""
        known, shared = self.transactions, self._shared
        shared.undone(self)
        self._inbox.clear()
        self._refuse_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        before = restored(self.name, known.coordinator_epoch, known.state, shared.now(), shared.rules)
        self._settle(replace(before, asks=known.asks), ())

    # -- time -----------------------------------------------------------------------------------

    def _arm(self) -> None:
        self._disarm()
        due_ms = machine.next_deadline(self.transactions)
        if due_ms is not None and not self._ended:
            delay_s = max(0, due_ms - self._shared.now().mono_ms) / 1000
            # With an empty context: the timer does not belong to the request that armed it.
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._fired, context=Context())

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fired(self) -> None:
        self._timer = None
        if not self._writing:  # else it is armed again after the write
            self.tell(Tick())


def decision_of(before: Transactions, event: Event, done: Transition) -> Decision | None:
    """What the step has decided, and why."""
    state, after = before.state, done.transactions.state
    if state is None or state.current is None or after is None or after.last is Outcome.NONE:
        return None
    if after.current is not None and after.number == state.number:
        return None
    outcome = "commit" if after.last is Outcome.COMMIT else "abort"
    ended = [
        request
        for request in _requests(before.parked, event)
        if isinstance(request, EndTxn) and any(_succeeds(action, request.token) for action in done.actions)
    ]
    if ended:
        return Decision(outcome, "tv2" if ended[0].tv2 else "tv1")
    fences = any(isinstance(each, InitProducerId) for each in _requests(before.parked, event))
    return Decision(outcome, "fence" if fences else "timeout")


def _requests(parked: Sequence[Parked], event: Event) -> list[Request]:
    waited = [each.request for each in parked]
    return [*waited, event] if isinstance(event, InitProducerId | Join | EndTxn) else waited


def _succeeds(action: Action, token: Token) -> bool:
    return not isinstance(action, Prove) and action.token == token and action.error is ErrorCode.NONE
