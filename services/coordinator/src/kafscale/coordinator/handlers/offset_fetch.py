"""OffsetFetch (9): v0-10.   v2 all topics · v5 leader epochs · v7 require_stable · v8 several groups · v9 member epochs
· v10 topic ids

An offset that was never committed is -1 without error, of a group that nobody knows as well (never
GROUP_ID_NOT_FOUND: clients stop at it). In v0 it is -1 with UNKNOWN_TOPIC_OR_PARTITION, as the protocol guide
says: every Kafka that had v0 answered so, and what speaks v0 takes that for "none", but might seek to a bare -1.
Offsets are read from etcd with proof that the slot is still ours.
Those of a group whose record cannot be read are told all the same, only its members are not checked.
Without transactions every offset is stable. A group's error stands at its partitions in v0-1, above from v2.
UNSTABLE_OFFSET_COMMIT for a partition whose offset cannot be read: consumers wait and ask again, while -1 would
have them begin anew and lose their place. A commit in its place heals it.
Never COORDINATOR_NOT_AVAILABLE: Java's consumer throws on it, and takes NOT_COORDINATOR for what it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafscale.coordinator.consumer.model import Fetch
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.coordinator.groups.commits import TopicPartition, UnreadableOffset
from kafscale.coordinator.groups.topics import TopicLookup
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.storage.groups import CommittedOffset
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
    decode_request,
    encode_response,
)

SEVERAL_GROUPS_FROM = 8
GROUP_ERRORS_ABOVE_FROM = 2
NO_OFFSET_IS_NO_ERROR_FROM = 1
TOPIC_IDS_FROM = 10
NO_OFFSET = -1

Found = CommittedOffset | UnreadableOffset
Offsets = Mapping[TopicPartition, Found]


@dataclass(frozen=True, slots=True)
class _Reading:
    context: CoordinatorContext
    version: int
    topics: TopicLookup


def handler(context: CoordinatorContext) -> AsyncHandler:
    async def offset_fetch(inbound: InboundRequest) -> Sequence[Buffer]:
        version = inbound.meta.api_version
        request = decode_request(inbound.body, version)
        topics = TopicLookup(context.topics, by_id=version >= TOPIC_IDS_FROM)
        reading = _Reading(context, version, topics)
        if version >= SEVERAL_GROUPS_FROM:
            groups = [await _group(reading, asked) for asked in request.groups]
            return answered(inbound, OffsetFetchResponse(groups=groups), encode_response)
        found = await _group(reading, _as_group(request))
        return answered(inbound, _alone(found, version), encode_response)

    return offset_fetch


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in topics],
    )


async def _group(reading: _Reading, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    try:
        offsets = await _offsets(reading.context, asked)
        if asked.topics is None:
            topics = await _all(reading.context, offsets)
        else:
            topics = [await _topic(reading, topic, offsets) for topic in asked.topics]
    except GroupFailed as failed:
        error = failed.error
        if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            error = ErrorCode.NOT_COORDINATOR
        answer = OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error)
        if reading.version < GROUP_ERRORS_ABOVE_FROM:
            answer.topics = [_same(topic, error) for topic in asked.topics or ()]
        return answer
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


async def _offsets(context: CoordinatorContext, asked: OffsetFetchRequestGroup) -> Offsets:
    """Raises GroupFailed."""
    held = context.groups.slot(asked.group_id)
    unreadable = context.groups.is_unreadable(asked.group_id)
    actor = None if unreadable else context.groups.find(asked.group_id)
    if actor is not None and not context.groups.is_classic(actor):
        reply = await actor.ask(
            lambda token: Fetch(token=token, member_id=asked.member_id, member_epoch=asked.member_epoch)
        )
        if reply.error is not ErrorCode.NONE:
            raise GroupFailed(reply.error)
    await context.commits.settled(held, asked.group_id)
    found = await context.commits.read(held, asked.group_id)
    if isinstance(found, ErrorCode):
        raise GroupFailed(found)
    return found


async def _topic(
    reading: _Reading, asked: OffsetFetchRequestTopics, offsets: Offsets
) -> OffsetFetchResponseTopics:
    topic = await reading.topics.find(asked.name, asked.topic_id)
    if topic is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        raise GroupFailed(topic)
    if topic is ErrorCode.UNKNOWN_TOPIC_ID:
        return _same(asked, topic)
    none = ErrorCode.NONE
    if reading.version < NO_OFFSET_IS_NO_ERROR_FROM:
        none = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetFetchResponseTopics(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[
            _partition(
                index, None if isinstance(topic, ErrorCode) else offsets.get((topic.topic_id, index)), none
            )
            for index in asked.partition_indexes
        ],
    )


def _same(asked: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, error_code=error)
            for index in asked.partition_indexes
        ],
    )


async def _all(context: CoordinatorContext, offsets: Offsets) -> list[OffsetFetchResponseTopics]:
    """Every offset of a topic that is there."""
    lookup = TopicLookup(context.topics, by_id=True)
    topics: dict[bytes, OffsetFetchResponseTopics] = {}
    for (topic_id, index), offset in sorted(offsets.items()):
        topic = await lookup.find("", topic_id)
        if topic is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            raise GroupFailed(topic)
        if isinstance(topic, ErrorCode):
            continue
        told = topics.setdefault(topic_id, OffsetFetchResponseTopics(name=topic.name, topic_id=topic_id))
        told.partitions.append(_partition(index, offset))
    return list(topics.values())


def _partition(
    index: int, offset: Found | None, none: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    """`none` goes with an offset that was never committed."""
    if offset is None:
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=NO_OFFSET, error_code=none
        )
    if isinstance(offset, UnreadableOffset):
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=NO_OFFSET,
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def _alone(group: OffsetFetchResponseGroup, version: int) -> OffsetFetchResponse:
    """The shape up to v7: one group, at the top."""
    return OffsetFetchResponse(
        error_code=group.error_code if version >= GROUP_ERRORS_ABOVE_FROM else ErrorCode.NONE,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
