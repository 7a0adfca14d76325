"""The fetch service put together: the only place that builds its parts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from kafscale.fetch.cache import CacheLimits, SegmentCache
from kafscale.fetch.handlers.fetch import FetchHandler, FetchLimits
from kafscale.fetch.handlers.list_offsets import ListOffsetsHandler
from kafscale.fetch.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from kafscale.fetch.heads import Heads, HeadTimes
from kafscale.fetch.locator import Locator, ManifestCache
from kafscale.fetch.lookup import Lookup
from kafscale.fetch.metrics import FetchCollector, FetchMetrics
from kafscale.fetch.offsets import OffsetFinder
from kafscale.fetch.reader import Reader, ReadLimits
from kafscale.fetch.settings import FetchSettings
from kafscale.runtime.clock import Clock
from kafscale.runtime.process import Runtime, ServiceParts
from kafscale.runtime.stream.server import task_handler
from kafscale.storage.etcd import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectStore
from kafscale.storage.topics import TopicsView
from kafscale.wire.apis import ApiKey

ROLE: Final = "fetch"
OPEN_REQUESTS_MAX: Final = 16_384
"""Handlers at work at a time: above the held ones, as those wait and cost little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchService:
    """The parts that a shell, or a test, talks to."""

    heads: Heads
    cache: SegmentCache
    fetch: FetchHandler
    list_offsets: ListOffsetsHandler
    offset_for_leader_epoch: OffsetForLeaderEpochHandler
    metrics: FetchMetrics
    reader: Reader
    manifests: ManifestCache
    collector: FetchCollector


def assemble(
    settings: FetchSettings,
    *,
    etcd: EtcdClient,
    keyspace: Keyspace,
    store: ObjectStore,
    topics: TopicsView,
    clock: Clock,
    tasks: asyncio.TaskGroup,
) -> FetchService:
    metrics = FetchMetrics()
    times = HeadTimes(
        refresh_timeout_ms=settings.fetch_refresh_timeout_ms, idle_ms=settings.fetch_idle_topic_ms
    )
    heads = Heads(etcd, keyspace, clock=clock, tasks=tasks, times=times)
    limits = CacheLimits(
        keep_bytes=settings.cache_bytes,
        hold_bytes_max=settings.hold_bytes,
        gets_max=settings.fetch_gets,
        read_timeout_ms=settings.fetch_read_timeout_ms,
    )
    cache = SegmentCache(store, limits, tasks)
    manifests = ManifestCache(
        store,
        tasks,
        segments_max=settings.fetch_manifest_segments,
        timeout_ms=settings.fetch_read_timeout_ms,
    )
    locator = Locator(manifests)
    lookup = Lookup(topics, heads, clock)
    reader = Reader(
        keyspace=keyspace,
        cache=cache,
        locator=locator,
        lookup=lookup,
        limits=ReadLimits(
            join_segments_max=settings.fetch_join_segments,
            readahead_segments=settings.readahead_segments,
            wait_ms=settings.fetch_read_timeout_ms,
        ),
    )
    fetch = FetchHandler(
        lookup=lookup,
        heads=heads,
        reader=reader,
        cache=cache,
        clock=clock,
        limits=FetchLimits(
            response_bytes_max=settings.fetch_response_bytes,
            held_requests_max=settings.fetch_held_requests,
            max_wait_ms=settings.fetch_max_wait_ms,
        ),
        metrics=metrics,
    )
    finder = OffsetFinder(reader, locator, cache)
    return FetchService(
        heads=heads,
        cache=cache,
        fetch=fetch,
        list_offsets=ListOffsetsHandler(lookup=lookup, finder=finder, metrics=metrics),
        offset_for_leader_epoch=OffsetForLeaderEpochHandler(lookup=lookup, finder=finder, metrics=metrics),
        metrics=metrics,
        reader=reader,
        manifests=manifests,
        collector=FetchCollector(
            metrics=metrics,
            cache=cache,
            heads=heads,
            manifests=manifests,
            reader=reader,
            held_requests=lambda: fetch.held_requests,
        ),
    )


@asynccontextmanager
async def build(runtime: Runtime[FetchSettings]) -> AsyncIterator[ServiceParts]:
    tasks = runtime.task_group
    service = assemble(
        runtime.settings,
        etcd=runtime.etcd,
        keyspace=runtime.keyspace,
        store=runtime.store,
        topics=runtime.topics,
        clock=runtime.clock,
        tasks=tasks,
    )
    runtime.registry.register(service.collector)
    sweeper = tasks.create_task(service.heads.run())

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
        sweeper.cancel()
