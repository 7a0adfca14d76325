"""WriteTxnMarkers: an operator aborts what no coordinator knows, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from kafscale.log.heads import Aborted
from kafscale.log.snapshots import decode_snapshot
from kafscale.produce.handlers.write_txn_markers import WriteTxnMarkersHandler
from kafscale.rpc.v1.transactions_pb2 import OverRequest
from kafscale.runtime.transactions.calling import CallFailed
from kafscale.testkit.inbound import inbound
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.write_txn_markers import (
    API_KEY,
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableMarker,
    WriteTxnMarkersRequestWritableMarkerTopic,
    decode_response,
    encode_request,
)
from produce_harness import Cluster, Node
from transactions_harness import ID, NUMBER, PID, Coordinator, of_transaction, send_end, transactional_node

VERSION = 1
INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)


@dataclass
class Coordinators:
    """What all of them say together. None: some slot is unproven."""

    says: bool | None = True
    asked: list[OverRequest] = field(default_factory=list)

    async def over(self, request: OverRequest, *, timeout_s: float) -> bool:
        self.asked.append(request)
        if self.says is None:
            raise CallFailed("Over", "all coordinators", "it is a test")
        return self.says


def handler_of(node: Node) -> WriteTxnMarkersHandler:
    assert node.service.write_txn_markers is not None
    return node.service.write_txn_markers


async def written(
    node: Node,
    topic: str,
    *,
    coordinators: Coordinators,
    epoch: int = 3,
    commit: bool = False,
    index: int = 0,
    coordinator_epoch: int = 4,
) -> ErrorCode:
    """The answer for one partition."""
    handler = handler_of(node)
    handler._coordinators = coordinators
    marker = WriteTxnMarkersRequestWritableMarker(
        producer_id=PID,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WriteTxnMarkersRequestWritableMarkerTopic(topic, [index])],
        coordinator_epoch=coordinator_epoch,
    )
    body = b"".join(encode_request(WriteTxnMarkersRequest([marker]), VERSION))
    answer = decode_response(b"".join(await handler(inbound(body, API_KEY, VERSION))), VERSION)
    ((result,),) = ([topic.partitions for topic in each.topics] for each in answer.markers)
    (entry,) = result
    assert entry.partition_index == index
    return ErrorCode(entry.error_code)


async def with_an_open_transaction(cluster: Cluster, node: Node) -> str:
    topic = await cluster.topic()
    sent = await node.send(topic, 0, of_transaction(b"a", epoch=3), transactional_id=ID)
    assert sent.error is ErrorCode.NONE
    return topic.name


@pytest.mark.parametrize("epoch", [3, 5])
async def test_what_no_coordinator_knows_is_aborted(cluster: Cluster, epoch: int) -> None:
    node, coordinators = await transactional_node(cluster, Coordinator()), Coordinators()
    name = await with_an_open_transaction(cluster, node)
    assert await written(node, name, coordinators=coordinators, epoch=epoch) is ErrorCode.NONE
    assert coordinators.asked == [OverRequest(producer_id=PID, number=NUMBER)]
    head = await cluster.head(await cluster.topic())
    assert (head.open, head.lso) == ((), 2)
    assert [each for seg in head.tail for each in seg.aborted] == [Aborted(producer_id=PID, first=0, last=1)]
    assert await written(node, name, coordinators=coordinators, epoch=epoch) is ErrorCode.NONE, "it has ended"
    assert len(coordinators.asked) == 1


@pytest.mark.parametrize(
    ("says", "code"),
    [(False, ErrorCode.TRANSACTION_COORDINATOR_FENCED), (None, ErrorCode.NOT_LEADER_OR_FOLLOWER)],
)
async def test_what_a_coordinator_has_or_may_have_stays_open(
    cluster: Cluster, says: bool | None, code: ErrorCode
) -> None:
    node = await transactional_node(cluster, Coordinator())
    name = await with_an_open_transaction(cluster, node)
    assert await written(node, name, coordinators=Coordinators(says)) is code
    assert len((await cluster.head(await cluster.topic())).open) == 1


async def test_a_commit_and_an_old_epoch_are_refused_and_nobody_is_asked(cluster: Cluster) -> None:
    node, coordinators = await transactional_node(cluster, Coordinator()), Coordinators()
    name = await with_an_open_transaction(cluster, node)
    commit = await written(node, name, coordinators=coordinators, commit=True)
    assert commit is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await written(node, name, coordinators=coordinators, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert coordinators.asked == []
    assert len((await cluster.head(await cluster.topic())).open) == 1


@pytest.mark.parametrize(("epoch", "stored"), [(0, 0), (-1, 0), (INT32_MAX, INT32_MAX)])
async def test_the_epoch_of_the_coordinator_is_kept(cluster: Cluster, epoch: int, stored: int) -> None:
    """Also in the snapshot with which the next owner begins."""
    node = await transactional_node(cluster, Coordinator())
    name = await with_an_open_transaction(cluster, node)
    code = await written(node, name, coordinators=Coordinators(), coordinator_epoch=epoch)
    assert code is ErrorCode.NONE
    await node.drain()
    head = await cluster.head(await cluster.topic())
    snapshot = decode_snapshot(await cluster.store.get(head.snap_key))
    assert [(each.producer_id, each.coordinator_epoch) for each in snapshot.producers] == [(PID, stored)]


@pytest.mark.parametrize("epoch", [-2, INT32_MIN])
async def test_an_epoch_that_no_coordinator_has_is_fenced(cluster: Cluster, epoch: int) -> None:
    node, coordinators = await transactional_node(cluster, Coordinator()), Coordinators()
    name = await with_an_open_transaction(cluster, node)
    code = await written(node, name, coordinators=coordinators, coordinator_epoch=epoch)
    assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert coordinators.asked == []
    assert len((await cluster.head(await cluster.topic())).open) == 1


async def test_where_nothing_is_open_there_is_nothing_to_do(cluster: Cluster) -> None:
    node, coordinators = await transactional_node(cluster, Coordinator()), Coordinators()
    name = await with_an_open_transaction(cluster, node)
    topic = await cluster.topic()
    assert await send_end(node, topic, epoch=3)
    assert await written(node, name, coordinators=coordinators) is ErrorCode.NONE
    other = await cluster.topic("other")
    assert await written(node, other.name, coordinators=coordinators) is ErrorCode.NONE
    assert await cluster.etcd.get(cluster.keyspace.head(other.topic_id, 0)) is None, "it stays unclaimed"
    absent = await written(node, other.name, coordinators=coordinators, index=1)
    assert absent is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert coordinators.asked == []


async def test_without_transactions_it_is_not_served(cluster: Cluster) -> None:
    node = await cluster.node(transactions=False)
    assert node.service.write_txn_markers is None
    assert ApiKey.WRITE_TXN_MARKERS not in node.service.parts().control
    other = await transactional_node(cluster, Coordinator())
    assert ApiKey.WRITE_TXN_MARKERS in other.service.parts().control
