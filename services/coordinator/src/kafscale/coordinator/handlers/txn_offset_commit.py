"""TxnOffsetCommit (28): v0-5.   v2 leader epochs · v3 members, flexible · v4 TRANSACTION_ABORTABLE · v5 joins, KIP-890

1. The group judges. A member is checked if the request has one; no state of a rebalance refuses it.
2. The group's coordinator asks that of the transactional id whether the group belongs to the transaction: v5 adds it,
   older versions have added it before (AddOffsetsToTxn). This holds up no other commit of the group.
3. The group judges once more, in the order of the group's commits. The offsets are written as pending, and then
   acknowledged. Their group gets them with the commit of the transaction (docs/protocol/transactions.md).

A request that has expired takes no effect. Neither does one before v5 that is older than the transaction under way: it
belongs to an earlier one, whose epoch is the same. NOT_COORDINATOR: the client sends it again.
Errors: the group's for every partition (ILLEGAL_GENERATION also for another member epoch), INVALID_GROUP_ID without a
group; those of the transactional id, see `_of_id`; UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE or
TOPIC_AUTHORIZATION_FAILED for a partition; INVALID_COMMIT_OFFSET_SIZE if too much is pending for the producer.
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
from kafscale.coordinator.slots import Held
from kafscale.coordinator.transactions.codes import in_words_of
from kafscale.coordinator.transactions.model import ProducerEpoch
from kafscale.rpc.v1.transactions_pb2 import JoinReply, JoinRequest, ParticipantSet
from kafscale.runtime.authorization import Asker
from kafscale.runtime.stream.age import age_ms
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.storage.groups import CommittedOffset
from kafscale.storage.keys import PartitionKey
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import txn_offset_commit as api

NEEDS = needs_of(ApiKey.TXN_OFFSET_COMMIT, Side.SERVICE)
(READ,) = NEEDS
TV2_FROM = 5
ABORTABLE_FROM = 4
FENCED_NEVER = TV2_FROM + 1
"""No version of this API has PRODUCER_FENCED."""
LOADING_FROM = 2
UNREACHED = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)

Offsets = dict[PartitionKey, CommittedOffset]


def handler(context: CoordinatorContext) -> AsyncHandler:
    async def txn_offset_commit(inbound: InboundRequest) -> Sequence[Buffer]:
        request = api.decode_request(inbound.body, inbound.meta.api_version)
        answer, offsets = await _checked(context, request, context.authorization.of(inbound.meta))
        error = await _commit(context, inbound, request, offsets) if offsets else ErrorCode.NONE
        if error is not ErrorCode.NONE:
            for topic in answer.topics:
                for partition in topic.partitions:
                    partition.error_code = partition.error_code or error
        return answered(inbound, answer, api.encode_response)

    return txn_offset_commit


async def _checked(
    context: CoordinatorContext, request: api.TxnOffsetCommitRequest, asker: Asker
) -> tuple[api.TxnOffsetCommitResponse, Offsets]:
    """The answer with the errors of single partitions, and the valid offsets."""
    answer, offsets = api.TxnOffsetCommitResponse(), Offsets()
    now_ms = context.clock.wall_ms()
    topics = TopicLookup(context.topics, asker, READ)
    for asked in request.topics:
        topic = await topics.find(asked.name)
        answered_topic = api.TxnOffsetCommitResponseTopic(name=asked.name)
        answer.topics.append(answered_topic)
        for partition in asked.partitions:
            error = refusal_of(context, topic, partition)
            answered_topic.partitions.append(
                api.TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=error
                )
            )
            if not isinstance(topic, ErrorCode) and error is ErrorCode.NONE:
                offsets[(topic.topic_id, partition.partition_index)] = CommittedOffset(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.committed_metadata or "",
                    commit_ms=now_ms,
                )
    return answer, offsets


async def _commit(
    context: CoordinatorContext,
    inbound: InboundRequest,
    request: api.TxnOffsetCommitRequest,
    offsets: Offsets,
) -> ErrorCode:
    """The error of all partitions."""
    version, group, producer_id = inbound.meta.api_version, request.group_id, request.producer_id
    try:
        held = await _judged(context, request)
        _need_young(context, inbound)
        context.transaction_offsets.begin_question(held, group, producer_id)
        try:
            reply = await context.joins.join(_question(request, version))
            if reply.code:
                return _of_id(ErrorCode(reply.code), version)
            if version < TV2_FROM and age_ms(inbound, context.clock.real_ms()) > reply.under_way_ms:
                return ErrorCode.NOT_COORDINATOR
            async with context.commits.order_lock(group):
                written = await _put(context, inbound, request, offsets, held, reply)
        finally:
            context.transaction_offsets.end_question(held, group, producer_id)
    except GroupFailed as failed:
        return _of_group(failed.error, version)
    error = await written
    return _of_id(error, version) if error is ErrorCode.CONCURRENT_TRANSACTIONS else _of_group(error, version)


async def _put(
    context: CoordinatorContext,
    inbound: InboundRequest,
    request: api.TxnOffsetCommitRequest,
    offsets: Offsets,
    held: Held,
    reply: JoinReply,
) -> asyncio.Future[ErrorCode]:
    """The queued write. Raises GroupFailed."""
    pending = context.transaction_offsets
    if reply.HasField("ended"):
        await pending.end_first(held, request.group_id, reply.ended)
    if await _judged(context, request) is not held:
        raise GroupFailed(ErrorCode.NOT_COORDINATOR)  # an end may have come to another instance meanwhile
    _need_young(context, inbound)
    need_room(context, request.group_id, offsets.values())
    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    return pending.put(held, request.group_id, producer, reply.number, offsets)


async def _judged(context: CoordinatorContext, request: api.TxnOffsetCommitRequest) -> Held:
    """The claim of the group's slot. Raises GroupFailed if the group refuses the request."""
    if not request.group_id:
        raise GroupFailed(ErrorCode.INVALID_GROUP_ID)
    actor = context.groups.committing(request.group_id)
    if context.groups.is_classic(actor):
        reply = await actor.ask(lambda token: _classic(request, token))
    else:
        reply = await actor.ask(lambda token: _consumer(request, token))
    if reply.error is not ErrorCode.NONE:
        raise GroupFailed(reply.error)
    return actor.held


def _need_young(context: CoordinatorContext, inbound: InboundRequest) -> None:
    """Raises GroupFailed."""
    if inbound.expired(context.clock.real_ms()):
        raise GroupFailed(ErrorCode.NOT_COORDINATOR)


def _question(request: api.TxnOffsetCommitRequest, version: int) -> JoinRequest:
    return JoinRequest(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        epoch=request.producer_epoch,
        add=version >= TV2_FROM,
        participants=ParticipantSet(groups=[request.group_id]),
    )


def _of_id(error: ErrorCode, version: int) -> ErrorCode:
    """An error of the transactional id, in the words of the version. Clients of old versions retry only on some."""
    if error in UNREACHED or (error is ErrorCode.CONCURRENT_TRANSACTIONS and version < TV2_FROM):
        return _of_group(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, version)
    return in_words_of(version, error, fenced_from=FENCED_NEVER, abortable_from=ABORTABLE_FROM)


def _of_group(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


def _classic(request: api.TxnOffsetCommitRequest, token: int) -> ClassicCommit:
    instance = request.group_instance_id
    return ClassicCommit(
        token=Token(token),
        generation=Generation(request.generation_id),
        member_id=MemberId(request.member_id) or NO_MEMBER_ID,
        instance_id=None if instance is None else InstanceId(instance),
        transactional=True,
    )


def _consumer(request: api.TxnOffsetCommitRequest, token: int) -> ConsumerCommit:
    return ConsumerCommit(
        token=token,
        member_id=request.member_id,
        member_epoch=request.generation_id,
        instance_id=request.group_instance_id,
        transactional=True,
    )
