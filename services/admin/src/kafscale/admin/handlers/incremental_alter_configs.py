"""IncrementalAlterConfigs (44): v0-1 (KIP-339). Sets, resets, appends to or subtracts from single keys, of
topics and groups (KIP-848).

INVALID_CONFIG names the key that is unknown, bad or read-only; brokers are read-only; UNKNOWN_TOPIC_OR_PARTITION;
INVALID_REQUEST for a key or a resource that is named twice, an empty group id, another type of resource;
POLICY_VIOLATION if the maximum number of groups have configs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafscale.admin.alterations import changed
from kafscale.admin.config_table import ConfigTable
from kafscale.admin.context import AdminContext
from kafscale.admin.plan import Refused
from kafscale.admin.resources import alter_each
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.wire.buffers import Buffer
from kafscale.wire.schema.incremental_alter_configs import (
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResource,
    decode_request,
    encode_response,
)


def handler(context: AdminContext) -> AsyncHandler:
    async def incremental_alter_configs(inbound: InboundRequest) -> Sequence[Buffer]:
        request = decode_request(inbound.body, inbound.meta.api_version)
        answers = await alter_each(
            context,
            request.resources,
            _change,
            IncrementalAlterConfigsResponseResource,
            validate_only=request.validate_only,
        )
        return answered(inbound, IncrementalAlterConfigsResponse(responses=answers), encode_response)

    return incremental_alter_configs


def _change(
    resource: IncrementalAlterConfigsRequestResource, table: ConfigTable, configs: Mapping[str, str]
) -> dict[str, str] | Refused:
    return changed(table, configs, resource.configs)
