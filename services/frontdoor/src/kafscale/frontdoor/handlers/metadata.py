"""Metadata (3): v0-13.   v1 null = all · v4 auto-creation asked for · v9 flexible · v10 topic ids · v13 error
Admin answers. While none is there, the topics asked for by name are LEADER_NOT_AVAILABLE, which every
client retries, under the brokers and the cluster id this process knows. librdkafka copies the id without a look at
whether there is one, so the id is never null. "All topics" cannot be answered without admin: an
empty list would be a false statement, so the connection is closed, and the client asks again.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from kafscale.frontdoor.api import Api, Backend, Forward, Own
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.parts import Parts
from kafscale.storage.brokers import brokers_on
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.schema import metadata as schema

NULL_NAMES_FROM: Final = 12


def refuse(
    body: memoryview,
    version: int,
    code: ErrorCode,
    *,
    brokers: Sequence[schema.MetadataResponseBroker] = (),
    cluster_id: str = "",
) -> list[Buffer]:
    request = schema.decode_request(body, version)
    if request.topics is None or (version == 0 and not request.topics):
        raise WireError(
            "Metadata", "all topics were asked for, and no admin service is there", version=version
        )
    topics = [
        schema.MetadataResponseTopic(
            error_code=int(code),
            name=topic.name if topic.name is not None or version >= NULL_NAMES_FROM else "",
            topic_id=topic.topic_id,
            partitions=[],
        )
        for topic in request.topics
    ]
    controller_id = brokers[0].node_id if brokers else -1
    response = schema.MetadataResponse(
        brokers=list(brokers), cluster_id=cluster_id, controller_id=controller_id, topics=topics
    )
    return schema.encode_response(response, version)


FORWARD: Final = Forward(unavailable=ErrorCode.LEADER_NOT_AVAILABLE)


class MetadataHandler:
    def __init__(self, parts: Parts) -> None:
        self._forwarder = parts.forwarder
        self._front_doors = parts.front_doors
        self._cluster_id = parts.cluster_id

    def __call__(self, exchange: Exchange) -> None:
        brokers = self.brokers(exchange.caller.listener)
        known = partial(refuse, brokers=brokers, cluster_id=self._cluster_id())
        self._forwarder.forward(exchange, FORWARD, refuse=known)

    def brokers(self, listener: str) -> list[schema.MetadataResponseBroker]:
        """The front doors, as the admin service would name them."""
        return [
            schema.MetadataResponseBroker(
                node_id=each.node_id, host=each.host, port=each.port, rack=each.rack
            )
            for each in brokers_on(listener, self._front_doors.instances())
        ]


API: Final = Api(
    key=ApiKey.METADATA,
    versions=(0, 13),
    backend=Backend.ADMIN,
    dispatch=Own(MetadataHandler),
    refuse=refuse,
    large_answer=True,
)
