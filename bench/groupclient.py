"""Members of consumer groups on bare connections: hundreds fit one process, which no client library allows."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Self

from kafscale.wire.headers import decode_response_header, encode_request_header
from kafscale.wire.schema import (
    consumer_group_heartbeat,
    heartbeat,
    join_group,
    offset_commit,
    offset_fetch,
    sync_group,
)

VERSIONS = {
    join_group: 9,
    sync_group: 5,
    heartbeat: 4,
    offset_commit: 9,
    offset_fetch: 9,
    consumer_group_heartbeat: 1,
}
CONNECT_TIMEOUT_S = 30.0
SESSION_TIMEOUT_MS = 30_000
REBALANCE_TIMEOUT_MS = 60_000
PROTOCOL = "range"
PROTOCOL_TYPE = "consumer"


@dataclass(slots=True)
class Wire:
    """One connection; questions may overlap and are answered in order. A lost one raises OSError or EOFError."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    client_id: str
    sent: int = 0
    answered: int = 0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    async def open(cls, bootstrap: str, client_id: str = "bench") -> Self:
        host, port = bootstrap.rsplit(":", 1)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return cls(*await asyncio.open_connection(host, int(port)), client_id)

    async def ask(self, api: ModuleType, message: object) -> Any:
        """The decoded response to a request of an API, in the version of the table above."""
        version = VERSIONS[api]
        self.sent += 1
        body = encode_request_header(api.API_KEY, version, self.sent, self.client_id) + b"".join(
            api.encode_request(message, version)
        )
        self.writer.write(struct.pack(">i", len(body)) + body)
        async with self._turn:  # fair: turns are taken in the order of requests
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            frame = await self.reader.readexactly(size)
            self.answered += 1
            correlation_id, body_at = decode_response_header(frame, api.API_KEY, version)
            assert correlation_id == self.answered
        return api.decode_response(frame[body_at:], version)

    def close(self) -> None:
        self.writer.close()


@dataclass(slots=True)
class Classic:
    """A member of a group of the classic protocol. Calls return error codes; 0 is success."""

    wire: Wire
    group: str
    metadata: bytes = b""
    session_timeout_ms: int = SESSION_TIMEOUT_MS
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
            protocol_type=PROTOCOL_TYPE,
            protocols=[join_group.JoinGroupRequestProtocol(name=PROTOCOL, metadata=self.metadata)],
        )
        answer: join_group.JoinGroupResponse = await self.wire.ask(join_group, request)
        if answer.member_id:
            self.member_id = answer.member_id
        self.generation = answer.generation_id
        self.members = [member.member_id for member in answer.members]
        return answer.error_code

    async def sync(self, assignments: dict[str, bytes]) -> tuple[int, bytes]:
        """The error, and this member's part."""
        request = sync_group.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=[
                sync_group.SyncGroupRequestAssignment(member_id=member, assignment=part)
                for member, part in assignments.items()
            ],
        )
        answer: sync_group.SyncGroupResponse = await self.wire.ask(sync_group, request)
        return answer.error_code, answer.assignment

    async def beat(self) -> int:
        request = heartbeat.HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        answer: heartbeat.HeartbeatResponse = await self.wire.ask(heartbeat, request)
        return answer.error_code


@dataclass(slots=True)
class Modern:
    """A member of a group of the new protocol (KIP-848), which makes its own id."""

    wire: Wire
    group: str
    topic: str
    member_id: str
    generation: int = 0
    owned: list[consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions] = field(
        default_factory=list
    )

    async def beat(self) -> int:
        """Joins with epoch 0; owns at once whatever it is given."""
        joins = self.generation == 0
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.generation,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else -1,
            subscribed_topic_names=[self.topic] if joins else None,
            topic_partitions=[] if joins else self.owned,
        )
        answer: consumer_group_heartbeat.ConsumerGroupHeartbeatResponse = await self.wire.ask(
            consumer_group_heartbeat, request
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
    answer: offset_commit.OffsetCommitResponse = await member.wire.ask(offset_commit, request)
    return answer.topics[0].partitions[0].error_code


async def committed(wire: Wire, group: str, topic: str, partition: int = 0) -> tuple[int, int]:
    """The error, and the offset that the group is at; asked by nobody in particular."""
    wanted = offset_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
    request = offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=[wanted])]
    )
    answer: offset_fetch.OffsetFetchResponse = await wire.ask(offset_fetch, request)
    found = answer.groups[0]
    if found.error_code:
        return found.error_code, -1
    part = found.topics[0].partitions[0]
    return part.error_code, part.committed_offset
