"""DescribeTopicPartitions (75): v0-0
Admin answers. While none is there, the topics named are LEADER_NOT_AVAILABLE, which clients retry. As in Metadata,
"all topics" cannot be answered without admin: the connection is closed, and the client asks again.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Backend, Forward
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.schema import describe_topic_partitions as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    if not request.topics:
        raise WireError(
            "DescribeTopicPartitions",
            "all topics were asked for, and no admin service is there",
            version=version,
        )
    topics = [
        schema.DescribeTopicPartitionsResponseDescribeTopicPartitionsResponseTopic(
            error_code=int(code), name=topic.name
        )
        for topic in request.topics
    ]
    return schema.encode_response(schema.DescribeTopicPartitionsResponse(topics=topics), version)


API: Final = Api(
    key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    versions=(0, 0),
    backend=Backend.ADMIN,
    dispatch=Forward(unavailable=ErrorCode.LEADER_NOT_AVAILABLE),
    refuse=refuse,
    large_answer=True,
)
