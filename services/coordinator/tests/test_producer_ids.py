"""Producer ids are never handed out twice, whoever hands them out."""

from __future__ import annotations

import asyncio

import pytest
from kafscale.coordinator.producer_ids import BLOCK_SIZE, IDS_PER_MS, ProducerIdBlocks
from kafscale.runtime.clock import SystemClock
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown, Txn, TxnResult
from kafscale.storage.etcd.errors import UnknownKind
from kafscale.storage.keys import Keyspace
from kafscale.storage.schema import SCHEMA
from kafscale.store.v1.store_pb2 import ProducerIds
from kafscale.testkit.clock import ManualClock

FLOOR = ManualClock().wall_ms() * IDS_PER_MS


async def test_ids_of_two_coordinators_over_several_blocks_are_all_different(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    coordinators = [ProducerIdBlocks(etcd, keyspace, SystemClock()) for _ in range(2)]
    draws = [each.draw() for each in coordinators for _ in range(BLOCK_SIZE + 10)]
    ids = await asyncio.gather(*draws)
    assert len(set(ids)) == len(ids)


async def test_a_restarted_coordinator_leaves_a_gap_and_repeats_nothing(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    first = [await ProducerIdBlocks(etcd, keyspace, ManualClock()).draw() for _ in range(3)]
    assert first == [FLOOR, FLOOR + BLOCK_SIZE, FLOOR + 2 * BLOCK_SIZE]


@pytest.mark.parametrize("after", [None, 5 * BLOCK_SIZE])
async def test_a_counter_that_is_lost_or_set_back_repeats_no_id(
    etcd: EtcdClient, keyspace: Keyspace, after: int | None
) -> None:
    """Etcd may be restored from a backup while producers live. Blocks of a minute lie below the next minute's floor."""
    clock = ManualClock()
    drawn = [await ProducerIdBlocks(etcd, keyspace, clock).draw() for _ in range(50)]
    lives = ProducerIdBlocks(etcd, keyspace, clock)
    drawn.append(await lives.draw())
    if after is None:
        await etcd.delete(keyspace.pid_next())
    else:
        await etcd.put(keyspace.pid_next(), ProducerIds(schema=SCHEMA, next=after).SerializeToString())
    clock.advance(60_000)
    drawn += [await lives.draw() for _ in range(BLOCK_SIZE + 1)]
    drawn += [await ProducerIdBlocks(etcd, keyspace, clock).draw() for _ in range(3)]
    assert len(set(drawn)) == len(drawn)
    assert drawn == sorted(drawn)


async def test_a_coordinator_whose_clock_is_set_back_repeats_none_of_its_ids(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    blocks = ProducerIdBlocks(etcd, keyspace, ManualClock())
    drawn = [await blocks.draw() for _ in range(BLOCK_SIZE)]
    await etcd.delete(keyspace.pid_next())
    blocks._clock = ManualClock(wall_ms=0)
    assert await blocks.draw() > max(drawn)


async def test_ids_never_fall_behind_the_counter_when_the_clock_does(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    first = await ProducerIdBlocks(etcd, keyspace, ManualClock()).draw()
    assert await ProducerIdBlocks(etcd, keyspace, ManualClock(wall_ms=5)).draw() == first + BLOCK_SIZE
    assert first < 1 << 53, "clients that count in doubles count it"


class LosesAnswers(EtcdClient):
    """Applies transactions and loses each answer."""

    async def txn(self, txn: Txn, *, timeout_s: float = 3.0) -> TxnResult:
        await super().txn(txn, timeout_s=timeout_s)
        raise EtcdUnknown(UnknownKind.TIMEOUT, "the answer was lost")


async def test_a_block_whose_reservation_is_unknown_is_never_used(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    blocks = ProducerIdBlocks(etcd, keyspace, ManualClock())
    blocks._etcd = _losing(etcd)
    with pytest.raises(EtcdUnknown):
        await blocks.draw()
    blocks._etcd = etcd
    assert await blocks.draw() == FLOOR + BLOCK_SIZE


def _losing(etcd: EtcdClient) -> EtcdClient:
    losing = object.__new__(LosesAnswers)
    losing.__dict__.update(etcd.__dict__)
    return losing
