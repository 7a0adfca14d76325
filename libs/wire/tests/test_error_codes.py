"""Error codes are found wherever a response has them."""

from kafscale.wire.errors import error_codes
from kafscale.wire.schema.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartitionResult,
    AddPartitionsToTxnResponseResult,
    AddPartitionsToTxnResponseTopicResult,
)
from kafscale.wire.schema.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from kafscale.wire.schema.heartbeat import HeartbeatResponse
from kafscale.wire.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafscale.wire.schema.offset_fetch import OffsetFetchResponse


def test_the_code_of_the_whole_answer_and_those_of_its_parts_are_told() -> None:
    assert list(error_codes(HeartbeatResponse(error_code=27))) == [27]
    metadata = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1)],
        topics=[
            MetadataResponseTopic(error_code=3),
            MetadataResponseTopic(partitions=[MetadataResponsePartition(error_code=5)]),
        ],
    )
    assert list(error_codes(metadata)) == [3, 5]


def test_the_codes_of_partitions_have_another_name_in_one_answer() -> None:
    partitions = [
        AddPartitionsToTxnResponsePartitionResult(partition_error_code=code) for code in (29, 0, 55)
    ]
    topic = AddPartitionsToTxnResponseTopicResult(results_by_partition=partitions)
    old = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])
    assert list(error_codes(old)) == [29, 55]
    result = AddPartitionsToTxnResponseResult(topic_results=[topic])
    assert list(error_codes(AddPartitionsToTxnResponse(error_code=7, results_by_transaction=[result]))) == [
        7,
        29,
        55,
    ]


def test_what_went_well_tells_nothing() -> None:
    assert list(error_codes(HeartbeatResponse())) == []
    assert list(error_codes(OffsetFetchResponse())) == []
    answer = FetchResponse(responses=[FetchResponseTopic(partitions=[FetchResponsePartition(records=b"x")])])
    assert list(error_codes(answer)) == []
