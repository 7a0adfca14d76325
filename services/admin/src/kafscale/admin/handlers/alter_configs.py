"""AlterConfigs (33): v0-2. Replaces the whole set of configs of a topic or of a group (KIP-848).

INVALID_CONFIG names the key that is unknown, bad or read-only; brokers are read-only; UNKNOWN_TOPIC_OR_PARTITION, or
INVALID_TOPIC_EXCEPTION for a name that no topic can have; INVALID_REQUEST for a null value, a key or a resource that is
named twice, an empty name of a topic or a group, an unknown broker, another type of resource;
POLICY_VIOLATION if the maximum number of groups have configs; the authorization error of the resource's type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafscale.access.rules import Side, needs_of
from kafscale.admin.alterations import replaced
from kafscale.admin.config_table import ConfigTable
from kafscale.admin.context import AdminContext
from kafscale.admin.plan import Refused
from kafscale.admin.resources import BROKER_LOGGER, CASES, alter_each
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import alter_configs as api

NEEDS = needs_of(ApiKey.ALTER_CONFIGS, Side.SERVICE)
KNOWN: Final = {type_: case for type_, case in CASES.items() if type_ != BROKER_LOGGER}
"""IncrementalAlterConfigs alone knows loggers. Here they are INVALID_REQUEST for every client, as in Kafka."""


@answering_with_meta(api)
async def handler(
    context: AdminContext, request: api.AlterConfigsRequest, meta: RequestMeta
) -> api.AlterConfigsResponse:
    answers = await alter_each(
        context,
        request.resources,
        _replace,
        api.AlterConfigsResponseResource,
        context.authorization.of(meta),
        NEEDS,
        validate_only=request.validate_only,
        cases=KNOWN,
    )
    return api.AlterConfigsResponse(responses=answers)


def _replace(
    resource: api.AlterConfigsRequestResource, table: ConfigTable, configs: Mapping[str, str]
) -> dict[str, str] | Refused:
    return replaced(table, configs, [(config.name, config.value) for config in resource.configs])
