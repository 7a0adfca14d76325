"""Law L14: a committed offset survives any crash after its reply; none is accepted from a past claim.

Two coordinators on one etcd, one of which is killed, paused into a zombie, or leaves, again and again, in
an order drawn from a seed, while a client commits rising offsets to whoever has the slot.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown, UnknownKind
from kafscale.storage.groups import CommittedOffset
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.slots import slot_of
from kafscale.wire.errors import ErrorCode

from services.coordinator.tests.shell_harness import Coordinator, until

GROUP = "g"
WHERE = (TopicId(bytes(16)), 0)
STEPS = 40


class World:
    """Both coordinators, and what the one client was told."""

    def __init__(self, etcd: EtcdClient, keys: Keyspace, seed: int) -> None:
        self.etcd, self.keys, self.random = etcd, keys, random.Random(seed)
        self.alive: list[Coordinator] = []
        self.zombies: list[Coordinator] = []
        self.nodes = 0
        self.next = 0
        self.acknowledged = -1

    async def come(self) -> None:
        self.nodes += 1
        self.alive.append(await Coordinator(self.etcd, self.keys, self.nodes).start())

    def owner(self) -> Coordinator | None:
        return next((one for one in self.alive if slot_of(GROUP) in one.slots), None)

    async def commit_to(self, one: Coordinator) -> ErrorCode:
        offset, self.next = self.next, self.next + 1
        try:
            held = one.parts.groups.slot(GROUP)
        except GroupFailed as failed:
            return failed.error
        value = CommittedOffset(offset=offset, commit_ms=0)
        error = await one.parts.commits.write(held, GROUP, {WHERE: value})
        if error is ErrorCode.NONE:
            assert offset > self.acknowledged
            self.acknowledged = offset
        return error

    async def commit(self) -> None:
        owner = self.owner()
        if owner is not None:
            if self.random.random() < 0.3:
                lost = EtcdUnknown(UnknownKind.TIMEOUT, "no answer")
                self.random.choice((owner.door.before, owner.door.after)).append(lost)
            await self.commit_to(owner)

    async def read(self) -> None:
        """By a coordinator that has the slot: what was acknowledged, or what was sent after it."""
        await until(lambda: self.owner() is not None)
        owner = self.owner()
        assert owner is not None
        found = await owner.parts.commits.read(owner.parts.groups.slot(GROUP), GROUP)
        if isinstance(found, ErrorCode):
            return
        offset = found[WHERE].offset if WHERE in found else -1
        assert self.acknowledged <= offset < self.next

    async def crash(self) -> None:
        """With a commit on its way."""
        owner = self.owner() or self.alive[0]
        task = asyncio.ensure_future(self.commit_to(owner))
        await asyncio.sleep(self.random.random() * 0.01)
        await owner.die()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self.gone(owner)

    async def leave(self) -> None:
        owner = self.owner() or self.alive[0]
        task = asyncio.ensure_future(self.commit_to(owner))
        await owner.drain()
        await task
        await owner.die()
        await self.gone(owner)

    async def pause(self) -> None:
        """A zombie: its lease ends, and it knows nothing of it."""
        owner = self.owner()
        if owner is None:
            return
        held = owner.parts.slots.held(slot_of(GROUP))
        assert held is not None
        owner.door.gate.clear()
        late = asyncio.ensure_future(self.commit_to(owner))
        await asyncio.sleep(0)
        await self.gone(owner)
        await until(lambda: self.owner() is not None)
        await self.commit()
        owner.door.gate.set()
        assert await late is ErrorCode.NOT_COORDINATOR
        await owner.die()

    async def gone(self, one: Coordinator) -> None:
        self.alive.remove(one)
        await one.lease_ends()
        await self.come()


@pytest.mark.parametrize("seed", range(3))
async def test_an_acknowledged_offset_survives_and_no_zombie_commits(
    etcd: EtcdClient, keyspace: Keyspace, seed: int
) -> None:
    world = World(etcd, keyspace, seed)
    await world.come()
    await world.come()
    for _ in range(STEPS):
        step = world.random.choices(
            (world.commit, world.read, world.crash, world.leave, world.pause), (20, 10, 2, 2, 2)
        )[0]
        await step()
    await world.read()
    assert world.acknowledged > 0
    for one in world.alive:
        await one.die()
