"""One module per Kafka API: decode, answer, encode."""

from __future__ import annotations

from collections.abc import Mapping

from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.handlers import find_coordinator, init_producer_id
from kafscale.runtime.stream.server import AsyncHandler
from kafscale.wire.apis import ApiKey


def handlers(context: CoordinatorContext) -> Mapping[int, AsyncHandler]:
    """The handler of each API key that this service answers."""
    return {
        int(ApiKey.FIND_COORDINATOR): find_coordinator.handler(context),
        int(ApiKey.INIT_PRODUCER_ID): init_producer_id.handler(context),
    }
