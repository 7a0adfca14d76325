"""The service's lines on /metrics. `lost_segments` above zero means that somebody must look at once."""

from collections.abc import Iterator

from kafscale.fetch.service import FetchService
from kafscale.runtime.metrics import Metrics


def publish(page: Metrics, service: FetchService) -> None:
    _publish_requests(page, service)
    _publish_memory(page, service)
    _publish_metadata(page, service)


def _publish_requests(page: Metrics, service: FetchService) -> None:
    counted, handler = service.metrics, service.fetch
    page.watch_counter("requests", "Fetch requests answered", lambda: counted.requests)
    page.watch_counter("partitions", "Partitions in answered Fetch requests", lambda: counted.partitions)
    page.watch_counter("served_bytes", "Bytes of record sets answered", lambda: counted.bytes_served)
    page.watch_counter(
        "joined_segments", "Segments whose batches were answered", lambda: counted.segments_joined
    )
    page.watch_counter(
        "overloads", "Fetch requests not held because too many were", lambda: counted.overloaded
    )
    page.watch_gauge("held_requests", "Long polls waiting for data", lambda: handler.held_requests)

    def errors() -> Iterator[tuple[str, float]]:
        for code, count in tuple(counted.errors.items()):
            yield code.name, count

    page.watch_counters("errors", "Partitions answered with an error", "code", errors)


def _publish_memory(page: Metrics, service: FetchService) -> None:
    cache, reader = service.cache, service.reader
    counted = cache.counters
    page.watch_gauge(
        "cache_bytes", "Segments in memory, those of answers under way included", lambda: cache.held_bytes
    )
    page.watch_counter("cache_hits", "Segments found in memory", lambda: counted.hits)
    page.watch_counter("cache_loads", "Segments read from the object store", lambda: counted.loads)
    page.watch_counter(
        "cache_loaded_bytes", "Bytes of segments read from the object store", lambda: counted.loaded_bytes
    )
    page.watch_counter("cache_evictions", "Segments dropped from memory", lambda: counted.evictions)
    page.watch_counter(
        "cache_refusals", "Loads refused because answers hold the memory", lambda: counted.refused
    )
    page.watch_counter("readaheads", "Segments read ahead of their readers", lambda: counted.readaheads)
    page.watch_counter(
        "corrupt_reads", "Objects read that do not match their commit record", lambda: counted.corrupt
    )
    page.watch_counter(
        "lost_segments", "Committed objects that could not be served", lambda: reader.lost_segments
    )


def _publish_metadata(page: Metrics, service: FetchService) -> None:
    heads, manifests = service.heads, service.manifests
    page.watch_gauge("followed_topics", "Topics whose logs are watched", lambda: heads.topics_followed)
    page.watch_counter(
        "metadata_refreshes", "Requests that asked etcd for the truth", lambda: heads.refreshes
    )
    page.watch_counter("metadata_reads", "Transactions in which etcd was asked", lambda: heads.reads)
    page.watch_counter("manifest_loads", "Manifests read from the object store", lambda: manifests.loads)
