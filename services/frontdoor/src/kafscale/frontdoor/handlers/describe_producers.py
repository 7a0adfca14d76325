"""DescribeProducers (61): v0-0
Cut by owner as Produce is, and joined in the order of the request; a topic or partition that the view lacks is looked
up first, unless the client may not read the topic. Per partition: TOPIC_AUTHORIZATION_FAILED;
UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER, on which clients retry, if it has no owner, its owner did not answer
or etcd could not be read. The produce service answers all other codes.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

import structlog
from kafscale.access.rules import Side, needs_of
from kafscale.frontdoor.api import Api, Area, Backend, Own
from kafscale.frontdoor.backends import Channel
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.fan_out import Share, fan_out
from kafscale.frontdoor.parts import Parts
from kafscale.runtime.stream.frame import Outcome, Reply
from kafscale.storage.topics import READ_PAUSE_S
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.schema import describe_producers as schema

log = structlog.get_logger("kafscale.frontdoor")

NEEDS: Final = needs_of(ApiKey.DESCRIBE_PRODUCERS, Side.FRONT_DOOR)
(READ,) = NEEDS
UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UNSERVED: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
Place = tuple[str, int]
Found = dict[Place, schema.DescribeProducersResponsePartition]


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    return _encode(request, {}, code, version)


def _encode(
    request: schema.DescribeProducersRequest, found: Found, missing: ErrorCode, version: int
) -> list[Buffer]:
    """The answer in the order of the request; partitions that were not found have the code `missing`."""
    topics = [
        schema.DescribeProducersResponseTopic(
            name=topic.name,
            partitions=[
                found.get((topic.name, index)) or _failed(index, missing) for index in topic.partition_indexes
            ],
        )
        for topic in request.topics
    ]
    return schema.encode_response(schema.DescribeProducersResponse(topics=topics), version)


def _failed(index: int, code: ErrorCode) -> schema.DescribeProducersResponsePartition:
    return schema.DescribeProducersResponsePartition(
        partition_index=index, error_code=int(code), error_message=code.message
    )


class DescribeProducersHandler:
    def __init__(self, parts: Parts) -> None:
        self._routing = parts.routing
        self._clock = parts.clock
        self._topics = parts.topics
        self._doorkeeper = parts.doorkeeper

    def __call__(self, exchange: Exchange) -> None:
        try:
            request = schema.decode_request(exchange.request.body, exchange.version)
        except WireError as error:
            exchange.hang_up(str(error))
            return
        denied = self._doorkeeper.asker(exchange).denied(READ, [topic.name for topic in request.topics])
        ask = partial(self._ask, exchange, request, denied)
        if all(name in denied or self._topics.find(name, index) for name, index in _places(request)):
            ask(True)
        else:
            self._topics.confirm(ask, recent_s=READ_PAUSE_S)

    def _ask(
        self,
        exchange: Exchange,
        request: schema.DescribeProducersRequest,
        denied: Collection[str],
        believe: bool,
    ) -> None:
        """`believe`: what the view lacks does not exist."""
        if exchange.caller.gone or not exchange.unanswered:
            return
        found: Found = {}
        shares: dict[Channel, dict[str, list[int]]] = {}
        for name, index in dict.fromkeys(_places(request)):
            if name in denied:
                found[name, index] = _failed(index, READ.code)
                continue
            topic = self._topics.find(name, index)
            if topic is None:
                found[name, index] = _failed(index, UNKNOWN if believe else UNSERVED)
                continue
            channel = self._routing.producer((topic.topic_id, index))
            if channel is not None:
                shares.setdefault(channel, {}).setdefault(name, []).append(index)
        asked = [Share(channel, _share(own, exchange.version)) for channel, own in shares.items()]
        if asked:
            fan_out(exchange, self._clock, asked, partial(self._join, exchange, request, found))
        else:
            self._join(exchange, request, found, ())

    def _join(
        self,
        exchange: Exchange,
        request: schema.DescribeProducersRequest,
        found: Found,
        replies: Sequence[Reply],
    ) -> None:
        for reply in replies:
            if reply.status.outcome is Outcome.ANSWERED:
                found.update(_read(reply.body, exchange.version))
        exchange.answer(_encode(request, found, UNSERVED, exchange.version))


def _places(request: schema.DescribeProducersRequest) -> list[Place]:
    return [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]


def _share(own: dict[str, list[int]], version: int) -> list[Buffer]:
    topics = [
        schema.DescribeProducersRequestTopic(name=name, partition_indexes=indexes)
        for name, indexes in own.items()
    ]
    return schema.encode_request(schema.DescribeProducersRequest(topics=topics), version)


def _read(body: memoryview, version: int) -> Found:
    try:
        response = schema.decode_response(body, version)
    except WireError as error:
        log.error("invalid answer of a produce service", reason=str(error))
        return {}
    return {
        (topic.name, part.partition_index): part for topic in response.topics for part in topic.partitions
    }


API: Final = Api(
    key=ApiKey.DESCRIBE_PRODUCERS,
    versions=(0, 0),
    backend=Backend.PRODUCE,
    dispatch=Own(DescribeProducersHandler),
    refuse=refuse,
    large_answer=True,
    asks=NEEDS,
    reads=Area.RECORDS,
)
