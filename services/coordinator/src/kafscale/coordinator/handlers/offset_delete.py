"""OffsetDelete (47): v0.   KIP-496

Offsets that a transaction has pending are deleted too: their partitions get nothing from its commit.

GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (members of another protocol type) for the call;
GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED by partition.
"""

from __future__ import annotations

import asyncio

from kafscale.access.rules import Side, needs_of
from kafscale.coordinator.classic import queries as classic
from kafscale.coordinator.consumer import subscriptions as consumer
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.coordinator.groups.registry import AnyActor
from kafscale.coordinator.groups.topic_lookup import TopicLookup
from kafscale.runtime.authorization import Asker
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.keys import PartitionKey
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import offset_delete as api

NEEDS = needs_of(ApiKey.OFFSET_DELETE, Side.SERVICE)
(READ,) = NEEDS


@answering_with_meta(api)
async def handler(
    context: CoordinatorContext, request: api.OffsetDeleteRequest, meta: RequestMeta
) -> api.OffsetDeleteResponse:
    try:
        actor = context.groups.find(request.group_id)
    except GroupFailed as failed:
        return api.OffsetDeleteResponse(error_code=failed.error)
    if actor is None or not actor.type.exists(actor.group):
        return api.OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    if context.groups.is_classic(actor):
        refusal = classic.offset_delete_refusal(actor.group)
        if refusal is not ErrorCode.NONE:
            return api.OffsetDeleteResponse(error_code=refusal)
    answer, where = await _checked(context, request, actor, context.authorization.of(meta))
    deletes = [
        *context.transaction_offsets.delete(actor.held, request.group_id, where),
        context.commits.delete(actor.held, request.group_id, where),
    ]
    errors = [error for error in await asyncio.gather(*deletes) if error is not ErrorCode.NONE]
    return api.OffsetDeleteResponse(error_code=errors[0]) if errors else answer


async def _checked(
    context: CoordinatorContext, request: api.OffsetDeleteRequest, actor: AnyActor, asker: Asker
) -> tuple[api.OffsetDeleteResponse, list[PartitionKey]]:
    subscribed = _subscribed(context, actor)
    answer, where = api.OffsetDeleteResponse(), list[PartitionKey]()
    topics = TopicLookup(context.topics, asker, READ)
    for asked in request.topics:
        topic = await topics.find(asked.name)
        answered_topic = api.OffsetDeleteResponseTopic(name=asked.name)
        answer.topics.append(answered_topic)
        for partition in asked.partitions:
            index = partition.partition_index
            if isinstance(topic, ErrorCode):
                error = topic
            elif not 0 <= index < topic.partitions:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif subscribed is None or asked.name in subscribed:
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                error = ErrorCode.NONE
                where.append((topic.topic_id, index))
            answered_topic.partitions.append(
                api.OffsetDeleteResponsePartition(partition_index=index, error_code=error)
            )
    return answer, where


def _subscribed(context: CoordinatorContext, actor: AnyActor) -> frozenset[str] | None:
    """None: unknown, so every topic counts as subscribed."""
    if context.groups.is_classic(actor):
        return classic.subscribed_topics(actor.group)
    return consumer.subscribed_topics(actor.group)
