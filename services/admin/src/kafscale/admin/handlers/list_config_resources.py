"""ListConfigResources (74): v0-1.   v0 client metrics alone (KIP-714) · v1 types of resources (KIP-1142)

Lists topics, brokers (the front doors, by node id) and the groups that have configs. Without a type in the request, it
lists all types. Loggers and client metrics have no configs here, so none is listed, and v0 is always empty.
UNSUPPORTED_VERSION for a type that Kafka does not list; INVALID_REQUEST if the answer would be too large;
REQUEST_TIMED_OUT if the groups cannot be read.
"""

from __future__ import annotations

from kafscale.admin.cluster_view import active, brokers_of
from kafscale.admin.context import AdminContext
from kafscale.admin.resources import BROKER_LOGGER, CLIENT_METRICS, ResourceType
from kafscale.runtime.answer_room import TOO_LARGE, AnswerRoom
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.etcd.client import EtcdError
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import list_config_resources as api

TYPES_FROM = 1
LISTED_TYPES = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    ResourceType.GROUP,
)
RESOURCE_BYTES = 8
"""Of one resource on the wire, at most, without its name."""


@answering_with_meta(api)
async def handler(
    context: AdminContext, request: api.ListConfigResourcesRequest, meta: RequestMeta
) -> api.ListConfigResourcesResponse:
    version = meta.api_version
    asked = set(request.resource_types or LISTED_TYPES) if version >= TYPES_FROM else {CLIENT_METRICS}
    return await _listed(context, meta.listener, asked)


async def _listed(
    context: AdminContext, listener: str | None, asked: set[int]
) -> api.ListConfigResourcesResponse:
    if not asked.issubset(LISTED_TYPES):
        return api.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found: list[tuple[int, str]] = []
    if ResourceType.TOPIC in asked:
        found += [(ResourceType.TOPIC, topic.name) for topic in active(context)]
    if ResourceType.BROKER in asked:
        brokers = await brokers_of(context, listener)
        found += [(ResourceType.BROKER, str(broker.node_id)) for broker in brokers]
    if ResourceType.GROUP in asked:
        try:
            found += [(ResourceType.GROUP, name) for name in await context.group_config_store.names()]
        except EtcdError:
            return api.ListConfigResourcesResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
    room = AnswerRoom(context.settings.answer_bytes_max)
    if not room.take(sum(RESOURCE_BYTES + len(name.encode()) for _, name in found)):
        return api.ListConfigResourcesResponse(error_code=TOO_LARGE)
    resources = [
        api.ListConfigResourcesResponseResource(resource_name=name, resource_type=resource_type)
        for resource_type, name in found
    ]
    return api.ListConfigResourcesResponse(config_resources=resources)
