"""Proofs of a slot's claim: a read counts only for those who came before it began, and they share it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from kafscale.coordinator.slots import Held
from kafscale.coordinator.transactions.proofs import Proofs
from kafscale.storage.etcd.client import EtcdUnknown, KeyValue, UnknownKind
from kafscale.storage.keys import Keyspace, SlotId
from kafscale.storage.slots import Slot
from kafscale.wire.errors import ErrorCode

KEYS = Keyspace()
HELD = Held(SlotId(7), Slot(epoch=1), revision=20, loaded=True)
OTHER = Held(SlotId(8), Slot(epoch=1), revision=30, loaded=True)


@dataclass
class Door:
    """etcd's answers: each read waits until the test lets it go. What is there is looked at when it goes."""

    claims: dict[bytes, int] = field(default_factory=dict)
    reads: list[asyncio.Future[None]] = field(default_factory=list)

    async def get(self, key: bytes) -> KeyValue | None:
        gate = asyncio.get_running_loop().create_future()
        self.reads.append(gate)
        revision = self.claims.get(key)
        await gate
        return None if revision is None else KeyValue(key, b"", 1, revision, 1, 0)


@dataclass
class Desk:
    door: Door
    proofs: Proofs
    tasks: list[asyncio.Task[None]]
    lost: list[Held]

    async def ask(self, held: Held = HELD) -> asyncio.Task[ErrorCode]:
        task = asyncio.ensure_future(self.proofs.proven(held))
        await self.turns()
        return task

    async def turns(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def let_go(self, number: int) -> None:
        self.door.reads[number].set_result(None)
        await self.turns()


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    door = Door({KEYS.slot_claim(held.slot_id): held.revision for held in (HELD, OTHER)})
    tasks: list[asyncio.Task[None]] = []
    lost: list[Held] = []
    proofs = Proofs(
        door,  # type: ignore[arg-type]
        KEYS,
        lost.append,
        lambda work: tasks.append(asyncio.ensure_future(work)),
    )
    yield Desk(door, proofs, tasks, lost)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_claim_that_holds_is_proven(desk: Desk) -> None:
    asked = await desk.ask()
    assert not asked.done()
    await desk.let_go(0)
    assert await asked is ErrorCode.NONE
    assert desk.lost == []


async def test_a_read_that_has_begun_proves_nothing_to_those_who_come_later(desk: Desk) -> None:
    first = await desk.ask()
    second = await desk.ask()
    desk.door.claims[KEYS.slot_claim(HELD.slot_id)] += 1  # after the first read has looked
    await desk.let_go(0)
    assert await first is ErrorCode.NONE
    assert not second.done()
    await desk.let_go(1)
    assert await second is ErrorCode.NOT_COORDINATOR
    assert desk.lost == [HELD]


async def test_those_who_wait_share_the_next_read(desk: Desk) -> None:
    first = await desk.ask()
    waiting = [await desk.ask() for _ in range(50)]
    await desk.let_go(0)
    await desk.let_go(1)
    assert {await each for each in (first, *waiting)} == {ErrorCode.NONE}
    assert len(desk.door.reads) == 2


async def test_slots_are_proven_independently(desk: Desk) -> None:
    await desk.ask()
    other = await desk.ask(OTHER)
    await desk.let_go(1)
    assert await other is ErrorCode.NONE


async def test_a_claim_whose_record_is_gone_is_lost(desk: Desk) -> None:
    desk.door.claims.clear()
    asked = await desk.ask()
    await desk.let_go(0)
    assert await asked is ErrorCode.NOT_COORDINATOR


async def test_without_an_answer_of_etcd_the_client_asks_again_and_the_slot_stays(desk: Desk) -> None:
    first, second = await desk.ask(), await desk.ask()
    desk.door.reads[0].set_exception(EtcdUnknown(UnknownKind.TIMEOUT, "no answer"))
    await desk.turns()
    assert await first is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await desk.let_go(1)
    assert await second is ErrorCode.NONE
    assert desk.lost == []


async def test_one_who_leaves_takes_the_proof_from_nobody(desk: Desk) -> None:
    first, second = await desk.ask(), await desk.ask()
    third = await desk.ask()
    second.cancel()
    await desk.let_go(0)
    await desk.let_go(1)
    assert await third is ErrorCode.NONE
    assert await first is ErrorCode.NONE


async def test_nobody_waits_for_a_process_that_ends(desk: Desk) -> None:
    first, second = await desk.ask(), await desk.ask()
    desk.tasks[0].cancel()
    await asyncio.wait((first, second), timeout=5)
    assert first.cancelled()
    assert second.cancelled()
