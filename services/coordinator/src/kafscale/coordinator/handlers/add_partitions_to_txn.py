"""AddPartitionsToTxn (24): v0-5.   v2 PRODUCER_FENCED · v3 flexible · v4 several ids, verify only
· v5 TRANSACTION_ABORTABLE

The partitions join the transaction of the id, all of them or none: if one has an error of its own, the others have
OPERATION_NOT_ATTEMPTED. Clients send v0-3, and v4-5 are those of brokers of Kafka, which may only verify. A request
that has expired takes no effect, as with EndTxn.
Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION; TOPIC_AUTHORIZATION_FAILED (v0-3). Errors of all partitions of an
id: INVALID_REQUEST for an id that cannot exist, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED (INVALID_PRODUCER_EPOCH
before v2), CONCURRENT_TRANSACTIONS, TRANSACTION_ABORTABLE (INVALID_TXN_STATE before v5) if the transaction has too many
participants or, when verified, lacks one, and those of every call to a slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kafscale.access.rules import Side, needs_of
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.topic_lookup import TopicLookup, refusal_of
from kafscale.coordinator.transactions.codes import in_words_of
from kafscale.coordinator.transactions.model import ProducerEpoch
from kafscale.coordinator.transactions.registry import is_legal_id
from kafscale.runtime.authorization import EVERYTHING, Asker
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.storage.keys import PartitionKey
from kafscale.storage.transactions import Participants
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import add_partitions_to_txn as api

NEEDS = needs_of(ApiKey.ADD_PARTITIONS_TO_TXN, Side.SERVICE)
(WRITE,) = NEEDS
FENCED_FROM = 2
SEVERAL_FROM = 4
ABORTABLE_FROM = 5

Asked = api.AddPartitionsToTxnRequestTransaction
Topics = Sequence[api.AddPartitionsToTxnRequestTopic]
Results = list[api.AddPartitionsToTxnResponseTopicResult]


def handler(context: CoordinatorContext) -> AsyncHandler:
    async def add_partitions_to_txn(inbound: InboundRequest) -> Sequence[Buffer]:
        version = inbound.meta.api_version
        request = api.decode_request(inbound.body, version)
        if version >= SEVERAL_FROM:
            answer = await _several(context, inbound, request)
        else:
            one = Asked(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
            asker = context.authorization.of(inbound.meta)
            results = await _added(context, inbound, one, asker)
            answer = api.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
        return answered(inbound, answer, api.encode_response)

    return add_partitions_to_txn


async def _several(
    context: CoordinatorContext, inbound: InboundRequest, request: api.AddPartitionsToTxnRequest
) -> api.AddPartitionsToTxnResponse:
    """The rights of brokers are those on the cluster, which the front door has asked."""
    asked = request.transactions
    found = await asyncio.gather(*(_added(context, inbound, one, EVERYTHING) for one in asked))
    results = [
        api.AddPartitionsToTxnResponseResult(transactional_id=one.transactional_id, topic_results=topics)
        for one, topics in zip(asked, found, strict=True)
    ]
    return api.AddPartitionsToTxnResponse(results_by_transaction=results)


async def _added(context: CoordinatorContext, inbound: InboundRequest, one: Asked, asker: Asker) -> Results:
    if not is_legal_id(one.transactional_id):
        return _results(one.topics, lambda _topic, _partition: ErrorCode.INVALID_REQUEST)
    if inbound.expired(context.clock.real_ms()):
        return _results(one.topics, lambda _topic, _partition: ErrorCode.NOT_COORDINATOR)
    partitions, errors = await _checked(context, one.topics, asker)
    if errors:
        return _results(
            one.topics, lambda topic, index: errors.get((topic, index), ErrorCode.OPERATION_NOT_ATTEMPTED)
        )
    if not partitions:
        return _results(one.topics, lambda _topic, _partition: ErrorCode.NONE)
    answer = await context.ids.join(
        one.transactional_id,
        ProducerEpoch(one.producer_id, one.producer_epoch),
        Participants(frozenset(partitions)),
        add=not one.verify_only,
    )
    version = inbound.meta.api_version
    error = in_words_of(version, answer.error, fenced_from=FENCED_FROM, abortable_from=ABORTABLE_FROM)
    return _results(one.topics, lambda _topic, _partition: error)


async def _checked(
    context: CoordinatorContext, topics: Topics, asker: Asker
) -> tuple[list[PartitionKey], dict[tuple[str, int], ErrorCode]]:
    """The partitions, and the errors of those that may not join."""
    partitions: list[PartitionKey] = []
    errors: dict[tuple[str, int], ErrorCode] = {}
    lookup = TopicLookup(context.topics, asker, WRITE)
    for asked in topics:
        topic = await lookup.find(asked.name)
        for index in asked.partitions:
            error = refusal_of(topic, index)
            if error is not ErrorCode.NONE:
                errors[asked.name, index] = error
            elif not isinstance(topic, ErrorCode):
                partitions.append((topic.topic_id, index))
    return partitions, errors


def _results(topics: Topics, error_of: Callable[[str, int], ErrorCode]) -> Results:
    return [
        api.AddPartitionsToTxnResponseTopicResult(
            name=topic.name,
            results_by_partition=[
                api.AddPartitionsToTxnResponsePartitionResult(
                    partition_index=index, partition_error_code=error_of(topic.name, index)
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
