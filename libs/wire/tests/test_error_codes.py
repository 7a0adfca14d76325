"""Error codes are found wherever a response has them."""

from kafscale.wire.errors import error_codes
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


def test_what_went_well_tells_nothing() -> None:
    assert list(error_codes(HeartbeatResponse())) == []
    assert list(error_codes(OffsetFetchResponse())) == []
    answer = FetchResponse(responses=[FetchResponseTopic(partitions=[FetchResponsePartition(records=b"x")])])
    assert list(error_codes(answer)) == []
