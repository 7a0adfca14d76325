"""The service's lines on /metrics. `lost_segments` above zero means that somebody must look at once."""

from kafscale.fetch.service import FetchService
from kafscale.runtime.metrics import Metrics


def publish(page: Metrics, service: FetchService) -> None:
    _publish_requests(page, service)
    _publish_memory(page, service)
    _publish_metadata(page, service)


def _publish_requests(page: Metrics, service: FetchService) -> None:
    handler = service.fetch
    page.watch("held_requests", lambda: handler.held_requests)


def _publish_memory(page: Metrics, service: FetchService) -> None:
    cache, reader = service.cache, service.reader
    counted = cache.counters
    page.watch("cache_bytes", lambda: cache.held_bytes)
    page.watch("cache_hits_total", lambda: counted.hits)
    page.watch("cache_loads_total", lambda: counted.loads)
    page.watch("cache_loaded_bytes_total", lambda: counted.loaded_bytes)
    page.watch("cache_evictions_total", lambda: counted.evictions)
    page.watch("cache_refusals_total", lambda: counted.refused)
    page.watch("readaheads_total", lambda: counted.readaheads)
    page.watch("corrupt_reads_total", lambda: counted.corrupt)
    page.watch("lost_segments_total", lambda: reader.lost_segments)


def _publish_metadata(page: Metrics, service: FetchService) -> None:
    heads, manifests = service.heads, service.manifests
    page.watch("followed_topics", lambda: heads.topics_followed)
    page.watch("followed_partitions", lambda: heads.partitions_held)
    page.watch("metadata_refreshes_total", lambda: heads.refreshes)
    page.watch("metadata_reads_total", lambda: heads.reads)
    page.watch("manifest_loads_total", lambda: manifests.loads)
