"""The fetch service as a process: what it answers, how it begins and how it ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from kafscale.fetch.metrics import FetchMetrics
from kafscale.fetch.service import FetchService, assemble
from kafscale.fetch.settings import FetchSettings
from kafscale.runtime.metrics import Metrics
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
    _publish(runtime.metrics, service)
    watch_views(runtime.metrics, topics=runtime.topics.view)
    unsubscribe = runtime.topics.subscribe(metrics.topics.changed)

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


def _publish(page: Metrics, service: FetchService) -> None:
    """The service's lines on /metrics. If `lost_segments_total` is above 0, an operator must look at once."""
    handler, cache, counted, reader = service.fetch, service.cache, service.cache.counters, service.reader
    heads, manifests = service.heads, service.manifests
    page.watch("held_requests", lambda: handler.held_requests)
    page.watch("cache_bytes", lambda: cache.held_bytes)
    page.watch("cache_hits_total", lambda: counted.hits)
    page.watch("cache_loads_total", lambda: counted.loads)
    page.watch("cache_loaded_bytes_total", lambda: counted.loaded_bytes)
    page.watch("cache_evictions_total", lambda: counted.evictions)
    page.watch("cache_refusals_total", lambda: counted.refused)
    page.watch("readaheads_total", lambda: counted.readaheads)
    page.watch("corrupt_reads_total", lambda: counted.corrupt)
    page.watch("lost_segments_total", lambda: reader.lost_segments)
    page.watch("followed_topics", lambda: heads.topics_followed)
    page.watch("followed_partitions", lambda: heads.partitions_held)
    page.watch("metadata_refreshes_total", lambda: heads.refreshes)
    page.watch("metadata_reads_total", lambda: heads.reads)
    page.watch("manifest_loads_total", lambda: manifests.loads)
