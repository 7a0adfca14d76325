"""DescribeProducers (61): v0-0
Cut by owner and joined in the order of the request (owner_calls.py). Per partition: TOPIC_AUTHORIZATION_FAILED;
UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER, on which clients retry, if it has no owner, its owner did not answer
or etcd could not be read. The produce service answers all other codes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kafscale.frontdoor.api import Api, Area, Backend, Place, ToOwners
from kafscale.frontdoor.owner_calls import refuse_partitions
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_producers as schema

Entry = schema.DescribeProducersResponsePartition


def places(request: schema.DescribeProducersRequest) -> Sequence[Place]:
    return [Place(topic.name, index) for topic in request.topics for index in topic.partition_indexes]


def share(_request: schema.DescribeProducersRequest, own: Sequence[Place]) -> schema.DescribeProducersRequest:
    topics: dict[str, schema.DescribeProducersRequestTopic] = {}
    for name, index in own:
        topic = topics.setdefault(name, schema.DescribeProducersRequestTopic(name=name))
        topic.partition_indexes.append(index)
    return schema.DescribeProducersRequest(topics=list(topics.values()))


def entries(response: schema.DescribeProducersResponse) -> Mapping[Place, Entry]:
    return {
        Place(topic.name, entry.partition_index): entry
        for topic in response.topics
        for entry in topic.partitions
    }


def failed(place: Place, code: ErrorCode) -> Entry:
    return Entry(partition_index=place.partition, error_code=int(code), error_message=code.message)


def answer(
    request: schema.DescribeProducersRequest, entry_of: Callable[[Place], Entry]
) -> schema.DescribeProducersResponse:
    topics = [
        schema.DescribeProducersResponseTopic(
            name=topic.name,
            partitions=[entry_of(Place(topic.name, index)) for index in topic.partition_indexes],
        )
        for topic in request.topics
    ]
    return schema.DescribeProducersResponse(topics=topics)


OWNERS: Final = ToOwners(
    schema=schema, places=places, share=share, entries=entries, failed=failed, answer=answer
)

API: Final = Api(
    key=ApiKey.DESCRIBE_PRODUCERS,
    versions=(0, 0),
    backend=Backend.PRODUCE,
    dispatch=OWNERS,
    refuse=refuse_partitions(OWNERS),
    large_answer=True,
    reads=Area.RECORDS,
)
