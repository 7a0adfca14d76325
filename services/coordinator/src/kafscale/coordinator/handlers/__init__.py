"""One module per Kafka API: decode, answer, encode."""

from __future__ import annotations

from collections.abc import Mapping

from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.handlers import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from kafscale.runtime.stream.server import AsyncHandler
from kafscale.wire.apis import ApiKey

_MODULES = {
    ApiKey.OFFSET_COMMIT: offset_commit,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.JOIN_GROUP: join_group,
    ApiKey.HEARTBEAT: heartbeat,
    ApiKey.LEAVE_GROUP: leave_group,
    ApiKey.SYNC_GROUP: sync_group,
    ApiKey.DESCRIBE_GROUPS: describe_groups,
    ApiKey.LIST_GROUPS: list_groups,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.DELETE_GROUPS: delete_groups,
    ApiKey.OFFSET_DELETE: offset_delete,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
}


def handlers(context: CoordinatorContext) -> Mapping[int, AsyncHandler]:
    """The handler of each API key that this service answers."""
    return {int(key): module.handler(context) for key, module in _MODULES.items()}
