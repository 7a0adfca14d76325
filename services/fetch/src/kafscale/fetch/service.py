"""The service's parts put together over whatever etcd, store and clock it is given."""

import asyncio
from dataclasses import dataclass

from kafscale.fetch.batch_thread import BatchThread
from kafscale.fetch.cache import CacheLimits, SegmentCache
from kafscale.fetch.down_conversion import DownConverter
from kafscale.fetch.handlers.fetch import FetchHandler, FetchLimits
from kafscale.fetch.handlers.list_offsets import ListOffsetsHandler
from kafscale.fetch.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from kafscale.fetch.heads import Heads, HeadTimes
from kafscale.fetch.locator import Locator, ManifestCache
from kafscale.fetch.lookup import Lookup
from kafscale.fetch.metrics import FetchMetrics
from kafscale.fetch.offsets import OffsetFinder
from kafscale.fetch.reader import Reader, ReadLimits
from kafscale.fetch.settings import FetchSettings
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import Clock
from kafscale.runtime.shared_cache import SharedCache
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectStore
from kafscale.storage.topics import TopicsView


@dataclass(frozen=True, slots=True, kw_only=True)
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
    shared: SharedCache | None = None,
) -> FetchService:
    heads = _heads(settings, etcd, keyspace, clock, tasks)
    cache = SegmentCache(store, _cache_limits(settings), tasks, budget, shared)
    manifests = _manifests(settings, store, tasks)
    locator = Locator(manifests)
    lookup = Lookup(topics, heads)
    reader = _reader(settings, keyspace, cache, locator, lookup)
    thread = BatchThread()
    finder = OffsetFinder(reader, locator, cache, thread)
    return FetchService(
        heads=heads,
        cache=cache,
        fetch=FetchHandler(
            lookup=lookup,
            heads=heads,
            reader=reader,
            cache=cache,
            clock=clock,
            limits=_fetch_limits(settings),
            metrics=metrics,
            down_converter=DownConverter(thread),
        ),
        list_offsets=ListOffsetsHandler(lookup=lookup, finder=finder, clock=clock),
        offset_for_leader_epoch=OffsetForLeaderEpochHandler(lookup=lookup, finder=finder),
        reader=reader,
        manifests=manifests,
        batch_thread=thread,
    )


def _manifests(settings: FetchSettings, store: ObjectStore, tasks: asyncio.TaskGroup) -> ManifestCache:
    return ManifestCache(
        store,
        tasks,
        segments_max=settings.fetch_manifest_segments,
        timeout_ms=settings.fetch_read_timeout_ms,
    )


def _heads(
    settings: FetchSettings, etcd: EtcdClient, keyspace: Keyspace, clock: Clock, tasks: asyncio.TaskGroup
) -> Heads:
    times = HeadTimes(
        refresh_timeout_ms=settings.fetch_refresh_timeout_ms, idle_ms=settings.fetch_idle_topic_ms
    )
    heads = Heads(
        etcd, keyspace, clock=clock, tasks=tasks, times=times, partitions_max=settings.fetch_partitions
    )
    tasks.create_task(heads.run(), name="heads")
    return heads


def _cache_limits(settings: FetchSettings) -> CacheLimits:
    return CacheLimits(
        keep_bytes=settings.cache_bytes,
        gets_max=settings.fetch_gets,
        read_timeout_ms=settings.fetch_read_timeout_ms,
    )


def _reader(
    settings: FetchSettings, keyspace: Keyspace, cache: SegmentCache, locator: Locator, lookup: Lookup
) -> Reader:
    limits = ReadLimits(
        join_segments_max=settings.fetch_join_segments,
        readahead_segments=settings.readahead_segments,
        wait_ms=settings.fetch_read_timeout_ms,
    )
    return Reader(keyspace=keyspace, cache=cache, locator=locator, lookup=lookup, limits=limits)


def _fetch_limits(settings: FetchSettings) -> FetchLimits:
    return FetchLimits(
        response_bytes_max=settings.fetch_response_bytes,
        held_requests_max=settings.fetch_held_requests,
        max_wait_ms=settings.fetch_max_wait_ms,
    )
