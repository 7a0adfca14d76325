"""DescribeTransactions (65): v0.

What this instance has written of each id. The partitions are those that lack the end of their transaction; topics that
the client may not describe are left out, and deleted ones. The groups of a transaction have no place in the answer.
A transaction that is over keeps its start time until the next InitProducerId, as in Kafka.
Errors of an id: INVALID_REQUEST for one that cannot exist, or whose answer would be too large
(KAFSCALE_ANSWER_BYTES_MAX), TRANSACTIONAL_ID_NOT_FOUND, and those of every call to a slot.
"""

from __future__ import annotations

from collections import defaultdict

from kafscale.access.rules import Side, needs_of
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.transactions.model import Phase, phase_of
from kafscale.coordinator.transactions.registry import is_legal_id
from kafscale.runtime.answer_room import ENTRY_BYTES, TOO_LARGE, AnswerRoom
from kafscale.runtime.authorization import Asker
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.transactions import TransactionState
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_transactions as api

NEEDS = needs_of(ApiKey.DESCRIBE_TRANSACTIONS, Side.SERVICE)
(DESCRIBE,) = NEEDS
NO_START_MS = -1
PARTITION_BYTES = 4

Described = api.DescribeTransactionsResponseTransactionState


@answering_with_meta(api)
async def handler(
    context: CoordinatorContext, request: api.DescribeTransactionsRequest, meta: RequestMeta
) -> api.DescribeTransactionsResponse:
    room, asker = AnswerRoom(context.settings.answer_bytes_max), context.authorization.of(meta)
    names = dict.fromkeys(request.transactional_ids)
    return api.DescribeTransactionsResponse(
        transaction_states=[_described(context, asker, name, room) for name in names]
    )


def _described(context: CoordinatorContext, asker: Asker, name: str, room: AnswerRoom) -> Described:
    if not is_legal_id(name):
        return _failed(name, ErrorCode.INVALID_REQUEST)
    state = context.ids.state_of(name)
    if isinstance(state, ErrorCode):
        return _failed(name, state)
    if state is None:
        return _failed(name, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics, phase = _topics(context, asker, state), phase_of(state)
    size = ENTRY_BYTES + sum(ENTRY_BYTES + PARTITION_BYTES * len(each.partitions) for each in topics)
    if not room.take(size):
        return _failed(name, TOO_LARGE)
    return Described(
        transactional_id=name,
        transaction_state=phase.value,
        transaction_timeout_ms=state.timeout_ms,
        transaction_start_time_ms=NO_START_MS if phase is Phase.EMPTY else state.started_ms,
        producer_id=state.producer_id,
        producer_epoch=state.epoch,
        topics=topics,
    )


def _topics(
    context: CoordinatorContext, asker: Asker, state: TransactionState
) -> list[api.DescribeTransactionsResponseTopic]:
    partitions = set(state.current.partitions) if state.current is not None else set()
    if state.closing is not None:
        partitions |= state.closing.awaited.partitions
    by_name: dict[str, list[int]] = defaultdict(list)
    for topic_id, partition in sorted(partitions):
        topic = context.topics.by_id(topic_id)
        if topic is not None:
            by_name[topic.name].append(partition)
    hidden = asker.denied(DESCRIBE, by_name)
    return [
        api.DescribeTransactionsResponseTopic(topic=name, partitions=some)
        for name, some in sorted(by_name.items())
        if name not in hidden
    ]


def _failed(name: str, error: ErrorCode) -> Described:
    return Described(transactional_id=name, error_code=error)
