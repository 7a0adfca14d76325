"""The coordinator of the world with the real shell: `TransactionalIds` and its actors, on the world's etcd and clock.

The id is at rest and at work in turn, and etcd refuses some writes. It needs a running loop, and gives it no turn: so
timers never fire, and the world says when time has passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from kafscale.coordinator.slots import Held
from kafscale.coordinator.transactions.actor import IdActor
from kafscale.coordinator.transactions.model import (
    Answer,
    Ended,
    Event,
    Instant,
    Proven,
    Request,
    Rules,
    Tick,
    Token,
    Transactions,
)
from kafscale.coordinator.transactions.persisted import restored
from kafscale.coordinator.transactions.registry import Surroundings, TransactionalIds
from kafscale.runtime.committer import Answer as Settlement
from kafscale.runtime.committer import Refused, Settled
from kafscale.storage.etcd.client import Txn
from kafscale.storage.keys import SlotId
from kafscale.storage.slots import Slot
from kafscale.storage.transactions import ClosingTransaction
from transaction_parts import ID_SLOT, KEYS, NAME, RECORD, Coordinator, Etcd
from transaction_world import World

OTHER_SLOT = SlotId(63)
REFUSES_EACH = 5
"""etcd refuses the first try of a write now and then."""


@dataclass
class Submitted:
    txn: Txn
    done: Callable[[Settlement], None]
    tries: int = 0


class Ids(TransactionalIds):
    """Proofs wait for the world."""

    def __init__(self, around: Surroundings, rules: Rules) -> None:
        self.asked: list[tuple[IdActor, int]] = []
        super().__init__(around, rules)

    def _prove(self, actor: IdActor, ask: int) -> None:
        self.asked.append((actor, ask))


class ShellCoordinator(Coordinator):
    def __init__(self, etcd: Etcd, epoch: int, now: Instant, rules: Rules) -> None:
        self.etcd, self.rules, self.now, self.epoch = etcd, rules, now, epoch
        self.claim = etcd.claim(ID_SLOT)
        self.held = Held(ID_SLOT, Slot(epoch=epoch), self.claim, loaded=True)
        self.submitted: Submitted | None = None
        self.answers: dict[Token, tuple[asyncio.Future[Answer], Callable[[Answer], None]]] = {}
        self.tokens = 0
        self.is_over = False
        self.closings: dict[str, ClosingTransaction] = {}
        clock = SimpleNamespace(now_ms=lambda: self.now.mono_ms, wall_ms=lambda: self.now.wall_ms)
        unused = cast("Any", None)
        self.ids = Ids(
            Surroundings(
                keyspace=KEYS,
                committer=cast("Any", self),
                clock=cast("Any", clock),
                space=unused,
                proofs=unused,
                held=lambda _slot_id: None if self.is_over else self.held,
                fenced=lambda _held: self.die(),
                is_fresh=lambda: True,
                draw=unused,
                closing=self._closing,
                begin=unused,
            ),
            rules,
        )
        kv = etcd.kv(RECORD)
        for _ in self.ids.load(self.held, () if kv is None else (kv,)):
            pass

    def _closing(self, name: str, closing: ClosingTransaction | None) -> None:
        self.closings.pop(name, None)
        if closing is not None:
            self.closings[name] = closing

    # -- as the world drives it -------------------------------------------------------------------

    @property
    def waiting(self) -> Any:
        return self.answers

    @property
    def write(self) -> Any:
        return self.submitted

    @property
    def closing(self) -> ClosingTransaction | None:
        return self.closings.get(NAME)

    @property
    def machine(self) -> Transactions:
        actor = self.ids._actors.get(ID_SLOT, {}).get(NAME)
        if actor is not None:
            return actor.transactions
        return restored(NAME, self.epoch, self.etcd.record(), self.now, self.rules)

    def ask(
        self, request_of: Callable[[Token], Request], hear: Callable[[Answer], None], now: Instant
    ) -> None:
        if self.is_over:
            return
        self.now = now
        self.tokens += 1
        self.answers[Token(self.tokens)] = self.ids._actor(NAME).ask(request_of), hear
        self.hear()

    def tell(self, event: Event, now: Instant) -> None:
        if self.is_over:
            return
        self.now = now
        actor = self.ids._actors[ID_SLOT].get(NAME)
        if isinstance(event, Ended):
            self.ids.ended(NAME, event)
        elif isinstance(event, Tick) and actor is not None:
            actor.tell(event)
        self.hear()

    def submit(self, txn: Txn, done: Callable[[Settlement], None], *, key: bytes) -> None:
        assert self.submitted is None, "one write of an id at a time"
        assert key == RECORD
        self.submitted = Submitted(txn, done)

    def send(self, now: Instant, *, answered: bool) -> None:
        found = self.submitted
        if found is None or self.is_over:
            return
        self.now = now
        if found.tries == 0 and self.etcd.memory.revision % REFUSES_EACH == 0 and answered:
            self.etcd.claim(OTHER_SLOT)  # so that the next one is taken
            self.submitted = None
            found.done(Refused(reason="no right"))
            self.hear()
            return
        result = self.etcd.txn(found.txn)
        found.tries += 1
        if answered:
            self.submitted = None
            found.done(Settled(result=result, revision=result.revision, ambiguous=found.tries > 1))
            self.hear()

    def prove(self, now: Instant) -> None:
        if self.is_over or not self.ids.asked:
            return
        self.now = now
        if self.etcd.revision(KEYS.slot_claim(ID_SLOT)) != self.claim:
            self.die()
            return
        actor, ask = self.ids.asked.pop(0)
        actor.tell(Proven(ask=ask))
        self.hear()

    def hear(self) -> None:
        for token, (answer, hear) in list(self.answers.items()):
            if answer.done() and self.answers.pop(token, None) is not None:
                hear(answer.result())

    def die(self) -> None:
        self.is_over = True
        self.ids.lose(ID_SLOT)
        self.hear()


class ShellWorld(World):
    coordinator = ShellCoordinator
