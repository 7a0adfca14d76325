"""Requests about groups as clients send them, and groups whose slots differ."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from door_fakes import Sent
from door_harness import Cluster, FakeClient
from kafscale.access.authorizer import Authorizer
from kafscale.frontdoor.api import Backend
from kafscale.storage.slots import slot_of
from kafscale.wire.schema import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_heartbeat,
    end_txn,
    heartbeat,
    join_group,
    leave_group,
    module_of,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)

CONTROL = "control"
ONE, TWO, THREE = "g-1", "g-2", "g-3"
assert len({slot_of(group) for group in (ONE, TWO, THREE)}) == 3


def joined(buffers: Any) -> bytes:
    return b"".join(map(bytes, buffers))


def about(key: int, group: str, version: int) -> Any:
    """A request about one group, with something in it."""
    match key:
        case 8:
            partition = offset_commit.OffsetCommitRequestPartition(partition_index=3, committed_offset=9)
            topic = offset_commit.OffsetCommitRequestTopic(
                name="t" if version < 10 else "", topic_id=bytes(16), partitions=[partition]
            )
            return offset_commit.OffsetCommitRequest(group_id=group, topics=[topic])
        case 9:
            wanted = offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[3])
            return offset_fetch.OffsetFetchRequest(group_id=group, topics=[wanted])
        case 11:
            return join_group.JoinGroupRequest(
                group_id=group, member_id="m", session_timeout_ms=90_000, rebalance_timeout_ms=120_000
            )
        case 12:
            return heartbeat.HeartbeatRequest(group_id=group, member_id="m")
        case 13:
            return leave_group.LeaveGroupRequest(group_id=group)
        case 14:
            return sync_group.SyncGroupRequest(group_id=group, member_id="m")
        case 47:
            return offset_delete.OffsetDeleteRequest(group_id=group)
        case _:
            return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(group_id=group, member_id="m")


def abort_of(producer_id: int, topic: str, *partitions: int) -> write_txn_markers.WriteTxnMarkersRequest:
    """Of a transaction of this producer that hangs."""
    schema = write_txn_markers
    topics = [schema.WriteTxnMarkersRequestWritableMarkerTopic(topic, list(partitions))]
    marker = schema.WriteTxnMarkersRequestWritableMarker(producer_id=producer_id, topics=topics)
    return schema.WriteTxnMarkersRequest([marker])


def of_transaction(key: int, version: int, transaction: str, group: str) -> Any:
    """A request of this transactional id, with something in it. `group`: if the API names one."""
    match key:
        case 24:
            schema = add_partitions_to_txn
            topics = [schema.AddPartitionsToTxnRequestTopic(name="t", partitions=[3, 5])]
            if version < 4:
                return schema.AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=transaction,
                    v3_and_below_producer_id=7,
                    v3_and_below_topics=topics,
                )
            entry = schema.AddPartitionsToTxnRequestTransaction(
                transactional_id=transaction, producer_id=7, topics=topics
            )
            return schema.AddPartitionsToTxnRequest(transactions=[entry])
        case 25:
            return add_offsets_to_txn.AddOffsetsToTxnRequest(
                transactional_id=transaction, producer_id=7, producer_epoch=2, group_id=group
            )
        case 26:
            return end_txn.EndTxnRequest(transactional_id=transaction, producer_id=7, committed=True)
        case _:
            partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
                partition_index=3, committed_offset=9
            )
            topic = txn_offset_commit.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
            return txn_offset_commit.TxnOffsetCommitRequest(
                transactional_id=transaction, group_id=group, producer_id=7, topics=[topic]
            )


ONE_GROUP = [
    (key, version)
    for key, low, high in (
        (8, 0, 10),
        (9, 0, 7),
        (11, 0, 9),
        (12, 0, 4),
        (13, 0, 5),
        (14, 0, 5),
        (47, 0, 0),
        (68, 0, 1),
    )
    for version in range(low, high + 1)
]


def ask(client: FakeClient, key: int, version: int, message: Any) -> bytes:
    body = joined(module_of(key).encode_request(message, version))
    client.ask(key, version, body)
    return body


def answered(client: FakeClient, number: int = 0) -> Any:
    answer = client.answers[number]
    key, version = client.versions[answer.correlation_id]
    return module_of(key).decode_response(answer.body, version)


def coordinators(cluster: Cluster, **owners: int) -> None:
    """Two of them; g1=…, g2=… and g3=… say which has the group's slot."""
    cluster.serve(Backend.COORDINATOR, 1, 2)
    for name, node_id in owners.items():
        cluster.slots.set(f"g-{name[1:]}", f"{node_id}/a")


def sent_to(cluster: Cluster, node_id: int) -> list[Sent]:
    return cluster.stream(Backend.COORDINATOR, node_id, CONTROL).sent


def code_of(key: int, version: int, response: Any) -> int:
    """The error as a client finds it."""
    if key == 8 or (key == 9 and version < 2):
        return int(response.topics[0].partitions[0].error_code)
    return int(response.error_code)


@asynccontextmanager
async def running(decides: Authorizer) -> AsyncIterator[Cluster]:
    async with Cluster.running(decides) as cluster:
        coordinators(cluster, g1=1, g2=2)
        for role in (Backend.ADMIN, Backend.PRODUCE):
            cluster.serve(role, 1)
        yield cluster


def all_sent(cluster: Cluster) -> list[Sent]:
    return [sent for stream in cluster.streams.values() for sent in stream.sent]
