"""AddPartitionsToTxn (24): v0-5.   v2 PRODUCER_FENCED · v3 flexible · v4 several ids · v5 TRANSACTION_ABORTABLE
To the coordinator of the transactional id's slot, once, and only while it is young (see group_calls.py). From v4 on it
is cut by coordinator and joined; brokers of Kafka send these versions. COORDINATOR_NOT_AVAILABLE: not sent.
NOT_COORDINATOR: lost, perhaps added. On both clients repeat the request.
TRANSACTIONAL_ID_AUTHORIZATION_FAILED for every partition; from v4 on CLUSTER_AUTHORIZATION_FAILED for the whole. The
coordinator answers everything else, also TOPIC_AUTHORIZATION_FAILED.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from kafscale.frontdoor.api import Api, Backend, Own, ToSlot, ToSlots
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.key_fields import transactional_id_of
from kafscale.frontdoor.parts import Parts
from kafscale.runtime.stream.age import AGE_MS_MAX
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import add_partitions_to_txn as schema

BATCHES_FROM: Final = 4


def refuse(body: memoryview, version: int, code: ErrorCode) -> Sequence[Buffer]:
    request = schema.decode_request(body, version)
    if version >= BATCHES_FROM:
        response = schema.AddPartitionsToTxnResponse(error_code=int(code))
    else:
        topics = refused_topics(request.v3_and_below_topics, code)
        response = schema.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
    return schema.encode_response(response, version)


def refused_topics(
    asked: Sequence[schema.AddPartitionsToTxnRequestTopic], code: ErrorCode
) -> list[schema.AddPartitionsToTxnResponseTopicResult]:
    return [
        schema.AddPartitionsToTxnResponseTopicResult(
            name=topic.name,
            results_by_partition=[
                schema.AddPartitionsToTxnResponsePartitionResult(
                    partition_index=index, partition_error_code=int(code)
                )
                for index in topic.partitions
            ],
        )
        for topic in asked
    ]


def refused_id(asked: Any, code: ErrorCode) -> schema.AddPartitionsToTxnResponseResult:
    """The entry of an id has no error of its own, so each of its partitions has it."""
    return schema.AddPartitionsToTxnResponseResult(
        transactional_id=asked.transactional_id, topic_results=refused_topics(asked.topics, code)
    )


ONE: Final = ToSlot(key_of=transactional_id_of, age_ms_max=AGE_MS_MAX)
SEVERAL: Final = ToSlots(
    schema=schema,
    asked="transactions",
    response=schema.AddPartitionsToTxnResponse,
    results="results_by_transaction",
    failed=refused_id,
    key="transactional_id",
    age_ms_max=AGE_MS_MAX,
)


class AddPartitionsToTxnHandler:
    def __init__(self, parts: Parts) -> None:
        self._one = partial(parts.slots.call, how=ONE)
        self._several = partial(parts.slots.call_several, how=SEVERAL, need=None)

    def __call__(self, exchange: Exchange) -> None:
        (self._several if exchange.version >= BATCHES_FROM else self._one)(exchange)


API: Final = Api(
    key=ApiKey.ADD_PARTITIONS_TO_TXN,
    versions=(0, 5),
    backend=Backend.COORDINATOR,
    dispatch=Own(AddPartitionsToTxnHandler),
    refuse=refuse,
)
