"""Members of consumer groups on raw connections: hundreds fit one process, which no client library allows."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from kafscale.wire.schema import (
    consumer_group_heartbeat,
    heartbeat,
    join_group,
    offset_commit,
    offset_fetch,
    sync_group,
)

from e2e.harness.raw import Wire

VERSIONS = {
    join_group: 9,
    sync_group: 5,
    heartbeat: 4,
    offset_commit: 9,
    offset_fetch: 9,
    consumer_group_heartbeat: 1,
}
SESSION_TIMEOUT_MS = 30_000
REBALANCE_TIMEOUT_MS = 60_000
PROTOCOL = "range"
PROTOCOL_TYPE = "consumer"


async def ask(wire: Wire, api: ModuleType, message: object) -> Any:
    return await wire.ask(api, VERSIONS[api], message)


@dataclass(slots=True)
class Classic:
    """A member of a group of the classic protocol. Calls return error codes; 0 is success."""

    wire: Wire
    group: str
    metadata: bytes = b""
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    protocol_type: str = PROTOCOL_TYPE
    member_id: str = ""
    generation: int = -1
    members: list[str] = field(default_factory=list)
    """All of them, if this one leads."""

    async def join(self) -> int:
        request = join_group.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type=self.protocol_type,
            protocols=[join_group.JoinGroupRequestProtocol(name=PROTOCOL, metadata=self.metadata)],
        )
        answer: join_group.JoinGroupResponse = await ask(self.wire, join_group, request)
        if answer.member_id:
            self.member_id = answer.member_id
        self.generation = answer.generation_id
        self.members = [member.member_id for member in answer.members]
        return answer.error_code

    async def sync(self, assignments: dict[str, bytes]) -> tuple[int, bytes]:
        """The error, and this member's assignment."""
        request = sync_group.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=self.protocol_type,
            protocol_name=PROTOCOL,
            assignments=[
                sync_group.SyncGroupRequestAssignment(member_id=member, assignment=part)
                for member, part in assignments.items()
            ],
        )
        answer: sync_group.SyncGroupResponse = await ask(self.wire, sync_group, request)
        return answer.error_code, answer.assignment

    async def beat(self) -> int:
        request = heartbeat.HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        answer: heartbeat.HeartbeatResponse = await ask(self.wire, heartbeat, request)
        return answer.error_code


@dataclass(slots=True)
class Modern:
    """A member of a group of the new protocol (KIP-848). It generates its own id."""

    wire: Wire
    group: str
    topic: str
    member_id: str
    generation: int = 0
    owned: list[consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions] = field(
        default_factory=list
    )

    async def beat(self) -> int:
        """Joins with epoch 0; owns each assignment at once."""
        joins = self.generation == 0
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.generation,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else -1,
            subscribed_topic_names=[self.topic] if joins else None,
            topic_partitions=[] if joins else self.owned,
        )
        answer: consumer_group_heartbeat.ConsumerGroupHeartbeatResponse = await ask(
            self.wire, consumer_group_heartbeat, request
        )
        if answer.error_code == 0:
            self.generation = answer.member_epoch
            if answer.assignment is not None:
                self.owned = [
                    consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions(
                        topic_id=part.topic_id, partitions=part.partitions
                    )
                    for part in answer.assignment.topic_partitions
                ]
        return answer.error_code


async def commit(member: Classic | Modern, topic: str, offset: int, partition: int = 0) -> int:
    """The error of the partition."""
    part = offset_commit.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    request = offset_commit.OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=[offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[part])],
    )
    answer: offset_commit.OffsetCommitResponse = await ask(member.wire, offset_commit, request)
    return answer.topics[0].partitions[0].error_code


async def committed(wire: Wire, group: str, topic: str, partition: int = 0) -> tuple[int, int]:
    """The error, and the committed offset of the group. The request names no member."""
    wanted = offset_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
    request = offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=[wanted])]
    )
    answer: offset_fetch.OffsetFetchResponse = await ask(wire, offset_fetch, request)
    found = answer.groups[0]
    if found.error_code:
        return found.error_code, -1
    part = found.topics[0].partitions[0]
    return part.error_code, part.committed_offset
