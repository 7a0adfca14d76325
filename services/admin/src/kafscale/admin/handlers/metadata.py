"""Metadata (3): v0-13.   v1 null = all, empty = none · v4 auto-creation flag · v7 leader epochs · v8 authorized
operations · v10 topic ids · v12 topics by id · v13 error of the whole answer

Topics that are asked for by name and do not exist are created when the request and the server allow it.
UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION (never created), UNKNOWN_TOPIC_ID, LEADER_NOT_AVAILABLE while
no front door is registered. Nothing here is stored: brokers, leaders and epochs are read off what is watched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kafscale.admin.context import AdminContext
from kafscale.admin.errors import guarded
from kafscale.admin.names import invalid_reason
from kafscale.admin.picture import (
    CLUSTER_OPERATIONS,
    TOPIC_OPERATIONS,
    active,
    brokers_of,
    controller_of,
    leader_epoch,
)
from kafscale.admin.plan import NewTopic, Refused
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.storage.brokers import Broker, leader_of
from kafscale.storage.topics import Topic, TopicState
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    decode_request,
    encode_response,
)

NO_ID = bytes(16)
CREATIONS_AT_ONCE = 16
NULL_PADDED = 4
PADDED_LENGTH = {9: 8, 10: 8, 11: 7, 12: 7, 13: 7}  # by version: that null, two or three flags, no tags


def handler(context: AdminContext) -> AsyncHandler:
    async def metadata(inbound: InboundRequest) -> Sequence[Buffer]:
        version = inbound.meta.api_version
        request = decode_request(_without_padding(inbound.body, version), version)
        brokers = await brokers_of(context, inbound.meta.listener)
        answer = MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=b.node_id, host=b.host, port=b.port, rack=b.rack)
                for b in brokers
            ],
            cluster_id=context.cluster_id,
            controller_id=controller_of(brokers),
            topics=await _topics(context, request, version, brokers),
        )
        if request.include_cluster_authorized_operations:
            answer.cluster_authorized_operations = CLUSTER_OPERATIONS
        return answered(inbound, answer, encode_response)

    return metadata


def _without_padding(body: memoryview, version: int) -> Buffer:
    """librdkafka 2, asking for all topics, keeps four bytes for a count where null takes one. Kafka reads past what
    is left over in the end, and the flags behind it wrongly; no request of that length can mean anything else."""
    if len(body) == PADDED_LENGTH.get(version) and body[:NULL_PADDED] == bytes(NULL_PADDED):
        return bytes(body[NULL_PADDED - 1 :])
    return body


async def _topics(
    context: AdminContext, request: MetadataRequest, version: int, brokers: tuple[Broker, ...]
) -> list[MetadataResponseTopic]:
    everything = request.topics is None or (version == 0 and not request.topics)
    if everything:
        answers = [_found(context, topic, brokers) for topic in active(context)]
    else:
        may_create = request.allow_auto_topic_creation and context.settings.auto_create_topics_enable
        slots = asyncio.Semaphore(CREATIONS_AT_ONCE)

        async def one(asked: MetadataRequestTopic) -> MetadataResponseTopic:
            async with slots:
                return await _one(context, asked, may_create, brokers)

        answers = list(await asyncio.gather(*(one(asked) for asked in request.topics or [])))
    if request.include_topic_authorized_operations:
        for answer in answers:
            if answer.error_code == ErrorCode.NONE:
                answer.topic_authorized_operations = TOPIC_OPERATIONS
    return answers


async def _one(
    context: AdminContext, asked: MetadataRequestTopic, may_create: bool, brokers: tuple[Broker, ...]
) -> MetadataResponseTopic:
    if asked.topic_id != NO_ID:
        return _by_id(context, asked, brokers)
    name = asked.name or ""
    if invalid_reason(name) is not None:
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=name)
    topic = context.topics.by_name(name)
    if topic is not None and topic.state is TopicState.ACTIVE:
        return _found(context, topic, brokers)
    if topic is None and may_create:
        return await _create(context, name, brokers)
    return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)


def _by_id(
    context: AdminContext, asked: MetadataRequestTopic, brokers: tuple[Broker, ...]
) -> MetadataResponseTopic:
    topic = context.topics.by_id(asked.topic_id)
    if topic is None or topic.state is not TopicState.ACTIVE:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id
        )
    return _found(context, topic, brokers)


async def _create(context: AdminContext, name: str, brokers: tuple[Broker, ...]) -> MetadataResponseTopic:
    outcome = await guarded(context.store.create(NewTopic(name=name), context.clock.wall_ms()))
    if isinstance(outcome, Topic):
        return _found(context, outcome, brokers)
    return MetadataResponseTopic(error_code=_as_metadata_error(outcome), name=name)


def _as_metadata_error(refused: Refused) -> ErrorCode:
    """Another admin created it first, or etcd did not answer: ask again. The rest is the client's to hear."""
    if refused.error in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT):
        return ErrorCode.LEADER_NOT_AVAILABLE
    return refused.error


def _found(context: AdminContext, topic: Topic, brokers: tuple[Broker, ...]) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_partition(context, topic, number, brokers) for number in range(topic.partitions)],
    )


def _partition(
    context: AdminContext, topic: Topic, number: int, brokers: tuple[Broker, ...]
) -> MetadataResponsePartition:
    if not brokers:
        return MetadataResponsePartition(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE, partition_index=number, leader_id=-1
        )
    leader = leader_of(topic.topic_id, number, brokers)
    return MetadataResponsePartition(
        partition_index=number,
        leader_id=leader,
        leader_epoch=leader_epoch(context, topic, number),
        replica_nodes=[leader],
        isr_nodes=[leader],
    )
