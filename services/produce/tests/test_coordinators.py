"""With transactions an instance knows the coordinators of transactional ids; without them it watches none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio
import pytest
from kafscale.rpc.v1.transactions_pb2 import JoinReply, JoinRequest, OverReply, OverRequest
from kafscale.runtime.transactions.calling import CallFailed
from kafscale.runtime.transactions.serving import TransactionServer
from kafscale.storage.coordination import encode_owner
from kafscale.storage.membership.members import Registration
from kafscale.storage.slots import SLOTS, Slot, slot_of
from produce_harness import PATIENCE_S, Cluster

REQUEST = JoinRequest(transactional_id="payments", producer_id=7, add=True)


class Coordinator:
    async def join(self, request: JoinRequest) -> JoinReply:
        return JoinReply(number=request.producer_id)

    async def over(self, request: OverRequest) -> OverReply:
        return OverReply(over=request.number == 1, slots=range(SLOTS))


@asynccontextmanager
async def coordinator(cluster: Cluster) -> AsyncIterator[str]:
    """The id of one that is registered and has the slot of REQUEST."""
    server, calls = grpc.aio.server(), TransactionServer()
    calls.add_to(server)
    calls.offer(Coordinator(), None)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    registration = await Registration.join(
        cluster.etcd, cluster.keyspace, role="coordinator", address=address, node_id=1
    )
    keeping = asyncio.create_task(registration.run())
    me = registration.instance.id
    slot = Slot(epoch=1, owner=me)
    key = cluster.keyspace.slot_claim(slot_of(REQUEST.transactional_id))
    await cluster.etcd.put(key, encode_owner(slot))
    try:
        yield me
    finally:
        await registration.leave()
        await keeping
        await server.stop(None)


async def test_an_instance_asks_the_coordinator_of_an_ids_slot(cluster: Cluster) -> None:
    async with coordinator(cluster):
        node = await cluster.node()
        coordinators = node.service.coordinators
        assert coordinators is not None
        assert await coordinators.calls.join(REQUEST, timeout_s=PATIENCE_S) == JoinReply(number=7)
        assert await coordinators.calls.over(OverRequest(number=1), timeout_s=PATIENCE_S)
        assert not await coordinators.calls.over(OverRequest(number=2), timeout_s=PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S):
        while coordinators.views["live_coordinator"].items:
            await asyncio.sleep(0.005)
    with pytest.raises(CallFailed, match="none is registered"):
        await coordinators.calls.join(REQUEST, timeout_s=PATIENCE_S)


async def test_without_transactions_no_coordinator_is_watched(cluster: Cluster) -> None:
    node = await cluster.node(transactions=False)
    assert node.service.coordinators is None
    views = {labels["view"] for labels in node.labels("unreadable_values")}
    assert "owners" in views
    assert views.isdisjoint({"slots", "live_coordinator"})
