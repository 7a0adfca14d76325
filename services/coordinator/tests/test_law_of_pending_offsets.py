"""Law T9: pending offsets become the group's exactly if their transaction was committed, and never replace a newer
commit; whichever coordinator dies, pauses or is replaced, and however often an end comes.

Two coordinators on one etcd. Producers put offsets, their transactions end, and a plain consumer commits beside them,
in an order drawn from a seed. The next transaction of a producer may put offsets while the end of its last one is on
its way: the answer to its question brings the end. Requests are repeated until they succeed. A plain model says what
the group has.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.coordinator.slots import Held
from kafscale.coordinator.transactions.model import ProducerEpoch
from kafscale.rpc.v1.transactions_pb2 import EndRequest, ParticipantSet, TransactionEnd
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown, UnknownKind
from kafscale.storage.groups import CommittedOffset
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.slots import slot_of
from kafscale.wire.errors import ErrorCode

from services.coordinator.tests.shell_harness import Coordinator, make_topic, until

GROUP, PRODUCERS, PARTITIONS, STEPS = "g", (7, 8), 80, 50
LOST = EtcdUnknown(UnknownKind.TIMEOUT, "no answer")


@dataclass
class Producer:
    """`closing`: the end that is on its way. `ending`: what is pending of that transaction."""

    pid: int
    number: int = 1
    pending: dict[int, int] = field(default_factory=dict)
    closing: TransactionEnd | None = None
    ending: dict[int, int] = field(default_factory=dict)
    past: list[TransactionEnd] = field(default_factory=list)

    def lose(self, offsets: dict[int, int]) -> None:
        """These are newer than what is pending."""
        self.pending = {at: each for at, each in self.pending.items() if at not in offsets}
        self.ending = {at: each for at, each in self.ending.items() if at not in offsets}


class World:
    def __init__(self, etcd: EtcdClient, keys: Keyspace, topic_id: TopicId, seed: int) -> None:
        self.etcd, self.keys, self.topic_id, self.random = etcd, keys, topic_id, random.Random(seed)
        self.alive: list[Coordinator] = []
        self.nodes = 0
        self.next = 0
        self.producers = [Producer(pid) for pid in PRODUCERS]
        self.expected: dict[int, int] = {}
        self.moved = 0
        self.ended_first = 0

    async def come(self) -> None:
        self.nodes += 1
        self.alive.append(await Coordinator(self.etcd, self.keys, self.nodes).start())

    async def owner(self) -> Coordinator:
        def found() -> Coordinator | None:
            return next((one for one in self.alive if slot_of(GROUP) in one.slots), None)

        await until(lambda: found() is not None)
        one = found()
        assert one is not None
        if self.random.random() < 0.2:
            self.random.choice((one.door.before, one.door.after)).append(LOST)
        return one

    def offsets(self) -> dict[int, int]:
        """A few, or more than one transaction moves; always new ones."""
        count = self.random.choice((1, 2, PARTITIONS))
        self.next += 1
        return dict.fromkeys(self.random.sample(range(PARTITIONS), count), self.next)

    def stored(self, offsets: dict[int, int]) -> dict[tuple[TopicId, int], CommittedOffset]:
        return {
            (self.topic_id, where): CommittedOffset(offset=offset, commit_ms=0)
            for where, offset in offsets.items()
        }

    async def until_done(self, write: Callable[[Coordinator, Held], Awaitable[ErrorCode]]) -> None:
        while True:
            one = await self.owner()
            try:
                error = await write(one, one.parts.groups.slot(GROUP))
            except GroupFailed as failed:
                error = failed.error
            if error is ErrorCode.NONE:
                return
            assert error is ErrorCode.NOT_COORDINATOR

    async def put(self) -> None:
        closing_ones = [each for each in self.producers if each.closing is not None]
        producer, offsets = self.random.choice(closing_ones or self.producers), self.offsets()
        who, stored, closing = ProducerEpoch(producer.pid, 0), self.stored(offsets), producer.closing

        async def write(one: Coordinator, held: Held) -> ErrorCode:
            if closing is not None:
                await one.parts.transaction_offsets.end_first(held, GROUP, closing)
            return await one.parts.transaction_offsets.put(held, GROUP, who, producer.number, stored)

        await self.until_done(write)
        if closing is not None:
            self.ended_first += 1
            self.has_ended(producer)
        producer.pending.update(offsets)

    async def commit(self) -> None:
        offsets = self.offsets()
        stored = self.stored(offsets)

        async def write(one: Coordinator, held: Held) -> ErrorCode:
            return await one.parts.commits.write(held, GROUP, stored)

        await self.until_done(write)
        self.expected.update(offsets)
        for producer in self.producers:
            producer.lose(offsets)

    async def end(self) -> None:
        producer, commit = self.random.choice(self.producers), self.random.random() < 0.7
        await self.end_is_done(producer)
        participants = ParticipantSet(groups=[GROUP])
        producer.closing = TransactionEnd(
            producer_id=producer.pid, number=producer.number, commit=commit, participants=participants
        )
        producer.past.append(producer.closing)
        producer.number, producer.pending, producer.ending = producer.number + 1, {}, producer.pending
        if self.random.random() < 0.3:
            await self.end_is_done(producer)

    async def end_is_done(self, producer: Producer) -> None:
        if producer.closing is not None:
            await self.carry_out(producer.closing, crashes=self.random.random() < 0.3)
            self.has_ended(producer)

    def has_ended(self, producer: Producer) -> None:
        ended, moved = producer.closing, producer.ending
        producer.closing, producer.ending = None, {}
        if ended is not None and ended.commit:
            self.expected.update(moved)
            self.moved += len(moved)
            for other in self.producers:
                other.lose(moved)

    async def end_again(self) -> None:
        """Of any transaction before."""
        past = [(producer, ended) for producer in self.producers for ended in producer.past]
        if past:
            producer, ended = self.random.choice(past)
            await self.carry_out(ended)
            if ended is producer.closing:
                self.has_ended(producer)

    async def carry_out(self, ended: TransactionEnd, *, crashes: bool = False) -> None:
        """Until it is confirmed."""
        while True:
            one = await self.owner()
            if crashes:
                crashes = False
                one.door.room = self.random.randrange(3)
                ending = asyncio.ensure_future(one.parts.group_ends.end(EndRequest(ends=[ended])))
                await asyncio.wait((ending,), timeout=0.05)
                ending.cancel()
                await self.replace(one)
            elif (await one.parts.group_ends.end(EndRequest(ends=[ended]))).done:
                return

    async def leave(self) -> None:
        one = await self.owner()
        await one.drain()
        await self.replace(one)

    async def pause(self) -> None:
        """A zombie confirms no end."""
        one = await self.owner()
        self.alive.remove(one)
        await one.lease_ends()
        await self.come()
        await self.put()
        past = [ended for producer in self.producers for ended in producer.past]
        if past:
            reply = await one.parts.group_ends.end(EndRequest(ends=[past[-1]]))
            assert not reply.done or slot_of(GROUP) in one.slots
        await one.die()

    async def replace(self, one: Coordinator) -> None:
        await one.die()
        self.alive.remove(one)
        await one.lease_ends()
        await self.come()

    async def read(self) -> None:
        if any(producer.closing is not None for producer in self.producers):
            return
        one = await self.owner()
        try:
            found = await one.parts.commits.read(one.parts.groups.slot(GROUP), GROUP)
        except GroupFailed:
            return
        if not isinstance(found, ErrorCode):
            assert {where[1]: offset.offset for where, offset in found.items()} == self.expected


@pytest.mark.parametrize("seed", range(3))
async def test_the_group_has_what_was_committed_and_nothing_else(
    etcd: EtcdClient, keyspace: Keyspace, seed: int
) -> None:
    world = World(etcd, keyspace, await make_topic(etcd, keyspace), seed)
    await world.come()
    await world.come()
    steps = (world.put, world.commit, world.end, world.end_again, world.read, world.leave, world.pause)
    for _ in range(STEPS):
        (step,) = world.random.choices(steps, (20, 10, 10, 5, 10, 1, 1))
        await step()
    for producer in world.producers:
        await world.end_is_done(producer)
    await world.read()
    assert min(world.moved, world.ended_first) > 0
    for one in world.alive:
        await one.die()
