"""IncrementalAlterConfigs (44): v0-1 (KIP-339). Sets, resets, appends to or subtracts from single keys, of
topics and groups (KIP-848).

INVALID_CONFIG names the key that is unknown, bad or read-only; brokers are read-only; UNKNOWN_TOPIC_OR_PARTITION, or
INVALID_TOPIC_EXCEPTION for a name that no topic can have; INVALID_REQUEST for a null value, a key or a resource that is
named twice, an empty name of a topic or a group, an unknown broker, another type of resource;
POLICY_VIOLATION if the maximum number of groups have configs; the authorization error of the resource's type.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafscale.access.rules import Side, needs_of
from kafscale.admin.alterations import changed
from kafscale.admin.config_table import ConfigTable
from kafscale.admin.context import AdminContext
from kafscale.admin.plan import Refused
from kafscale.admin.resources import alter_each
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import incremental_alter_configs as api

NEEDS = needs_of(ApiKey.INCREMENTAL_ALTER_CONFIGS, Side.SERVICE)


@answering_with_meta(api)
async def handler(
    context: AdminContext, request: api.IncrementalAlterConfigsRequest, meta: RequestMeta
) -> api.IncrementalAlterConfigsResponse:
    answers = await alter_each(
        context,
        request.resources,
        _change,
        api.IncrementalAlterConfigsResponseResource,
        context.authorization.of(meta),
        NEEDS,
        validate_only=request.validate_only,
    )
    return api.IncrementalAlterConfigsResponse(responses=answers)


def _change(
    resource: api.IncrementalAlterConfigsRequestResource, table: ConfigTable, configs: Mapping[str, str]
) -> dict[str, str] | Refused:
    return changed(table, configs, resource.configs)
