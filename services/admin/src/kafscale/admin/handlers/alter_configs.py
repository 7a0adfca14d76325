"""AlterConfigs (33): v0-2. Replaces the whole set of configs of a topic or of a group (KIP-848).

INVALID_CONFIG names the key that is unknown, bad or read-only; brokers are read-only; UNKNOWN_TOPIC_OR_PARTITION;
INVALID_REQUEST for a key or a resource that is named twice, an empty group id, another type of resource;
POLICY_VIOLATION if the maximum number of groups have configs.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafscale.admin.alterations import replaced
from kafscale.admin.config_table import ConfigTable
from kafscale.admin.context import AdminContext
from kafscale.admin.plan import Refused
from kafscale.admin.resources import alter_each
from kafscale.runtime.stream.apis import answering
from kafscale.wire.schema import alter_configs as api


@answering(api)
async def handler(context: AdminContext, request: api.AlterConfigsRequest) -> api.AlterConfigsResponse:
    answers = await alter_each(
        context,
        request.resources,
        _replace,
        api.AlterConfigsResponseResource,
        validate_only=request.validate_only,
    )
    return api.AlterConfigsResponse(responses=answers)


def _replace(
    resource: api.AlterConfigsRequestResource, table: ConfigTable, _: Mapping[str, str]
) -> dict[str, str] | Refused:
    return replaced(table, [(config.name, config.value) for config in resource.configs])
