"""All clients of transactions of a run, and the judgement of what they did."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Final

from tools.simulator.clients import Client, create, end_of
from tools.simulator.transactions.clients import (
    COPIES,
    COPIES_PARTITIONS,
    LEDGER,
    LEDGER_PARTITIONS,
    Copier,
    Writer,
    stable_offsets,
)
from tools.simulator.transactions.history import Book, Outcome, Place
from tools.simulator.transactions.laws import Entry, Judgement
from tools.simulator.transactions.reader import COMMITTED, UNCOMMITTED, TransactionReader
from tools.simulator.world import World

TOPICS: Final = {LEDGER: LEDGER_PARTITIONS, COPIES: COPIES_PARTITIONS}
PLACES: Final = [(topic, each) for topic, count in TOPICS.items() for each in range(count)]
IDS: Final = (("payments", Writer), ("refunds", Writer), ("copies", Copier))
CLIENTS_OF_ID: Final = 2
HANGS_S: Final = 240.0
"""Longer than the longest timeout of a transaction and what wrong clocks add to it."""


@dataclass(eq=False)
class Cast:
    world: World
    client: Callable[[str], Client]
    book: Book = field(default_factory=Book)

    async def prepare(self, client: Client) -> None:
        for topic, partitions in TOPICS.items():
            await create(client, topic, partitions)

    def parts(self) -> list[tuple[str, Coroutine[object, object, None]]]:
        """By the name of the client."""
        found = []
        for id_, kind in IDS:
            for number in range(CLIENTS_OF_ID):
                name = f"{id_}-{number}"
                worker = kind(self.client(name), self.book, id_, 2 * self.world.pace_s, self.world.skewed)
                found.append((name, worker.run()))
        for topic, partition in PLACES:
            for isolation in (UNCOMMITTED, COMMITTED) if topic == LEDGER else (COMMITTED,):
                name = f"reader-of-{topic}-{partition}-{isolation}"
                found.append((name, self._reader(self.client(name), (topic, partition), isolation).run()))
        return found

    def _reader(self, client: Client, place: Place, isolation: int, keeps: bool = False) -> TransactionReader:
        topic, partition = place
        records = self.book.records(topic)
        return TransactionReader(client, records, partition, isolation=isolation, book=self.book, keeps=keeps)

    async def judge(self, client: Client) -> None:
        """Reads everything, as readers of both isolation levels."""
        if not await self._is_stable(client):
            return
        logs: dict[Place, list[Entry]] = {}
        view: dict[tuple[Place, int], bytes] = {}
        for place in PLACES:
            logs[place] = (await self._whole(client, place, UNCOMMITTED)).log
            for offset, value in (await self._whole(client, place, COMMITTED)).took:
                view[place, offset] = value
        judgement = Judgement(self.book, logs)
        reached = await stable_offsets(client, self.book)
        self.book.broken += judgement.judge()
        self.book.broken += judgement.judge_view(view)
        self.book.broken += judgement.judge_copies(LEDGER, COPIES, reached)

    async def _is_stable(self, client: Client) -> bool:
        """Whether every transaction ends, as its client or its timeout decides."""
        until_s = self.world.loop.time() + HANGS_S
        for topic, partition in PLACES:
            while True:
                stable = await end_of(client, topic, partition, COMMITTED)
                end = await end_of(client, topic, partition, UNCOMMITTED)
                if stable == end:
                    break
                if self.world.loop.time() > until_s:
                    self.book.broken.append(f"hanging: {topic}/{partition} is stable to {stable} of {end}")
                    return False
                await client.rest()
        return True

    async def _whole(self, client: Client, place: Place, isolation: int) -> TransactionReader:
        reader = self._reader(client, place, isolation, keeps=True)
        end = await end_of(client, *place)
        while end is not None and reader.offset < end:
            if not await reader.step():
                await client.rest()
        return reader

    def told(self) -> str:
        book = self.book
        return (
            f"{len(book.transactions)} transactions: {book.count(Outcome.COMMITTED)} committed, "
            f"{book.count(Outcome.ABORTED)} aborted; {len(book.sessions)} sessions, {book.fenced} fenced; "
            f"{len(book.shown)} records read as committed, {len(book.hidden)} as aborted"
        )
