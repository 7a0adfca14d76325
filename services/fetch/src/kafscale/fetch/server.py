"""The fetch service as a process: what it answers, how it begins and how it ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from kafscale.fetch.metrics import FetchMetrics
from kafscale.fetch.metrics_page import publish
from kafscale.fetch.service import assemble
from kafscale.fetch.settings import FetchSettings
from kafscale.runtime.process import Runtime, ServiceParts
from kafscale.runtime.process_metrics import watch_views
from kafscale.runtime.stream.tasks import task_handler
from kafscale.wire.apis import ApiKey

ROLE: Final = "fetch"
OPEN_REQUESTS_MAX: Final = 16_384
"""Handlers at work at a time: above the held ones, as those wait and cost little."""


@asynccontextmanager
async def build(runtime: Runtime[FetchSettings]) -> AsyncIterator[ServiceParts]:
    tasks = runtime.task_group
    metrics = FetchMetrics(runtime.metrics)
    shared = runtime.open_shared_cache()
    service = assemble(
        runtime.settings,
        etcd=runtime.etcd,
        keyspace=runtime.keyspace,
        store=runtime.store,
        topics=runtime.topics,
        clock=runtime.clock,
        tasks=tasks,
        budget=runtime.budget,
        metrics=metrics,
        shared=shared,
    )
    publish(runtime.metrics, service)
    watch_views(runtime.metrics, topics=runtime.topics.view)
    unsubscribe = runtime.topics.subscribe(
        lambda name, topic: metrics.topic_gone(name) if topic is None else None
    )

    async def drain() -> None:
        service.fetch.drain()

    try:
        yield ServiceParts(
            bulk={ApiKey.FETCH: task_handler(service.fetch, tasks, concurrent_max=OPEN_REQUESTS_MAX)},
            control={
                ApiKey.LIST_OFFSETS: task_handler(service.list_offsets, tasks),
                ApiKey.OFFSET_FOR_LEADER_EPOCH: task_handler(service.offset_for_leader_epoch, tasks),
            },
            before_ready=runtime.topics.ready,
            drain=drain,
        )
    finally:
        unsubscribe()
