"""One module per Kafka API: decode, ask the plan and the store, encode."""

from __future__ import annotations

from collections.abc import Mapping

from kafscale.admin.context import AdminContext
from kafscale.admin.handlers import (
    alter_configs,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    incremental_alter_configs,
    list_config_resources,
    list_partition_reassignments,
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
        ApiKey.DELETE_RECORDS: delete_records,
        ApiKey.DESCRIBE_CONFIGS: describe_configs,
        ApiKey.ALTER_CONFIGS: alter_configs,
        ApiKey.CREATE_PARTITIONS: create_partitions,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
        ApiKey.DESCRIBE_CLUSTER: describe_cluster,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
        ApiKey.ELECT_LEADERS: elect_leaders,
        ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
        ApiKey.LIST_CONFIG_RESOURCES: list_config_resources,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
        ApiKey.DESCRIBE_ACLS: describe_acls,
        ApiKey.CREATE_ACLS: create_acls,
        ApiKey.DELETE_ACLS: delete_acls,
    }
    return {int(key): module.handler(context) for key, module in modules.items()}
