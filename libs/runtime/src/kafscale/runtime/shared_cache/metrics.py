"""What the shared cache counts. All zero where there is none."""

from kafscale.runtime.metrics import Metrics


class SharedCacheMetrics:
    def __init__(self, metrics: Metrics) -> None:
        counter = metrics.counter
        self.hits = counter("shared_cache_hits_total")
        self.misses = counter("shared_cache_misses_total")
        self.skips = counter("shared_cache_skips_total")
        self.errors = counter("shared_cache_errors_total")
        self.corrupt = counter("shared_cache_corrupt_total")
        self.fills = counter("shared_cache_fills_total")
        self.dropped = counter("shared_cache_dropped_fills_total")
        self.read_bytes = counter("shared_cache_read_bytes_total")
        self.written_bytes = counter("shared_cache_written_bytes_total")
        self.breaker = metrics.gauge("shared_cache_breaker_state")
        self.seconds = metrics.histogram("shared_cache_seconds")
