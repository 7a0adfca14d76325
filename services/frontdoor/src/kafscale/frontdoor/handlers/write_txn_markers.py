"""WriteTxnMarkers (27): v1-2   v2 transaction version (KIP-1228), which is not looked at
What an operator sends to abort a transaction that nobody ends (`kafka-transactions abort`). Cut by owner and joined in
the order of the request (owner_calls.py). Per partition: UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER, on which
tools retry, if it has no owner, its owner did not answer or etcd could not be read. The produce service answers all
other codes.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from kafscale.frontdoor.api import Api, Backend, Place, ToOwners
from kafscale.frontdoor.owner_calls import refuse_partitions
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import write_txn_markers as schema

Codes = defaultdict[int, int]
"""The codes of a partition, by producer id: a request may end transactions of several producers there."""


def places(request: schema.WriteTxnMarkersRequest) -> Sequence[Place]:
    return [
        Place(topic.name, index)
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]


def share(request: schema.WriteTxnMarkersRequest, own: Sequence[Place]) -> schema.WriteTxnMarkersRequest:
    wanted, markers = set(own), []
    for marker in request.markers:
        topics = [
            schema.WriteTxnMarkersRequestWritableMarkerTopic(topic.name, indexes)
            for topic in marker.topics
            if (indexes := [index for index in topic.partition_indexes if Place(topic.name, index) in wanted])
        ]
        if topics:
            markers.append(msgspec.structs.replace(marker, topics=topics))
    return schema.WriteTxnMarkersRequest(markers=markers)


def entries(response: schema.WriteTxnMarkersResponse) -> Mapping[Place, Codes]:
    found: dict[Place, Codes] = {}
    for marker in response.markers:
        for topic in marker.topics:
            for entry in topic.partitions:
                place = Place(topic.name, entry.partition_index)
                codes = found.setdefault(place, failed(place, ErrorCode.NOT_LEADER_OR_FOLLOWER))
                codes[marker.producer_id] = entry.error_code
    return found


def failed(_place: Place, code: ErrorCode) -> Codes:
    return defaultdict(lambda: int(code))


def answer(
    request: schema.WriteTxnMarkersRequest, entry_of: Callable[[Place], Codes]
) -> schema.WriteTxnMarkersResponse:
    return schema.WriteTxnMarkersResponse(
        markers=[
            schema.WriteTxnMarkersResponseWritableMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    schema.WriteTxnMarkersResponseWritableMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            schema.WriteTxnMarkersResponseWritableMarkerPartitionResult(
                                index, entry_of(Place(topic.name, index))[marker.producer_id]
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


OWNERS: Final = ToOwners(
    schema=schema, places=places, share=share, entries=entries, failed=failed, answer=answer
)

API: Final = Api(
    key=ApiKey.WRITE_TXN_MARKERS,
    versions=(1, 2),
    backend=Backend.PRODUCE,
    dispatch=OWNERS,
    refuse=refuse_partitions(OWNERS),
)
