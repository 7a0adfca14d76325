"""All clients of transactions of a run, and the judgement of what they did."""

from __future__ import annotations

from collections.abc import Callable, Container, Coroutine
from dataclasses import dataclass, field
from typing import Final

from kafscale.coordinator.transactions.model import LAST_EPOCH
from kafscale.storage.etcd.client import Put, Txn
from kafscale.storage.keys import Keyspace
from kafscale.storage.slots import slot_of
from kafscale.storage.transactions import Outcome, TransactionState, encode_transaction

from tools.simulator.clients import FETCH_BYTES, Client, create, end_of
from tools.simulator.transactions.clients import (
    COPIES,
    COPIES_PARTITIONS,
    Copier,
    Mixer,
    Writer,
)
from tools.simulator.transactions.history import WORN, Book, Place
from tools.simulator.transactions.laws import Entry, Judgement
from tools.simulator.transactions.offsets import (
    COPIER_GROUP,
    LEDGER,
    LEDGER_PARTITIONS,
    MIXER_GROUP,
    WIDE,
    WIDE_PARTITIONS,
    Observer,
    stable_offsets,
)
from tools.simulator.transactions.reader import COMMITTED, UNCOMMITTED, TransactionReader
from tools.simulator.world import World

TOPICS: Final = {LEDGER: LEDGER_PARTITIONS, COPIES: COPIES_PARTITIONS}
PLACES: Final = [(topic, each) for topic, count in TOPICS.items() for each in range(count)]
KIND: Final = "transactions"
WORKERS: Final = {
    f"{id_}-{number}": (id_, kind)
    for id_, kind, clients in (
        ("payments", Writer, 2),
        (WORN, Writer, 2),
        ("copies", Copier, 2),
        ("mixed", Mixer, 1),
    )
    for number in range(clients)
}
"""Name of the client -> transactional id, and what it does."""
READERS: Final = {
    f"{topic}-reader-{partition}-{isolation}": ((topic, partition), isolation)
    for topic, partition in PLACES
    for isolation in ((UNCOMMITTED, COMMITTED) if topic == LEDGER else (COMMITTED,))
}
OBSERVER: Final = "observer"
NAMES: Final = (*WORKERS, *READERS, OBSERVER)
PACES_S: Final = (0.3, 1.0)
"""Between them is the mean time between two transactions of a client, also in a run whose other clients are faster or
slower."""
ANSWER_BYTES: Final = (1, 3_000, 30_000, FETCH_BYTES)
"""Each reader has one of them."""
GOES_BACK: Final = 0.05
KEYS: Final = Keyspace()
WORN_PRODUCER: Final = 1 << 40
WORN_LEFT_MAX: Final = 12
"""Epochs that are left."""
HANGS_S: Final = 240.0
"""Longer than the longest timeout of a transaction and what wrong clocks add to it."""


@dataclass(eq=False)
class Cast:
    world: World
    pace_s: float
    """Mean time between two requests of a producer."""
    client: Callable[[str], Client]
    book: Book = field(default_factory=Book)

    def __post_init__(self) -> None:
        """Before any process runs: an id that was used for long."""
        epoch = LAST_EPOCH - self.client(WORN).chance.randint(0, WORN_LEFT_MAX)
        state = TransactionState(
            id=WORN,
            producer_id=WORN_PRODUCER,
            epoch=epoch,
            timeout_ms=1_000,
            changed_ms=0,
            last=Outcome.COMMIT,
        )
        key = KEYS.transaction(slot_of(WORN), WORN)
        self.world.etcd.model.txn(Txn(success=(Put(key, encode_transaction(state)),)))
        self.book.producers[WORN] = [WORN_PRODUCER]

    async def prepare(self, client: Client) -> None:
        for topic, partitions in (*TOPICS.items(), (WIDE, WIDE_PARTITIONS)):
            await create(client, topic, partitions)

    def parts(self, without: Container[str]) -> list[tuple[str, Coroutine[object, object, None]]]:
        """By the name of the client."""
        pace_s = min(max(self.pace_s, PACES_S[0]), PACES_S[1])
        found = [
            (name, kind(self.client(name), self.book, id_, pace_s, self.world.skewed).run())
            for name, (id_, kind) in WORKERS.items()
            if name not in without
        ]
        if OBSERVER not in without:
            groups = COPIER_GROUP, MIXER_GROUP
            found.append((OBSERVER, Observer(self.client(OBSERVER), self.book, groups, pace_s).run()))
        return found + [
            (name, self._reader(self.client(name), place, isolation).run())
            for name, (place, isolation) in READERS.items()
            if name not in without
        ]

    def _reader(self, client: Client, place: Place, isolation: int) -> TransactionReader:
        """Its answers may end within a transaction."""
        topic, partition = place
        return TransactionReader(
            client,
            self.book.records(topic),
            partition,
            isolation=isolation,
            bytes_max=client.chance.choice(ANSWER_BYTES),
            goes_back=GOES_BACK,
            book=self.book,
        )

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
        reached = await stable_offsets(client, self.book, COPIER_GROUP)
        await stable_offsets(client, self.book, MIXER_GROUP)
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
        topic, partition = place
        reader = TransactionReader(
            client, self.book.records(topic), partition, isolation=isolation, book=self.book, keeps=True
        )
        end = await end_of(client, *place)
        while end is not None and reader.offset < end:
            if not await reader.step():
                await client.rest()
        return reader
