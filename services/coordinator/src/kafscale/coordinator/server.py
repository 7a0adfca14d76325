"""Composition: producer id blocks, the view of front doors, one handler per API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.handlers import handlers
from kafscale.coordinator.producer_ids import ProducerIdBlocks
from kafscale.coordinator.settings import CoordinatorSettings
from kafscale.runtime.process import Runtime, ServiceParts
from kafscale.runtime.stream.server import task_handler
from kafscale.storage.membership import LiveView


@asynccontextmanager
async def build(runtime: Runtime[CoordinatorSettings]) -> AsyncIterator[ServiceParts]:
    context = CoordinatorContext(
        front_doors=LiveView(runtime.etcd, runtime.keyspace, "frontdoor"),
        producer_ids=ProducerIdBlocks(runtime.etcd, runtime.keyspace),
    )
    watching = runtime.task_group.create_task(context.front_doors.run())
    control = {key: task_handler(fn, runtime.task_group) for key, fn in handlers(context).items()}
    try:
        yield ServiceParts(control=control, before_ready=context.front_doors.loaded)
    finally:
        watching.cancel()
