"""DescribeLogDirs (35): v0-5.   v2 flexible · v3 error of the whole answer · v4 bytes of the volume · v5 cordoned
Tools ask every broker and add up the answers, so each answers only for the partitions that it leads on this listener,
and asks admin for those alone. A topic that the view lacks is looked up first. While no admin is there, this front
door is not registered or etcd cannot be asked: NOT_CONTROLLER.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from kafscale.frontdoor.api import Api, Area, Backend, Forward, Own
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.parts import Parts
from kafscale.frontdoor.refusals import refuse_exchange
from kafscale.frontdoor.routing import brokers_for
from kafscale.storage.brokers import leader_of
from kafscale.storage.topics import READ_PAUSE_S, Topic
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_log_dirs as schema

ERROR_OF_ALL_FROM: Final = 3
FORWARD: Final = Forward(unavailable=ErrorCode.NOT_CONTROLLER)


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    """Before v3 only a directory can have an error; it is then one without a name. For a client that may not describe
    the cluster there is none, as in Kafka: clients of these versions read an empty answer as that error."""
    schema.decode_request(body, version)
    response = schema.DescribeLogDirsResponse(error_code=int(code), results=[])
    if version < ERROR_OF_ALL_FROM and code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        response.results = [schema.DescribeLogDirsResponseResult(error_code=int(code))]
    return schema.encode_response(response, version)


class DescribeLogDirsHandler:
    def __init__(self, parts: Parts) -> None:
        self._forwarder = parts.forwarder
        self._topics = parts.topics
        self._front_doors = parts.front_doors
        self._node_id = parts.node_id

    def __call__(self, exchange: Exchange) -> None:
        request = schema.decode_request(exchange.request.body, exchange.version)
        if all(self._topics.by_name(asked.topic) for asked in request.topics or []):
            self._ask(exchange, request, True)
        else:
            self._topics.confirm(partial(self._ask, exchange, request), recent_s=READ_PAUSE_S)

    def _ask(self, exchange: Exchange, request: schema.DescribeLogDirsRequest, believe: bool) -> None:
        """`believe`: the view of topics is as new as the request."""
        if exchange.caller.gone or not exchange.unanswered:
            return
        view = brokers_for(exchange.caller.listener, self._front_doors, self._node_id)
        if view.here is None or not believe:
            refuse_exchange(exchange, FORWARD.unavailable)
            return
        here, brokers = view.here.node_id, view.brokers
        share = [
            schema.DescribeLogDirsRequestDescribableDirTopic(
                topic=topic.name,
                partitions=[n for n in numbers if leader_of(topic.topic_id, n, brokers) == here],
            )
            for topic, numbers in self._asked(request)
        ]
        led = schema.DescribeLogDirsRequest(topics=[topic for topic in share if topic.partitions])
        body = schema.encode_request(led, exchange.version)
        self._forwarder.forward(exchange, FORWARD, body=body)

    def _asked(self, request: schema.DescribeLogDirsRequest) -> Iterable[tuple[Topic, Iterable[int]]]:
        if request.topics is None:
            return [(topic, range(topic.partitions)) for topic in self._topics.all()]
        found = [(self._topics.by_name(asked.topic), asked.partitions) for asked in request.topics]
        return [(topic, numbers) for topic, numbers in found if topic is not None]


API: Final = Api(
    key=ApiKey.DESCRIBE_LOG_DIRS,
    versions=(0, 5),
    backend=Backend.ADMIN,
    dispatch=Own(DescribeLogDirsHandler),
    refuse=refuse,
    large_answer=True,
    reads=Area.RECORDS,
)
