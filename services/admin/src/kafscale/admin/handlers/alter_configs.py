"""AlterConfigs (33): v0-2. Replaces the whole set of configs of a topic or of a group (KIP-848).

INVALID_CONFIG names the key that is unknown, bad or read-only; brokers are read-only; UNKNOWN_TOPIC_OR_PARTITION;
INVALID_REQUEST for a key or a resource that is named twice, an empty group id, another type of resource;
POLICY_VIOLATION if the maximum number of groups have configs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafscale.admin.alterations import replaced
from kafscale.admin.config_table import ConfigTable
from kafscale.admin.context import AdminContext
from kafscale.admin.plan import Refused
from kafscale.admin.resources import alter_each
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.wire.buffers import Buffer
from kafscale.wire.schema.alter_configs import (
    AlterConfigsRequestResource,
    AlterConfigsResponse,
    AlterConfigsResponseResource,
    decode_request,
    encode_response,
)


def handler(context: AdminContext) -> AsyncHandler:
    async def alter_configs(inbound: InboundRequest) -> Sequence[Buffer]:
        request = decode_request(inbound.body, inbound.meta.api_version)
        answers = await alter_each(
            context,
            request.resources,
            _replace,
            AlterConfigsResponseResource,
            validate_only=request.validate_only,
        )
        return answered(inbound, AlterConfigsResponse(responses=answers), encode_response)

    return alter_configs


def _replace(
    resource: AlterConfigsRequestResource, table: ConfigTable, _: Mapping[str, str]
) -> dict[str, str] | Refused:
    return replaced(table, [(config.name, config.value) for config in resource.configs])
