"""The messages of transactions beside Apache Kafka's own code, in every version: byte for byte the same."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

from kafscale.frontdoor.apis import SERVED
from kafscale.testkit.requests import one_of_each
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    module_of,
    txn_offset_commit,
)

from e2e.harness.kafka_tools import require_java
from e2e.harness.refusals import Message, Refused, kafkas_refusals, read_by_kafka

KEYS: Final = (
    *(ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN),
    *(ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS),
)
CODES: Final = (
    *(ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    *(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
)
"""Those that the front door answers itself."""
ID, GROUP, TOPICS = "größe-" + "n" * 200, "a group", ("t", "")
PRODUCER: Final = {"producer_id": 2**40 + 7, "producer_epoch": 258}


def versions(key: ApiKey) -> range:
    low, high = SERVED[key].versions
    return range(low, high + 1)


def requests(key: ApiKey) -> Iterator[Any]:
    """Each field has a value of its own, which no default is."""
    match key:
        case ApiKey.INIT_PRODUCER_ID:
            for name in (ID, None):
                yield init_producer_id.InitProducerIdRequest(
                    transactional_id=name, transaction_timeout_ms=70_000, **PRODUCER
                )
        case ApiKey.ADD_PARTITIONS_TO_TXN:
            schema = add_partitions_to_txn
            topics = [
                schema.AddPartitionsToTxnRequestTopic(name=name, partitions=[3, 65_540]) for name in TOPICS
            ]
            entry = schema.AddPartitionsToTxnRequestTransaction(
                transactional_id=ID, verify_only=True, topics=topics, **PRODUCER
            )
            yield schema.AddPartitionsToTxnRequest(
                transactions=[entry],
                v3_and_below_transactional_id=ID,
                v3_and_below_topics=topics,
                **{f"v3_and_below_{name}": value for name, value in PRODUCER.items()},
            )
        case ApiKey.ADD_OFFSETS_TO_TXN:
            yield add_offsets_to_txn.AddOffsetsToTxnRequest(transactional_id=ID, group_id=GROUP, **PRODUCER)
        case ApiKey.END_TXN:
            for committed in (True, False):
                yield end_txn.EndTxnRequest(transactional_id=ID, committed=committed, **PRODUCER)
        case ApiKey.DESCRIBE_TRANSACTIONS:
            yield describe_transactions.DescribeTransactionsRequest(transactional_ids=[ID, "other"])
        case ApiKey.LIST_TRANSACTIONS:
            for pattern in ("a.*", None):
                yield list_transactions.ListTransactionsRequest(
                    state_filters=["Ongoing"],
                    producer_id_filters=[2**40 + 7],
                    duration_filter=70_003,
                    transactional_id_pattern=pattern,
                )
        case _:
            yield from committed_offsets()


def committed_offsets() -> Iterator[Any]:
    schema = txn_offset_commit
    partitions = [
        schema.TxnOffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=2**33 + index,
            committed_leader_epoch=index + 5,
            committed_metadata=metadata,
        )
        for index, metadata in enumerate(("größe", "", None))
    ]
    topics = [schema.TxnOffsetCommitRequestTopic(name=name, partitions=partitions) for name in TOPICS]
    for instance in ("an instance", None):
        yield schema.TxnOffsetCommitRequest(
            transactional_id=ID,
            group_id=GROUP,
            generation_id=70_001,
            member_id="a member",
            group_instance_id=instance,
            topics=topics,
            **PRODUCER,
        )


def responses(key: ApiKey) -> Iterator[Any]:
    said = {"throttle_time_ms": 70_002, "error_code": 51}
    match key:
        case ApiKey.INIT_PRODUCER_ID:
            yield init_producer_id.InitProducerIdResponse(**said, **PRODUCER)
        case ApiKey.ADD_PARTITIONS_TO_TXN:
            schema = add_partitions_to_txn
            partitions = [
                schema.AddPartitionsToTxnResponsePartitionResult(partition_index=3, partition_error_code=code)
                for code in (0, 29, 55)
            ]
            topics = [
                schema.AddPartitionsToTxnResponseTopicResult(name=name, results_by_partition=partitions)
                for name in TOPICS
            ]
            result = schema.AddPartitionsToTxnResponseResult(transactional_id=ID, topic_results=topics)
            yield schema.AddPartitionsToTxnResponse(
                **said, results_by_transaction=[result], results_by_topic_v3_and_below=topics
            )
        case ApiKey.ADD_OFFSETS_TO_TXN:
            yield add_offsets_to_txn.AddOffsetsToTxnResponse(**said)
        case ApiKey.END_TXN:
            yield end_txn.EndTxnResponse(**said, **PRODUCER)
        case ApiKey.DESCRIBE_TRANSACTIONS:
            yield described()
        case ApiKey.LIST_TRANSACTIONS:
            one = list_transactions.ListTransactionsResponseTransactionState(
                transactional_id=ID, producer_id=2**40 + 7, transaction_state="PrepareCommit"
            )
            yield list_transactions.ListTransactionsResponse(
                **said, unknown_state_filters=["Dreaming"], transaction_states=[one]
            )
        case _:
            partition = txn_offset_commit.TxnOffsetCommitResponsePartition(partition_index=3, error_code=22)
            topic = txn_offset_commit.TxnOffsetCommitResponseTopic(name="t", partitions=[partition])
            yield txn_offset_commit.TxnOffsetCommitResponse(throttle_time_ms=70_002, topics=[topic])


def described() -> Any:
    schema = describe_transactions
    state = schema.DescribeTransactionsResponseTransactionState(
        error_code=105,
        transactional_id=ID,
        transaction_state="Ongoing",
        transaction_timeout_ms=70_004,
        transaction_start_time_ms=1_700_000_000_000,
        topics=[schema.DescribeTransactionsResponseTopic(topic="t", partitions=[3, 65_540])],
        **PRODUCER,
    )
    return schema.DescribeTransactionsResponse(throttle_time_ms=70_002, transaction_states=[state])


def encoded(schema: ModuleType, kind: str, message: Any, version: int) -> bytes:
    return b"".join(map(bytes, getattr(schema, f"encode_{kind}")(message, version)))


def test_apache_kafka_reads_what_is_written_here_and_writes_the_same() -> None:
    require_java()
    messages = [
        Message(key, version, kind, encoded(module_of(key), kind, message, version))
        for key in KEYS
        for version in versions(key)
        for kind, of in (("request", requests), ("response", responses))
        for message in of(key)
    ]
    found = list(zip(messages, read_by_kafka(messages), strict=True))
    assert len(found) > 60
    for message, read in found:
        assert read is not None, "Apache Kafka knows every version"
        written, words = read
        assert written == message.body
        assert "unknownTaggedFields" not in words
        if message.kind == "request" and message.key in (*KEYS[1:5], *KEYS[:1]) and "Id=null" not in words:
            assert f"ransactionalId='{ID}'" in words
        if message.key == ApiKey.TXN_OFFSET_COMMIT and message.kind == "request":
            assert f"groupId='{GROUP}'" in words


def test_what_the_front_door_answers_itself_is_what_apache_kafka_answers() -> None:
    require_java()
    cases = [
        Refused(key, version, code, encoded(module_of(key), "request", request, version))
        for key in KEYS
        for version in versions(key)
        for request in (one_of_each(module_of(key)), *requests(key))
        for code in CODES
    ]
    different = {
        f"{case.key.name} v{case.version} {case.code.name}"  # type: ignore[attr-defined]
        for case, kafkas in zip(cases, kafkas_refusals(cases), strict=True)
        if b"".join(map(bytes, SERVED[case.key].refuse(memoryview(case.body), case.version, case.code)))
        != kafkas
    }
    assert different == set()
