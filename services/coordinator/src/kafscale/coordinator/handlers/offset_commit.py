"""OffsetCommit (8): v0-10.   v1 members, time of commit · v2-4 retention · v6 leader epochs · v7 static members
· v9 member epochs · v10 topic ids

The group checks whether the member may commit. Then the offsets are written, and then acknowledged. Commits of a group
are queued in order of arrival. A commit that has expired is not queued: its client uses another front door by now, and
may have committed there since.

Version 0 once wrote to ZooKeeper. Here it is a commit without a member, which is refused while the group has members.
The timestamp of version 1 is used as it is, as in Kafka before 4: the retention counts from it.
While etcd is too full (`runtime/etcd_space.py`), the answer is COORDINATOR_NOT_AVAILABLE and the client retries. This
first affects offsets with metadata, later all offsets.
Errors: the machine's for every partition; UNKNOWN_TOPIC_OR_PARTITION (UNKNOWN_TOPIC_ID for an id) or
OFFSET_METADATA_TOO_LARGE for a partition; TOPIC_AUTHORIZATION_FAILED for those of a topic that the client may not read;
those of every group call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kafscale.access.rules import Side, needs_of
from kafscale.coordinator.classic.model import NO_MEMBER_ID, Generation, InstanceId, MemberId, Token
from kafscale.coordinator.classic.model import Commit as ClassicCommit
from kafscale.coordinator.consumer.model import Commit as ConsumerCommit
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.coordinator.groups.topic_lookup import TopicLookup
from kafscale.coordinator.offset_checks import need_room, refusal_of
from kafscale.runtime.authorization import Asker
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.storage.groups import NO_EXPIRY, CommittedOffset
from kafscale.storage.keys import PartitionKey
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import offset_commit as api

NEEDS = needs_of(ApiKey.OFFSET_COMMIT, Side.SERVICE)
(READ,) = NEEDS
TOPIC_IDS_FROM = 10
MISSING_GROUPS_FROM = 9
DEFAULT_RETENTION = -1
LATEST_MS = 2**63 - 1
"""The latest expiry that can be stored."""
NOW = -1


def handler(context: CoordinatorContext) -> AsyncHandler:
    async def offset_commit(inbound: InboundRequest) -> Sequence[Buffer]:
        version = inbound.meta.api_version
        request = api.decode_request(inbound.body, version)
        async with context.commits.order_lock(request.group_id):
            answer, offsets = await _checked(
                context, request, version, context.authorization.of(inbound.meta)
            )
            written = await _write(context, inbound, request, offsets)
        error = written if isinstance(written, ErrorCode) else await written
        if error is not ErrorCode.NONE:
            for topic in answer.topics:
                for partition in topic.partitions:
                    partition.error_code = partition.error_code or error
        return answered(inbound, answer, api.encode_response)

    return offset_commit


async def _checked(
    context: CoordinatorContext, request: api.OffsetCommitRequest, version: int, asker: Asker
) -> tuple[api.OffsetCommitResponse, dict[PartitionKey, CommittedOffset]]:
    """The answer with the errors of single partitions, and the valid offsets."""
    answer = api.OffsetCommitResponse()
    offsets: dict[PartitionKey, CommittedOffset] = {}
    now_ms = context.clock.wall_ms()
    topics = TopicLookup(context.topics, asker, READ, by_id=version >= TOPIC_IDS_FROM)
    for asked in request.topics:
        topic = await topics.find(asked.name, asked.topic_id)
        answered_topic = api.OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id)
        answer.topics.append(answered_topic)
        for partition in asked.partitions:
            error = refusal_of(context, topic, partition)
            answered_topic.partitions.append(
                api.OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
            )
            if not isinstance(topic, ErrorCode) and error is ErrorCode.NONE:
                where = (topic.topic_id, partition.partition_index)
                offsets[where] = _offset(partition, request.retention_time_ms, now_ms)
    return answer, offsets


def _offset(partition: api.OffsetCommitRequestPartition, retention_ms: int, now_ms: int) -> CommittedOffset:
    return CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_ms=now_ms if partition.commit_timestamp == NOW else partition.commit_timestamp,
        expire_ms=NO_EXPIRY
        if retention_ms == DEFAULT_RETENTION
        else min(now_ms + max(retention_ms, 0), LATEST_MS),
    )


async def _write(
    context: CoordinatorContext,
    inbound: InboundRequest,
    request: api.OffsetCommitRequest,
    offsets: dict[PartitionKey, CommittedOffset],
) -> ErrorCode | asyncio.Future[ErrorCode]:
    """The group's error, or the queued write of the offsets."""
    version = inbound.meta.api_version
    try:
        actor = context.groups.committing(request.group_id)
        if context.groups.is_classic(actor):
            reply = await actor.ask(lambda token: _classic(request, version, token))
        else:
            reply = await actor.ask(lambda token: _consumer(request, version, token))
    except GroupFailed as failed:
        return failed.error
    if reply.error is not ErrorCode.NONE:
        error: ErrorCode = reply.error
        return error
    if inbound.expired(context.clock.real_ms()):
        return ErrorCode.NOT_COORDINATOR
    try:
        need_room(context, request.group_id, offsets.values())
    except GroupFailed as failed:
        return failed.error
    return context.commits.write(actor.held, request.group_id, offsets)


def _classic(request: api.OffsetCommitRequest, version: int, token: int) -> ClassicCommit:
    instance = request.group_instance_id
    return ClassicCommit(
        token=Token(token),
        generation=Generation(request.generation_id_or_member_epoch),
        member_id=MemberId(request.member_id) or NO_MEMBER_ID,
        instance_id=None if instance is None else InstanceId(instance),
        names_missing_groups=version >= MISSING_GROUPS_FROM,
    )


def _consumer(request: api.OffsetCommitRequest, version: int, token: int) -> ConsumerCommit:
    return ConsumerCommit(
        token=token,
        member_id=request.member_id,
        member_epoch=request.generation_id_or_member_epoch,
        version=version,
    )
