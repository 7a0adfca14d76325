"""Who uses transactions: writers, and copiers that read committed records and write each exactly once.

A transactional id has two clients that take turns, or meet: each begins a session, which fences the other one, and the
other one goes on until it learns that. A client may also disappear within a transaction. Then its successor ends it, or
its timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tools.simulator.clients import Client
from tools.simulator.transactions.history import Book, Place, Session
from tools.simulator.transactions.offsets import (
    COPIER_GROUP,
    LEDGER,
    LEDGER_PARTITIONS,
    MIXER_GROUP,
    plain_commit,
    stable_offsets,
)
from tools.simulator.transactions.producer import TV1, TV2, Abortable, Fenced, TransactionalProducer
from tools.simulator.transactions.reader import COMMITTED, TransactionReader

COPIES: Final = "copies"
COPIES_PARTITIONS: Final = 2
TIMEOUTS_S: Final = (2.0, 10.0, 60.0)
REST_S: Final = 6.0
"""On average, between two sessions of a client."""
SESSION_TRANSACTIONS_MAX: Final = 25
ABORTED, DISAPPEARS = 0.2, 0.5
"""The share of transactions that their client aborts, and of sessions that end within one."""
COPIED_MAX: Final = 20
MIXED_PARTITIONS: Final = 4
"""In which offsets are committed in both ways."""


@dataclass(eq=False)
class Worker:
    """A client of a transactional id, session after session."""

    client: Client
    book: Book
    id: str
    pace_s: float
    skewed: set[str]
    """Processes whose clocks have been wrong."""
    _sessions: int = 0

    def __post_init__(self) -> None:
        chance = self.client.chance
        self._versions = chance.choice((TV1, TV2))
        self._timeout_s = chance.choice(TIMEOUTS_S)
        self._may_lose_patience = chance.random() < 0.5

    async def run(self) -> None:
        while not self.client.world.stopping:
            producer = self._producer()
            try:
                await producer.begin_session()
                await self._session(producer)
            except Fenced:
                await self._rest(2 * REST_S)
            await self._rest(REST_S)

    def _producer(self) -> TransactionalProducer:
        self._sessions += 1
        session = Session(self.id, f"{self.client.name}#{self._sessions}", self._timeout_s)
        return TransactionalProducer(
            self.client, self.book, session, self._versions, self._may_lose_patience, self._clocks_are_right
        )

    def _clocks_are_right(self) -> bool:
        """Of coordinators, which end a transaction by its timeout also after a change of coordinator."""
        return not any(node.startswith("coordinator") for node in self.skewed)

    async def _session(self, producer: TransactionalProducer) -> None:
        """Raises Fenced."""
        chance = self.client.chance
        left = chance.randint(1, SESSION_TRANSACTIONS_MAX)
        disappears = chance.random() < DISAPPEARS
        await self._begin(producer)
        while not self.client.world.stopping:
            left -= 1
            producer.begin()
            commit = chance.random() >= ABORTED
            try:
                await self._transaction(producer)
                if not left and disappears:
                    return
                await producer.end(commit)
            except Abortable:
                commit = False
                await producer.end(commit)
            await self._ended(commit)
            if not left:
                return
            await asyncio.sleep(chance.expovariate(1 / self.pace_s))

    async def _begin(self, producer: TransactionalProducer) -> None:
        """A session has begun."""

    async def _transaction(self, producer: TransactionalProducer) -> None:
        """What is in a transaction. Each kind of client has its own. Raises Fenced and Abortable."""
        raise NotImplementedError

    async def _ended(self, commit: bool) -> None:
        """A transaction has ended."""

    async def _rest(self, mean_s: float) -> None:
        """Shorter once the world stops."""
        ends_s = self.client.world.loop.time() + self.client.chance.expovariate(1 / mean_s)
        while not self.client.world.stopping and self.client.world.loop.time() < ends_s:
            await self.client.rest()


@dataclass(eq=False)
class Writer(Worker):
    async def _transaction(self, producer: TransactionalProducer) -> None:
        chance = self.client.chance
        for _ in range(chance.choice((1, 1, 2, 4))):
            partitions = chance.sample(range(LEDGER_PARTITIONS), chance.randint(1, LEDGER_PARTITIONS))
            await producer.send({(LEDGER, each): [None] * chance.choice((1, 2, 4, 8)) for each in partitions})
            if chance.random() < 0.1:
                await asyncio.sleep(chance.expovariate(1 / self.pace_s))


@dataclass(eq=False)
class Copier(Worker):
    """Reads from where its group is, and goes back there when a transaction was aborted."""

    _readers: list[TransactionReader] = field(default_factory=list)
    _positions: dict[int, int] = field(default_factory=dict)

    async def _begin(self, producer: TransactionalProducer) -> None:
        self._positions = await stable_offsets(self.client, self.book, COPIER_GROUP)
        records = self.book.records(LEDGER)
        self._readers = [
            TransactionReader(self.client, records, each, max(0, at), COMMITTED, book=self.book, keeps=True)
            for each, at in self._positions.items()
        ]

    async def _transaction(self, producer: TransactionalProducer) -> None:
        found = await self._poll()
        if found:
            await producer.send(found)
            offsets = {each.partition: each.offset for each in self._readers if each.took}
            await producer.commit_offsets(COPIER_GROUP, offsets)

    async def _poll(self) -> Mapping[Place, Sequence[tuple[int, int] | None]]:
        """The sources of the copies, by where they are written to."""
        found: dict[Place, list[tuple[int, int] | None]] = {}
        for reader in self._readers:
            reader.took.clear()
            reader.log.clear()
            if not await reader.step(wait_ms=0):
                await self.client.rest()
            if len(reader.took) > COPIED_MAX:
                del reader.took[COPIED_MAX:]
                reader.offset = reader.took[-1][0] + 1
            place = COPIES, reader.partition % COPIES_PARTITIONS
            sources = [(reader.partition, offset) for offset, _ in reader.took]
            if sources:
                found.setdefault(place, []).extend(sources)
        return found

    async def _ended(self, commit: bool) -> None:
        for reader in self._readers:
            if commit:
                self._positions[reader.partition] = reader.offset
            reader.offset = max(0, self._positions[reader.partition])


@dataclass(eq=False)
class Mixer(Worker):
    """Commits rising offsets, within its transactions and outside of them. The newest one stays: what a transaction
    commits takes the place of older offsets only."""

    _last: int = 0

    async def _transaction(self, producer: TransactionalProducer) -> None:
        chance = self.client.chance
        for _ in range(chance.randint(1, 4)):
            self._last += 1
            partition = chance.randrange(MIXED_PARTITIONS)
            if chance.random() < 0.4:
                await plain_commit(self.client, self.book, MIXER_GROUP, partition, self._last)
                continue
            which = [partition] if chance.random() < 0.6 else range(MIXER_GROUP.partitions)
            if not await producer.commit_offsets(MIXER_GROUP, dict.fromkeys(which, self._last)):
                for each in which:
                    self.book.maybe.setdefault((MIXER_GROUP.name, each), set()).add(self._last)
