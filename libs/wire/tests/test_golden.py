"""Bytes written out by hand from the protocol guide, one message per kind of layout."""

from __future__ import annotations

import pytest
from kafscale.wire.schema import (
    api_versions,
    fetch,
    find_coordinator,
    init_producer_id,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)

ID = bytes(range(16))
RECORDS = b"opaque bytes"


def golden(*parts: bytes | str) -> bytes:
    """Hex and raw bytes in a row; spaces are only for the reader."""
    return b"".join(part if isinstance(part, bytes) else bytes.fromhex(part) for part in parts)


def test_api_versions_v0_response() -> None:
    key = api_versions.ApiVersionsResponseVersion(api_key=18, min_version=0, max_version=4)
    response = api_versions.ApiVersionsResponse(error_code=35, api_keys=[key])
    data = golden("0023", "00000001", "0012 0000 0004")
    assert api_versions.encode_response(response, 0) == [data]
    assert api_versions.decode_response(data, 0) == response


def test_api_versions_v3_response_with_every_tagged_field() -> None:
    response = api_versions.ApiVersionsResponse(
        api_keys=[api_versions.ApiVersionsResponseVersion(api_key=0, min_version=0, max_version=11)],
        supported_features=[
            api_versions.ApiVersionsResponseSupportedFeatureKey(name="f", min_version=1, max_version=2)
        ],
        finalized_features_epoch=5,
        finalized_features=[
            api_versions.ApiVersionsResponseFinalizedFeatureKey(
                name="f", max_version_level=2, min_version_level=1
            )
        ],
        zk_migration_ready=True,
    )
    feature = "02 02 66 0001 0002 00"
    final = "02 02 66 0002 0001 00"
    data = golden(
        "0000", "02", "0000 0000 000b 00", "00000000", "04", "00 08", feature, "01 08 0000000000000005"
    )
    data += golden("02 08", final, "03 01 01")
    assert b"".join(api_versions.encode_response(response, 3)) == data
    assert api_versions.decode_response(data, 3) == response


def test_api_versions_v3_request() -> None:
    data = golden("05", b"rdkf", "06", b"2.0.2", "00")
    request = api_versions.decode_request(data, 3)
    assert (request.client_software_name, request.client_software_version) == ("rdkf", "2.0.2")


@pytest.mark.parametrize(
    ("records", "length"), [(RECORDS, "0000000c"), (b"", "00000000"), (None, "ffffffff")]
)
def test_produce_v3_request(records: bytes | None, length: str) -> None:
    data = golden("ffff ffff 00007530 00000001", "0001", b"t", "00000001 00000002", length, records or b"")
    request = produce.decode_request(memoryview(data), 3)
    partition = request.topic_data[0].partition_data[0]
    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, -1, 30000)
    assert (request.topic_data[0].name, partition.index, partition.records) == ("t", 2, records)
    assert b"".join(produce.encode_request(request, 3)) == data


def test_produce_v13_request_names_topics_by_id() -> None:
    data = golden("00 0001 000003e8 02", ID, "02 00000000 0d", RECORDS, "00 00 00")
    request = produce.decode_request(data, 13)
    assert request.topic_data[0].topic_id == ID
    assert request.topic_data[0].partition_data[0].records == RECORDS
    assert b"".join(produce.encode_request(request, 13)) == data


def test_produce_v10_response_sends_its_tagged_fields_only_when_they_say_something() -> None:
    partition = produce.ProduceResponsePartition(index=1, base_offset=2, log_start_offset=0)
    response = produce.ProduceResponse(
        responses=[produce.ProduceResponseTopic("t", partition_responses=[partition])]
    )
    head = golden("02 02", b"t", "02 00000001 0000 0000000000000002 ffffffffffffffff 0000000000000000 01 00")
    assert produce.encode_response(response, 10) == [head + golden("00 00 00000000 00")]
    partition.current_leader = produce.ProduceResponseLeaderIdAndEpoch(leader_id=3, leader_epoch=4)
    partition.error_code = 6
    response.node_endpoints = [produce.ProduceResponseNodeEndpoint(node_id=3, host="h", port=9092)]
    head = golden("02 02", b"t", "02 00000001 0006 0000000000000002 ffffffffffffffff 0000000000000000 01 00")
    tail = golden("01 00 09 00000003 00000004 00", "00", "00000000")
    endpoints = golden("01 00 0d 02 00000003 02", b"h", "00002384 00 00")
    assert b"".join(produce.encode_response(response, 10)) == head + tail + endpoints
    assert produce.decode_response(head + tail + endpoints, 10) == response


def test_fetch_v12_response_passes_record_buffers_on_and_copies_none() -> None:
    pieces = [bytearray(b"one"), memoryview(b"two"), b"three"]
    partitions = [
        fetch.FetchResponsePartition(partition_index=n, high_watermark=9, records=records)
        for n, records in enumerate((pieces, b"", None, pieces[1]))
    ]
    response = fetch.FetchResponse(responses=[fetch.FetchResponseTopic("t", partitions=partitions)])
    parts = fetch.encode_response(response, 12)
    assert [part for part in parts if any(part is piece for piece in pieces)] == [*pieces, pieces[1]]
    assert len(parts) == 7
    decoded = fetch.decode_response(b"".join(parts), 12)
    assert [p.records for p in decoded.responses[0].partitions] == [b"onetwothree", b"", None, b"two"]


def test_records_are_views_into_the_request() -> None:
    buffer = bytearray(
        golden("ffff 0001 00000001 00000001", "0001", b"t", "00000001 00000000 0000000c", RECORDS)
    )
    records = produce.decode_request(buffer, 3).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    buffer[-1] = ord("S")
    assert records == b"opaque byteS"


def test_metadata_request_tells_all_topics_from_none() -> None:
    assert metadata.decode_request(golden("00000000"), 0).topics == []
    assert metadata.decode_request(golden("ffffffff"), 1).topics is None
    assert metadata.decode_request(golden("00000000 01"), 4).topics == []
    assert metadata.decode_request(golden("ffffffff 00"), 4).allow_auto_topic_creation is False
    assert metadata.decode_request(golden("00000000"), 0).allow_auto_topic_creation is True


def test_metadata_v12_request_asks_by_id_or_by_name() -> None:
    data = golden("03", ID, "00 00", bytes(16), "02", b"t", "00", "01 00 00")
    topics = metadata.decode_request(data, 12).topics
    assert topics is not None
    assert [(topic.topic_id, topic.name) for topic in topics] == [(ID, None), (bytes(16), "t")]


def test_find_coordinator_answers_one_or_many() -> None:
    one = find_coordinator.FindCoordinatorResponse(node_id=1, host="h", port=9092)
    assert find_coordinator.encode_response(one, 0) == [golden("0000 00000001 0001", b"h", "00002384")]
    many = find_coordinator.FindCoordinatorResponse(
        coordinators=[find_coordinator.FindCoordinatorResponseCoordinator("g", 1, "h", 9092)]
    )
    data = golden("00000000 02 02", b"g", "00000001 02", b"h", "00002384 0000 01 00 00")
    assert find_coordinator.encode_response(many, 4) == [data]


def test_init_producer_id_defaults_are_no_producer() -> None:
    request = init_producer_id.decode_request(golden("00 00007530 00"), 2)
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == (None, -1, -1)


def test_offset_commit_v0_knows_no_member() -> None:
    data = golden("0001", b"g", "00000001 0001", b"t", "00000001 00000002 0000000000000007 0001", b"m")
    request = offset_commit.decode_request(data, 0)
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", -1, "")
    partition = request.topics[0].partitions[0]
    assert (partition.partition_index, partition.committed_offset, partition.committed_metadata) == (
        2,
        7,
        "m",
    )
    assert (partition.commit_timestamp, request.retention_time_ms) == (-1, -1)
    assert b"".join(offset_commit.encode_request(request, 0)) == data


def test_offset_commit_v1_dates_each_partition() -> None:
    head = golden("0001", b"g", "00000005 0001", b"a", "00000001 0001", b"t", "00000001 00000002")
    data = head + golden("0000000000000007 0000018bcfe56800 ffff")
    request = offset_commit.decode_request(data, 1)
    assert (request.generation_id_or_member_epoch, request.member_id) == (5, "a")
    partition = request.topics[0].partitions[0]
    assert (partition.committed_offset, partition.commit_timestamp) == (7, 1_700_000_000_000)
    assert partition.committed_metadata is None
    assert b"".join(offset_commit.encode_request(request, 1)) == data


def test_offset_fetch_v0_has_the_bytes_of_v1() -> None:
    data = golden("0001", b"g", "00000001 0001", b"t", "00000001 00000002")
    request = offset_fetch.decode_request(data, 0)
    assert request == offset_fetch.decode_request(data, 1)
    partition = offset_fetch.OffsetFetchResponsePartition(2, committed_offset=-1, error_code=3)
    answer = offset_fetch.OffsetFetchResponse(
        topics=[offset_fetch.OffsetFetchResponseTopic("t", partitions=[partition])]
    )
    wire = golden("00000001 0001", b"t", "00000001 00000002 ffffffffffffffff 0000 0003")
    assert b"".join(offset_fetch.encode_response(answer, 0)) == wire
    assert b"".join(offset_fetch.encode_response(answer, 1)) == wire


def test_fields_that_a_version_lacks_have_kafkas_defaults() -> None:
    request = fetch.decode_request(golden("ffffffff 000001f4 00000001 00000000"), 0)
    assert (request.max_bytes, request.session_epoch, request.isolation_level) == (0x7FFFFFFF, -1, 0)
    assert request.replica_state == fetch.FetchRequestReplicaState(-1, -1)
    response = fetch.decode_response(golden("00000000"), 0)
    assert (response.session_id, response.node_endpoints) == (0, [])
    assert fetch.FetchResponsePartition().records == b""
    assert metadata.MetadataResponseTopic().topic_authorized_operations == -(1 << 31)
