"""What the service tells Prometheus: counted as plain integers on the way, collected when asked."""

from collections.abc import Callable, Iterator, Sequence

from kafscale.fetch.cache import SegmentCache
from kafscale.fetch.heads import Heads
from kafscale.fetch.locator import ManifestCache
from kafscale.fetch.reader import Ask, Reader
from kafscale.wire.errors import ErrorCode
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


class FetchMetrics:
    """Counters of the handlers."""

    __slots__ = ("bytes_served", "errors", "overloaded", "partitions", "requests", "segments_joined")

    def __init__(self) -> None:
        self.requests = 0
        self.partitions = 0
        self.bytes_served = 0
        self.segments_joined = 0
        self.overloaded = 0
        self.errors: dict[ErrorCode, int] = {}

    def answered(self, asks: Sequence[Ask]) -> None:
        self.requests += 1
        self.partitions += len(asks)
        for ask in asks:
            self.bytes_served += ask.cut.size
            self.segments_joined += len(ask.cut.parts)
            self.failed(ask.spot.error)

    def failed(self, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            self.errors[error] = self.errors.get(error, 0) + 1


class FetchCollector:
    """A collector for a prometheus registry."""

    def __init__(
        self,
        *,
        metrics: FetchMetrics,
        cache: SegmentCache,
        heads: Heads,
        manifests: ManifestCache,
        reader: Reader,
        held_requests: Callable[[], int],
    ) -> None:
        self._metrics = metrics
        self._cache = cache
        self._heads = heads
        self._manifests = manifests
        self._reader = reader
        self._held_requests = held_requests

    def collect(self) -> Iterator[Metric]:
        for name, help_text, value in self._counters():
            yield CounterMetricFamily(f"kafscale_fetch_{name}", help_text, value=value)
        errors = CounterMetricFamily(
            "kafscale_fetch_errors", "Partitions answered with an error", labels=("code",)
        )
        for code, count in tuple(self._metrics.errors.items()):
            errors.add_metric((code.name,), count)
        yield errors
        for name, help_text, value in self._gauges():
            yield GaugeMetricFamily(f"kafscale_fetch_{name}", help_text, value=value)

    def _counters(self) -> list[tuple[str, str, int]]:
        counters = self._cache.counters
        return [
            ("requests", "Fetch requests answered", self._metrics.requests),
            ("partitions", "Partitions in answered Fetch requests", self._metrics.partitions),
            ("served_bytes", "Bytes of record sets answered", self._metrics.bytes_served),
            ("joined_segments", "Segments whose batches were answered", self._metrics.segments_joined),
            ("overloads", "Fetch requests not held because too many were", self._metrics.overloaded),
            ("cache_hits", "Segments found in memory", counters.hits),
            ("cache_loads", "Segments read from the object store", counters.loads),
            ("cache_loaded_bytes", "Bytes of segments read from the object store", counters.loaded_bytes),
            ("cache_evictions", "Segments dropped from memory", counters.evictions),
            ("cache_refusals", "Loads refused because answers hold the memory", counters.refused),
            ("readaheads", "Segments read ahead of their readers", counters.readaheads),
            ("corrupt_reads", "Objects read whose bytes do not match their commit record", counters.corrupt),
            (
                "lost_segments",
                "Committed objects that could not be served: look at once",
                self._reader.lost_segments,
            ),
            ("manifest_loads", "Manifests read from the object store", self._manifests.loads),
            ("metadata_refreshes", "Requests that asked etcd for the truth", self._heads.refreshes),
            ("metadata_reads", "Transactions in which they were asked", self._heads.reads),
        ]

    def _gauges(self) -> list[tuple[str, str, int]]:
        return [
            ("held_requests", "Long polls waiting for data", self._held_requests()),
            (
                "cache_bytes",
                "Bytes of segments in memory, answers under way included",
                self._cache.held_bytes,
            ),
            ("followed_topics", "Topics whose logs are watched", self._heads.topics_followed),
        ]
