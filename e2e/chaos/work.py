"""The clients of a run, and what must be true of what they were told.

Producers, plain and idempotent, and a reader of everything (librdkafka); readers that stay behind the end, and members
of groups of both protocols that commit and read back (Kafka's bytes, without a library); programs that read, process
and write exactly once (Java, librdkafka, franz-go, KafkaJS); producers that
commit and abort by chance; a tool that creates topics.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from e2e.chaos.site import PARTITIONS
from e2e.chaos.timeline import Listening, Timeline
from e2e.checkers.history import History
from e2e.harness.aborting import Outcome, Writer, broken
from e2e.harness.behind import ReaderBehind
from e2e.harness.committing import Member, committing_members, living, went_back
from e2e.harness.creating import Creator
from e2e.harness.exactly_once import Copying, copied, copying
from e2e.harness.inside import Inside
from e2e.harness.load import Load, read_everything
from e2e.harness.services import NotYet, until
from e2e.harness.transactional import COMMITTED, read, stable_end

ORDERS: Final = "orders"
COPIED: Final = "copied"
COPIED_PARTITIONS: Final = 2
"""Of it and of each copy."""
WHOLE: Final = "whole"
"""Of the transactions that are committed or aborted by chance."""
WRITERS: Final = 2
GROUPS: Final = 4
READERS: Final = 3
COPIED_PER_S: Final = 30
ORDERS_PER_S: Final = 200
CREATE_EVERY_S: Final = 3.0
GO_ON_S: Final = 90.0
STABLE_S: Final = 90.0
CREATE_S: Final = 60.0
JOIN_S: Final = 120.0


@dataclass(slots=True)
class Work:
    """`bootstrap`: where clients connect. What they were told is in `timeline` and in the fields."""

    bootstrap: str
    folder: Path
    seed: int
    copies: Sequence[Copying]
    timeline: Timeline
    began_s: float
    orders: Load = field(init=False)
    copied: Load = field(init=False)
    members: list[Member] = field(default_factory=list)
    readers: list[ReaderBehind] = field(default_factory=list)
    writers: list[Writer] = field(default_factory=list)
    creator: Creator = field(init=False)
    _living: list[Member] = field(default_factory=list)
    _listening: dict[str, Listening] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.orders = Load(
            self.bootstrap,
            ORDERS,
            PARTITIONS,
            History(),
            per_s=ORDERS_PER_S,
            on_ack=partial(self._heard, "write"),
        )
        self.copied = Load(self.bootstrap, COPIED, COPIED_PARTITIONS, History(), per_s=COPIED_PER_S)
        self.creator = Creator(self.bootstrap, "made", pause_s=CREATE_EVERY_S)

    def now_s(self) -> float:
        return time.monotonic() - self.began_s

    def _heard(self, kind: str, client: str, place: int) -> None:
        name = f"{kind} {client}/{place}"
        if name not in self._listening:
            self._listening[name] = Listening(name, self.timeline.silences)
        self._listening[name].heard(self.now_s())

    # -- while it works ----------------------------------------------------------------------------

    @contextmanager
    def clients(self) -> Iterator[None]:
        """In the block all clients work. The producers of ORDERS begin with it and go on after it."""
        for name in ("idempotent0", "idempotent1"):
            self.orders.start(name, idempotent=True)
        self.orders.start("plain0", idempotent=False)
        with ExitStack() as stack:
            self.copied.start("source", idempotent=True)
            stack.callback(self.copied.stop)
            self.goes_on()
            stack.enter_context(copying(self.bootstrap, COPIED, self.copies, self.folder))
            self.readers = [
                ReaderBehind(self.bootstrap, ORDERS, PARTITIONS, self.seed + number)
                for number in range(READERS)
            ]
            for reader in self.readers:
                reader.start()
                stack.callback(reader.stop)
            stack.enter_context(self._writing())
            self.members = committing_members(self.bootstrap, GROUPS)
            for member in self.members:
                member.on_ack = partial(self._heard, "commit", member.name, member.index)
            stack.enter_context(_committing(self.members))
            self._living = self.members
            stack.enter_context(self.creator.working())
            yield
            self._living = []
            self.copied.stop()
            self.timeline.violations += copied(self.bootstrap, COPIED, COPIED_PARTITIONS, self.copies)

    def create_topics(self) -> None:
        topics = {ORDERS: PARTITIONS, WHOLE: PARTITIONS, COPIED: COPIED_PARTITIONS}
        topics |= {copy_of(copy): COPIED_PARTITIONS for copy in self.copies}
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        made = admin.create_topics([NewTopic(name, count) for name, count in topics.items()])
        for name in topics:
            made[name].result(CREATE_S)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        over = threading.Event()
        self.writers = [Writer(self.bootstrap, WHOLE, PARTITIONS, number, over) for number in range(WRITERS)]
        with ThreadPoolExecutor(WRITERS) as threads:
            running = [threads.submit(writer.run) for writer in self.writers]
            try:
                yield
            finally:
                over.set()
        for each in running:
            each.result()

    def counts(self) -> dict[str, int]:
        return {
            "records acknowledged": self.orders.acknowledged() + self.copied.acknowledged(),
            "records read behind the end": sum(reader.records for reader in self.readers),
            "transactions decided": sum(
                outcome is not Outcome.UNKNOWN
                for writer in self.writers
                for outcome, _ in list(writer.outcomes.values())
            ),
            "offsets committed": sum(member.acknowledged for member in self.members),
            "topics created": len(self.creator.created),
        }

    def goes_on(self) -> None:
        """Until every producer, and every member that lives, has an acknowledgement that it had not before."""
        writes, commits = self.orders.going_on(), [member.acknowledged for member in self._living]
        pairs = [(name, part) for name in self.orders.names() for part in range(PARTITIONS)]

        def stuck() -> list[str]:
            assert self.orders.errors == [], self.orders.errors
            now = self.orders.going_on()
            return [
                *(
                    f"{name}/{part}"
                    for name, part in pairs
                    if now.get((name, part), 0) <= writes.get((name, part), 0)
                ),
                *(
                    f"{member.name}: {member.errors[-3:]}"
                    for member, before in zip(self._living, commits, strict=True)
                    if member.acknowledged <= before
                ),
            ]

        try:
            until("all clients go on", lambda: not stuck(), GO_ON_S)
        except NotYet as late:
            raise NotYet(f"{late}; those that do not: {stuck()}") from None

    # -- the verdict -------------------------------------------------------------------------------

    def judge_others(self, inside: Inside) -> None:
        """After the block of `clients`."""
        found = self.timeline.violations
        found += [law for reader in self.readers for law in reader.violations]
        found += asyncio.run(went_back(self.members))
        found += self.copied.errors
        found += stays_open(self.bootstrap, inside, [WHOLE, *map(copy_of, self.copies)])
        seen = Counter(
            value for part in range(PARTITIONS) for _, value in read(self.bootstrap, WHOLE, COMMITTED, part)
        )
        found += broken(self.writers, seen)

    def judge_orders(self) -> None:
        """Ends their producers; each record that was acknowledged is there."""
        self.orders.stop()
        history = self.orders.history
        unknown = len(history.sent) - len(history.acknowledged)
        found = self.timeline.violations
        found += self.orders.errors
        found += [f"{unknown} records have no acknowledgement"] if unknown else []
        found += history.violations(read_everything(self.bootstrap, ORDERS, PARTITIONS))


def copy_of(copying: Copying) -> str:
    """The topic of a program that copies."""
    return f"{COPIED}-{copying.name}"


def stays_open(bootstrap: str, inside: Inside, topics: Sequence[str]) -> list[str]:
    """A sentence for each partition in which a transaction stays open."""
    found = []
    for topic in topics:
        for part, head in inside.heads(topic).items():
            try:
                until(
                    f"{topic}/{part} is stable to {head.next}",
                    partial(_is_stable, bootstrap, topic, part, head.next),
                    STABLE_S,
                )
            except NotYet as late:
                found.append(f"open transaction: {late}")
    return found


def _is_stable(bootstrap: str, topic: str, part: int, end: int) -> bool:
    return stable_end(bootstrap, topic, part) >= end


@contextmanager
def _committing(members: list[Member]) -> Iterator[None]:
    """The members live in a loop and a thread of their own."""
    over = threading.Event()
    failed: list[BaseException] = []

    async def live() -> None:
        async with living(members):
            await asyncio.to_thread(over.wait)

    def run() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:  # noqa: BLE001 -- raised where the block ends
            failed.append(error)

    thread = threading.Thread(target=run, name="members", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(JOIN_S)
    assert not thread.is_alive(), "the members do not come to an end"
    if failed:
        raise failed[0]
