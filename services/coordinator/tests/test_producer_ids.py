"""Producer ids are never handed out twice, whoever hands them out."""

from __future__ import annotations

import asyncio

import pytest
from kafscale.coordinator.producer_ids import BLOCK_SIZE, ProducerIdBlocks
from kafscale.storage.etcd import EtcdClient, EtcdUnknown, Txn, TxnResult
from kafscale.storage.etcd_errors import UnknownKind
from kafscale.storage.keys import Keyspace


async def test_ids_of_two_coordinators_over_several_blocks_are_all_different(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    coordinators = [ProducerIdBlocks(etcd, keyspace), ProducerIdBlocks(etcd, keyspace)]
    draws = [each.draw() for each in coordinators for _ in range(BLOCK_SIZE + 10)]
    ids = await asyncio.gather(*draws)
    assert len(set(ids)) == len(ids)


async def test_a_restarted_coordinator_leaves_a_gap_and_repeats_nothing(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    first = [await ProducerIdBlocks(etcd, keyspace).draw() for _ in range(3)]
    assert first == [0, BLOCK_SIZE, 2 * BLOCK_SIZE]


class LosesAnswers(EtcdClient):
    """Applies transactions and loses each answer."""

    async def txn(self, txn: Txn, *, timeout_s: float = 3.0) -> TxnResult:
        await super().txn(txn, timeout_s=timeout_s)
        raise EtcdUnknown(UnknownKind.TIMEOUT, "the answer was lost")


async def test_a_block_whose_reservation_is_unknown_is_never_used(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    blocks = ProducerIdBlocks(etcd, keyspace)
    blocks._etcd = _losing(etcd)
    with pytest.raises(EtcdUnknown):
        await blocks.draw()
    blocks._etcd = etcd
    assert await blocks.draw() == BLOCK_SIZE


def _losing(etcd: EtcdClient) -> EtcdClient:
    losing = object.__new__(LosesAnswers)
    losing.__dict__.update(etcd.__dict__)
    return losing
