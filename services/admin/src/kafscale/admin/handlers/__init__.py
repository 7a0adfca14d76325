"""One module per Kafka API: decode, ask the plan and the store, encode."""

from __future__ import annotations

from collections.abc import Mapping

from kafscale.admin.context import AdminContext
from kafscale.admin.handlers import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
    metadata,
)
from kafscale.runtime.stream.server import AsyncHandler
from kafscale.wire.apis import ApiKey


def handlers(context: AdminContext) -> Mapping[int, AsyncHandler]:
    """The handler of each API key that this service answers."""
    modules = {
        ApiKey.METADATA: metadata,
        ApiKey.CREATE_TOPICS: create_topics,
        ApiKey.DELETE_TOPICS: delete_topics,
        ApiKey.DESCRIBE_CONFIGS: describe_configs,
        ApiKey.ALTER_CONFIGS: alter_configs,
        ApiKey.CREATE_PARTITIONS: create_partitions,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    }
    return {int(key): module.handler(context) for key, module in modules.items()}
