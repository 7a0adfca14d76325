"""The fetch service: its parts put together over any etcd, store and clock; what it answers, how it begins and ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from kafscale.fetch import handlers
from kafscale.fetch.batch_thread import BatchThread
from kafscale.fetch.cache import SegmentCache
from kafscale.fetch.down_conversion import DownConverter
from kafscale.fetch.handlers.fetch import FetchHandler, FetchLimits, FetchMetrics
from kafscale.fetch.handlers.list_offsets import ListOffsetsHandler
from kafscale.fetch.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from kafscale.fetch.heads import Heads, HeadTimes
from kafscale.fetch.loads import CacheLimits
from kafscale.fetch.locator import Locator
from kafscale.fetch.lookup import Lookup
from kafscale.fetch.offsets import OffsetFinder
from kafscale.fetch.reader import Reader, ReadLimits
from kafscale.fetch.settings import FetchSettings
from kafscale.log.manifest_cache import ManifestCache
from kafscale.runtime.authorization import Authorization, enforced
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.process import Runtime, ServiceParts
from kafscale.runtime.process_metrics import watch_views
from kafscale.runtime.shared_cache import SharedCache
from kafscale.runtime.stream.tasks import task_handler
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectStore
from kafscale.storage.topics import TopicsView
from kafscale.wire.apis import ApiKey


@dataclass(frozen=True, slots=True)
class FetchService:
    """The parts that a shell, or a test, talks to."""

    heads: Heads
    cache: SegmentCache
    fetch: FetchHandler
    list_offsets: ListOffsetsHandler
    offset_for_leader_epoch: OffsetForLeaderEpochHandler
    reader: Reader
    manifests: ManifestCache
    batch_thread: BatchThread


def assemble(
    settings: FetchSettings,
    *,
    etcd: EtcdClient,
    keyspace: Keyspace,
    store: ObjectStore,
    topics: TopicsView,
    clock: Clock,
    tasks: asyncio.TaskGroup,
    budget: MemoryBudget,
    metrics: FetchMetrics,
    authorization: Authorization,
    shared: SharedCache | None = None,
) -> FetchService:
    times = HeadTimes(
        refresh_timeout_ms=settings.fetch_refresh_timeout_ms, idle_ms=settings.fetch_idle_topic_ms
    )
    heads = Heads(
        etcd, keyspace, clock=clock, tasks=tasks, times=times, partitions_max=settings.fetch_partitions
    )
    tasks.create_task(heads.run(), name="heads")
    timeout_ms = settings.fetch_read_timeout_ms
    kept = CacheLimits(
        keep_bytes=settings.cache_bytes, gets_max=settings.fetch_gets, read_timeout_ms=timeout_ms
    )
    cache = SegmentCache(store, kept, tasks, budget, shared, heads.slices_beside)
    manifests = ManifestCache(
        store, tasks, segments_max=settings.fetch_manifest_segments, timeout_ms=timeout_ms
    )
    locator, lookup, thread = Locator(manifests), Lookup(topics, heads), BatchThread()
    read = ReadLimits(
        join_segments_max=settings.fetch_join_segments,
        readahead_segments=settings.readahead_segments,
        wait_ms=timeout_ms,
    )
    reader = Reader(keyspace=keyspace, cache=cache, locator=locator, lookup=lookup, limits=read)
    answered = FetchLimits(
        response_bytes_max=settings.fetch_response_bytes,
        held_requests_max=settings.fetch_held_requests,
        max_wait_ms=settings.fetch_max_wait_ms,
    )
    fetch = FetchHandler(
        lookup=lookup,
        heads=heads,
        reader=reader,
        cache=cache,
        clock=clock,
        limits=answered,
        metrics=metrics,
        down_converter=DownConverter(thread),
        authorization=authorization,
    )
    finder = OffsetFinder(reader, locator, cache, thread)
    offsets = ListOffsetsHandler(lookup=lookup, finder=finder, clock=clock, authorization=authorization)
    epochs = OffsetForLeaderEpochHandler(lookup=lookup, finder=finder, authorization=authorization)
    return FetchService(heads, cache, fetch, offsets, epochs, reader, manifests, thread)


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
        authorization=runtime.authorization,
        shared=shared,
    )
    _publish(runtime.metrics, service)
    watch_views(runtime.metrics, topics=runtime.topics.view, **runtime.access.views)
    unsubscribe = runtime.topics.subscribe(metrics.topics.changed)

    async def drain() -> None:
        service.fetch.drain()

    bulk = {int(ApiKey.FETCH): task_handler(service.fetch, tasks, concurrent_max=OPEN_REQUESTS_MAX)}
    control = {
        int(ApiKey.LIST_OFFSETS): task_handler(service.list_offsets, tasks),
        int(ApiKey.OFFSET_FOR_LEADER_EPOCH): task_handler(service.offset_for_leader_epoch, tasks),
    }
    enforced(handlers, (*bulk, *control))
    try:
        yield ServiceParts(
            bulk=bulk,
            control=control,
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
    page.watch_each(
        "bundle_reads_total",
        lambda: [(("one",), counted.reads_of_one_slice), (("many",), counted.reads_of_many_slices)],
    )
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
