"""ListConfigResources (74): v0-1.   v0 client metrics alone (KIP-714) · v1 types of resources (KIP-1142)

Topics and brokers, which are the resources that DescribeConfigs answers for; a broker is a front door, named by its
node id. No type named means all of them. Loggers, client metrics and groups have no configs here, so none is listed,
and v0 is always empty. UNSUPPORTED_VERSION for a type that Kafka does not list.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.admin.context import AdminContext
from kafscale.admin.picture import active, brokers_of
from kafscale.admin.resources import ResourceType
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.list_config_resources import (
    ListConfigResourcesResponse,
    ListConfigResourcesResponseResource,
    decode_request,
    encode_response,
)

TYPES_FROM = 1
BROKER_LOGGER, CLIENT_METRICS, GROUP = 8, 16, 32
KINDS = (ResourceType.TOPIC, ResourceType.BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


def handler(context: AdminContext) -> AsyncHandler:
    async def list_config_resources(inbound: InboundRequest) -> Sequence[Buffer]:
        version = inbound.meta.api_version
        request = decode_request(inbound.body, version)
        asked = set(request.resource_types or KINDS) if version >= TYPES_FROM else {CLIENT_METRICS}
        if not asked.issubset(KINDS):
            refused = ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            return answered(inbound, refused, encode_response)
        found: list[tuple[int, str]] = []
        if ResourceType.TOPIC in asked:
            found += [(ResourceType.TOPIC, topic.name) for topic in active(context)]
        if ResourceType.BROKER in asked:
            brokers = await brokers_of(context, inbound.meta.listener)
            found += [(ResourceType.BROKER, str(broker.node_id)) for broker in brokers]
        resources = [
            ListConfigResourcesResponseResource(resource_name=name, resource_type=kind)
            for kind, name in found
        ]
        return answered(inbound, ListConfigResourcesResponse(config_resources=resources), encode_response)

    return list_config_resources
