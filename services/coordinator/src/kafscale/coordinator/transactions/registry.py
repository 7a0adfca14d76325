"""The transactional ids of this instance, by slot: finds, wakes, creates and drops them.

The laws:

- An id is here exactly while this instance has its slot and has read its record. A request for another id gets
  NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS while the slot is being read.
- An id at work has an actor. An id at rest is kept as the bytes of its record.
- If this version cannot read a record, it does not serve the id and does not change the record. That id alone gets
  COORDINATOR_NOT_AVAILABLE.
- A new id needs room in etcd as a new group does, and a join that adds participants as a member does. Decisions and
  ends are always written.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import structlog
from kafscale.coordinator.slots import Held, bytes_of_value, turns
from kafscale.coordinator.transactions.actor import Decision, IdActor, Shared
from kafscale.coordinator.transactions.model import (
    LAST_EPOCH,
    Ended,
    EndTxn,
    InitProducerId,
    Instant,
    Join,
    JoinAnswer,
    NotProven,
    Phase,
    ProducerAnswer,
    ProducerEpoch,
    Proven,
    Rules,
    Tick,
    Token,
    phase_of,
)
from kafscale.coordinator.transactions.proofs import Proofs
from kafscale.runtime.clock import Clock
from kafscale.runtime.committer import Committer
from kafscale.runtime.etcd_space import EtcdSpace, Use
from kafscale.storage.etcd.client import EtcdError, KeyValue
from kafscale.storage.etcd.swap import TooContended
from kafscale.storage.keys import Keyspace, SlotId
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.slots import slot_of
from kafscale.storage.transactions import (
    ClosingTransaction,
    Participants,
    TransactionState,
    decode_transaction,
)
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

ID_BYTES_MAX: Final = 1_024
"""Of a transactional id, as of a group's."""
IDS_MAX: Final = 50_000
LOOK_EVERY_S: Final = 60.0
EXPIRED_TOGETHER: Final = 1_000
"""So many records are deleted in one look."""
CROWDED: Final = 0.9
UNUSED_MS: Final = 12 * 3_600_000
"""If a coordinator has nearly as many ids as it may have, those that were unused for so long are deleted, the oldest
first: a sink of Flink may take a new id for each checkpoint of each task."""
UNANSWERED: Final = Token(0)
"""Answers that no machine gave have this token."""


def is_legal_id(name: str) -> bool:
    return 0 < len(name.encode()) <= ID_BYTES_MAX


class Resting(NamedTuple):
    """The record of an id that has nothing under way."""

    value: bytes
    revision: int
    changed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the registry needs. `held`: the claim of a slot that is ours. `is_fresh`: whether no other process can
    consider our lease expired. `draw`: an unused producer id. `closing`: hears of each id what it awaits now.
    `begin` owns the tasks."""

    keyspace: Keyspace
    committer: Committer
    clock: Clock
    space: EtcdSpace
    proofs: Proofs
    held: Callable[[SlotId], Held | None]
    fenced: Callable[[Held], None]
    is_fresh: Callable[[], bool]
    draw: Callable[[], Coroutine[Any, Any, int]]
    closing: Callable[[str, ClosingTransaction | None], None]
    begin: Callable[[Coroutine[Any, Any, None]], object]


class TransactionalIds:
    """See the module's laws. They are `Contents` of slots. `run` deletes records that have long been unused.

    Every request is answered; an answer without a machine has the error of the slot.
    """

    def __init__(self, around: Surroundings, rules: Rules, *, ids_max: int = IDS_MAX) -> None:
        self._around = around
        self._rules = rules
        self._ids_max = ids_max
        self._actors: dict[SlotId, dict[str, IdActor]] = {}
        self._resting: dict[SlotId, dict[str, Resting]] = {}
        self._unreadable: dict[SlotId, set[str]] = {}
        self.decisions: Counter[Decision] = Counter()
        self._shared = Shared(
            committer=around.committer,
            keyspace=around.keyspace,
            rules=rules,
            now=self._now,
            settled=self._settled,
            undone=lambda actor: around.closing(actor.name, None),
            prove=self._prove,
            fenced=around.fenced,
            decided=self._decided,
        )

    def _now(self) -> Instant:
        """Of the real clock: the age of a request counts on it, and a paused process may not keep a transaction
        open."""
        clock = self._around.clock
        return Instant(clock.now_ms(), clock.wall_ms())

    # -- slots come and go -----------------------------------------------------------------------

    def prefix(self, slot_id: SlotId) -> bytes:
        return self._around.keyspace.transactions_prefix(slot_id)

    def load(self, held: Held, kvs: Sequence[KeyValue]) -> Iterator[None]:
        self._actors[held.slot_id] = {}
        self._resting[held.slot_id] = {}
        self._unreadable[held.slot_id] = set()
        for some in turns(kvs, bytes_of_value):
            for kv in some:
                self._load(held, kv)
            yield

    def _load(self, held: Held, kv: KeyValue) -> None:
        try:
            _, name = self._around.keyspace.parse_transaction(kv.key)
        except UnreadableValue as error:
            log.error("unknown key of a transactional id", key=repr(kv.key), why=str(error))
            return
        try:
            state = decode_transaction(kv.value)
        except UnreadableValue as error:
            self._unreadable[held.slot_id].add(name)
            log.error("record of transactional id unreadable", id=name, why=str(error))
            return
        if state.current is None and state.closing is None:
            self._rest(held.slot_id, name, state, kv.value, kv.mod_revision)
        else:
            actor = self._wake(held, name, state, kv.value, kv.mod_revision)
            self._around.closing(name, actor.transactions.closing)

    def lose(self, slot_id: SlotId) -> None:
        self._unreadable.pop(slot_id, None)
        self._resting.pop(slot_id, None)
        for actor in self._actors.pop(slot_id, {}).values():
            self._around.closing(actor.name, None)
            actor.end()

    # -- ids -------------------------------------------------------------------------------------

    async def init(self, name: str, *, timeout_ms: int, expected: ProducerEpoch | None) -> ProducerAnswer:
        """InitProducerId. COORDINATOR_NOT_AVAILABLE for a new id if there are too many, or etcd is too full."""
        error = self._refusal(name) or self._room_for_new(name)
        if error:
            return ProducerAnswer(token=UNANSWERED, error=error)
        fresh_id = await self._drawn()
        if isinstance(fresh_id, ErrorCode):
            return ProducerAnswer(token=UNANSWERED, error=fresh_id)
        return await self._ask_producer(
            name,
            lambda token: InitProducerId(
                token=token, fresh_id=fresh_id, timeout_ms=timeout_ms, expected=expected
            ),
        )

    async def join(
        self, name: str, producer: ProducerEpoch, participants: Participants, *, add: bool
    ) -> JoinAnswer:
        """Whether the participants belong to the transaction of the producer; `add`: they join it."""
        error = self._refusal(name) or self._room_to_join(name, participants, add=add)
        if error:
            return JoinAnswer(token=UNANSWERED, error=error)
        answer = await self._actor(name).ask(
            lambda token: Join(token=token, producer=producer, participants=participants, add=add)
        )
        if not isinstance(answer, JoinAnswer):
            raise TypeError(f"{answer} answers no join")
        return answer

    async def end(
        self, name: str, producer: ProducerEpoch, *, commit: bool, tv2: bool, reached_ms: int
    ) -> ProducerAnswer:
        """EndTxn. `reached_ms`: see `model.EndTxn`."""
        error = self._refusal(name)
        if error:
            return ProducerAnswer(token=UNANSWERED, error=error)
        fresh_id: int | None = None
        if producer.epoch == LAST_EPOCH:
            drawn = await self._drawn()
            if isinstance(drawn, ErrorCode):
                return ProducerAnswer(token=UNANSWERED, error=drawn)
            fresh_id = drawn
        return await self._ask_producer(
            name,
            lambda token: EndTxn(
                token=token,
                producer=producer,
                commit=commit,
                tv2=tv2,
                reached_ms=reached_ms,
                fresh_id=fresh_id,
            ),
        )

    async def _ask_producer(
        self, name: str, request_of: Callable[[Token], InitProducerId | EndTxn]
    ) -> ProducerAnswer:
        error = self._refusal(name)  # the slot may have been lost while a producer id was drawn
        if error:
            return ProducerAnswer(token=UNANSWERED, error=error)
        answer = await self._actor(name).ask(request_of)
        if not isinstance(answer, ProducerAnswer):
            raise TypeError(f"{answer} answers no producer")
        return answer

    def ended(self, name: str, event: Ended) -> None:
        """Participants have confirmed an end."""
        actor = self._actors.get(slot_of(name), {}).get(name)
        if actor is not None:
            actor.tell(event)

    async def _drawn(self) -> int | ErrorCode:
        try:
            return await self._around.draw()
        except (EtcdError, TooContended, UnreadableValue) as trouble:
            log.warning("producer id unavailable", reason=str(trouble))
            return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _refusal(self, name: str) -> ErrorCode:
        """Why this instance does not serve the id; NONE if it does."""
        held = self._around.held(slot_of(name))
        if held is None or not self._around.is_fresh():
            return ErrorCode.NOT_COORDINATOR
        if not held.loaded:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if name in self._unreadable[held.slot_id]:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    def _actor(self, name: str) -> IdActor:
        """Of an id that is served. Without a record it lives only as long as a request waits."""
        held = self._around.held(slot_of(name))
        assert held is not None, "the caller has looked"
        actor = self._actors[held.slot_id].get(name)
        if actor is not None:
            return actor
        resting = self._resting[held.slot_id].pop(name, None)
        if resting is None:
            return self._wake(held, name, None, None, 0)
        return self._wake(held, name, decode_transaction(resting.value), resting.value, resting.revision)

    def _wake(
        self, held: Held, name: str, state: TransactionState | None, value: bytes | None, revision: int
    ) -> IdActor:
        actor = IdActor(name, held, state, self._shared, value=value, revision=revision)
        self._actors[held.slot_id][name] = actor
        return actor

    def _settled(self, actor: IdActor) -> None:
        slot_id, name = actor.held.slot_id, actor.name
        if self._actors.get(slot_id, {}).get(name) is not actor:
            return
        self._around.closing(name, actor.transactions.closing)
        if not actor.is_quiet:
            return
        del self._actors[slot_id][name]
        actor.end()
        state = actor.transactions.state
        if state is not None and actor.value is not None:
            self._rest(slot_id, name, state, actor.value, actor.revision)

    def _rest(self, slot_id: SlotId, name: str, state: TransactionState, value: bytes, revision: int) -> None:
        self._resting[slot_id][name] = Resting(value, revision, state.changed_ms)

    # -- bounds ----------------------------------------------------------------------------------

    def _room_for_new(self, name: str) -> ErrorCode:
        if name in self._resting[slot_of(name)] or self._is_at_work(name):
            return ErrorCode.NONE
        if self.count >= self._ids_max or not self._around.space.admits(Use.NEW, 2 * len(name.encode())):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    def _is_at_work(self, name: str) -> bool:
        actor = self._actors[slot_of(name)].get(name)
        return actor is not None and actor.transactions.state is not None

    def _room_to_join(self, name: str, participants: Participants, *, add: bool) -> ErrorCode:
        actor = self._actors[slot_of(name)].get(name)
        state = None if actor is None else actor.transactions.state
        current = Participants() if state is None or state.current is None else state.current
        if not add or participants <= current:
            return ErrorCode.NONE
        admitted = self._around.space.admits(Use.KNOWN, (participants - current).bytes_max)
        return ErrorCode.NONE if admitted else ErrorCode.COORDINATOR_NOT_AVAILABLE

    @property
    def count(self) -> int:
        """Ids in memory, also those that have no record yet."""
        return sum(map(len, self._resting.values())) + sum(map(len, self._actors.values()))

    # -- proofs ----------------------------------------------------------------------------------

    def _prove(self, actor: IdActor, ask: int) -> None:
        self._around.begin(self._proven(actor, ask))

    async def _proven(self, actor: IdActor, ask: int) -> None:
        match await self._around.proofs.proven(actor.held):
            case ErrorCode.NONE:
                actor.tell(Proven(ask=ask))
            case ErrorCode.NOT_COORDINATOR:
                pass  # the slot is lost, and the actor with it
            case _:
                actor.tell(NotProven(ask=ask))

    async def proven_over(self, producer_id: int, number: int) -> tuple[bool, list[SlotId]]:
        """Whether this transaction is neither under way nor closing in the slots that are returned: those that this
        instance has, all of whose ids it can read. Their claims were proven after this call."""
        slots = [slot_id for slot_id, bad in self._unreadable.items() if not bad]
        claims = [held for each in slots if (held := self._around.held(each)) is not None and held.loaded]
        codes = await asyncio.gather(*map(self._around.proofs.proven, claims))
        proven = [held for held, code in zip(claims, codes, strict=True) if code is ErrorCode.NONE]
        still = [held.slot_id for held in proven if self._around.held(held.slot_id) is held]
        return not any(self._knows(slot_id, producer_id, number) for slot_id in still), still

    def _knows(self, slot_id: SlotId, producer_id: int, number: int) -> bool:
        for actor in self._actors[slot_id].values():
            state = actor.transactions.state
            if state is None:
                continue
            if state.current is not None and (state.producer_id, state.number) == (producer_id, number):
                return True
            if state.closing is not None and (
                (state.closing.producer_id, state.closing.number) == (producer_id, number)
            ):
                return True
        return False

    # -- time ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled. Transactions under way time out by timers of their actors."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.expire()

    def expire(self) -> None:
        """Deletes records that were unused for too long, the oldest first, at most EXPIRED_TOGETHER."""
        unused_ms = self._rules.expiration_ms
        if self.count > CROWDED * self._ids_max:
            unused_ms = min(unused_ms, UNUSED_MS)
        before_ms = self._around.clock.wall_ms() - unused_ms
        due = (
            (resting.changed_ms, name)
            for names in self._resting.values()
            for name, resting in names.items()
            if resting.changed_ms <= before_ms
        )
        for _, name in heapq.nsmallest(EXPIRED_TOGETHER, due):
            if self._refusal(name) is ErrorCode.NONE:
                self._actor(name).tell(Tick(unused_ms=unused_ms))

    # -- what tools and metrics show -------------------------------------------------------------

    def _decided(self, decision: Decision) -> None:
        self.decisions[decision] += 1

    def state_of(self, name: str) -> TransactionState | None | ErrorCode:
        """The record of the id as it was written, None if there is none, or why this instance does not serve it."""
        error = self._refusal(name)
        if error:
            return error
        actor = self._actors[slot_of(name)].get(name)
        if actor is not None:
            return actor.transactions.state
        resting = self._resting[slot_of(name)].get(name)
        return None if resting is None else decode_transaction(resting.value)

    async def states(self) -> list[TransactionState]:
        """The records of all ids that this instance serves. Other tasks run while they are decoded."""
        found = [
            actor.transactions.state
            for actors in self._actors.values()
            for actor in actors.values()
            if actor.transactions.state is not None
        ]
        values = [each.value for resting in self._resting.values() for each in resting.values()]
        for some in turns(values, len):
            found += map(decode_transaction, some)
            await asyncio.sleep(0)
        return found

    def unreadable(self) -> Iterator[str]:
        for names in self._unreadable.values():
            yield from names

    def by_phase(self) -> Counter[Phase]:
        """Of the ids at work."""
        return Counter(
            phase_of(actor.transactions.state)
            for actors in self._actors.values()
            for actor in actors.values()
            if actor.transactions.state is not None
        )

    @property
    def unreadable_count(self) -> int:
        return sum(map(len, self._unreadable.values()))
