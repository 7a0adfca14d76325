"""Requests of the plain kind on a bare connection, with whatever numbers and bytes a test wants in them."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.records import Record, build_batch
from kafscale.wire.schema import (
    api_versions,
    create_topics,
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)

from e2e.harness.raw import Raw

TOPIC = "bystander"
PRODUCE_V, FETCH_V, METADATA_V, LIST_V, CREATE_V = 9, 12, 9, 7, 5
INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)


def ask(raw: Raw, schema: ModuleType, version: int, request: Any) -> Any:
    """The answer to any request, by the API's module of messages."""
    body = schema.encode_request(request, version)
    return schema.decode_response(raw.ask(schema.API_KEY, version, body), version)


def batch(
    count: int = 1, *, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1
) -> bytes:
    return build_batch(
        [Record(timestamp=1_700_000_000_000, value=b"v") for _ in range(count)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def produce_body(
    *entries: tuple[str, int, bytes | None], acks: int = -1, timeout_ms: int = 30_000, tid: str | None = None
) -> bytes:
    """Each entry is a separate topic, so that a request can name duplicates."""
    topics = [
        produce.ProduceRequestTopic(
            name=name, partition_data=[produce.ProduceRequestPartition(index=part, records=records)]
        )
        for name, part, records in entries
    ]
    message = produce.ProduceRequest(
        transactional_id=tid, acks=acks, timeout_ms=timeout_ms, topic_data=topics
    )
    return b"".join(produce.encode_request(message, PRODUCE_V))


def ask_produce(raw: Raw, body: bytes) -> list[produce.ProduceResponsePartition]:
    answer = produce.decode_response(raw.ask(ApiKey.PRODUCE, PRODUCE_V, [body]), PRODUCE_V)
    return [part for topic in answer.responses for part in topic.partition_responses]


def send(raw: Raw, records: bytes | None, *, part: int = 0, topic: str = TOPIC) -> int:
    (result,) = ask_produce(raw, produce_body((topic, part, records)))
    return result.error_code


def create(raw: Raw, name: str, *, partitions: int = 1, replication: int = -1) -> int:
    topic = create_topics.CreateTopicsRequestTopic(
        name=name, num_partitions=partitions, replication_factor=replication
    )
    body = create_topics.encode_request(create_topics.CreateTopicsRequest(topics=[topic]), CREATE_V)
    answer = create_topics.decode_response(raw.ask(ApiKey.CREATE_TOPICS, CREATE_V, body), CREATE_V)
    return answer.topics[0].error_code


def usable(raw: Raw) -> bool:
    answer = api_versions.decode_response(
        raw.ask(ApiKey.API_VERSIONS, 0, api_versions.encode_request(api_versions.ApiVersionsRequest(), 0)), 0
    )
    return answer.error_code == 0 and bool(answer.api_keys)


def ask_metadata(raw: Raw, name: str) -> int:
    message = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name)])
    answer = raw.ask(ApiKey.METADATA, METADATA_V, metadata.encode_request(message, METADATA_V))
    return metadata.decode_response(answer, METADATA_V).topics[0].error_code


def init_pid(raw: Raw) -> int:
    message = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answer = raw.ask(ApiKey.INIT_PRODUCER_ID, 1, init_producer_id.encode_request(message, 1))
    decoded = init_producer_id.decode_response(answer, 1)
    assert decoded.error_code == 0
    return decoded.producer_id


def fetch_body(
    *,
    offset: int = 0,
    topic: str = TOPIC,
    part: int = 0,
    max_bytes: int = 1 << 20,
    part_bytes: int = 1 << 20,
    max_wait_ms: int = 100,
    min_bytes: int = 1,
    session_id: int = 0,
    epoch: int = -1,
    leader_epoch: int = -1,
) -> bytes:
    wanted = fetch.FetchRequestPartition(
        partition=part, fetch_offset=offset, partition_max_bytes=part_bytes, current_leader_epoch=leader_epoch
    )
    message = fetch.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session_id,
        session_epoch=epoch,
        topics=[fetch.FetchRequestTopic(topic=topic, partitions=[wanted])],
    )
    return b"".join(fetch.encode_request(message, FETCH_V))


def ask_fetch(raw: Raw, **wanted: object) -> tuple[fetch.FetchResponsePartition, ...]:
    answer = fetch.decode_response(
        raw.ask(ApiKey.FETCH, FETCH_V, [fetch_body(**wanted)]),  # type: ignore[arg-type]
        FETCH_V,
    )
    return tuple(part for topic in answer.responses for part in topic.partitions)


def list_offsets_body(timestamp: int, *, topic: str = TOPIC, part: int = 0) -> Sequence[Buffer]:
    wanted = list_offsets.ListOffsetsRequestPartition(partition_index=part, timestamp=timestamp)
    message = list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[list_offsets.ListOffsetsRequestTopic(name=topic, partitions=[wanted])]
    )
    return list_offsets.encode_request(message, LIST_V)


def list_offsets_answer(answer: bytes) -> tuple[int, int]:
    """Error code and offset."""
    result = list_offsets.decode_response(answer, LIST_V).topics[0].partitions[0]
    return result.error_code, result.offset


def ask_list_offsets(raw: Raw, timestamp: int, *, topic: str = TOPIC, part: int = 0) -> tuple[int, int]:
    """Error code and offset."""
    body = list_offsets_body(timestamp, topic=topic, part=part)
    return list_offsets_answer(raw.ask(ApiKey.LIST_OFFSETS, LIST_V, body))
