"""What the produce service counts."""

from __future__ import annotations

from kafscale.runtime.committer import CommitMetrics
from kafscale.runtime.metrics import BYTES_BOUNDS, Metrics


class ProduceMetrics:
    """One per process. Children are looked up once where they have no labels."""

    def __init__(self, metrics: Metrics) -> None:
        counter, histogram = metrics.counter, metrics.histogram
        self.requests = counter("requests_total", "Produce requests")
        self.errors = metrics.counters("errors_total", "Partitions answered with an error", ("error",))
        self.records = counter("records_total", "Records committed")
        self.bytes = counter("bytes_total", "Bytes of committed segments")
        self.flushes = counter("flushes_total", "Segments committed")
        self.puts = counter("puts_total", "PUTs sent to the object store, repeated ones included")
        self.puts_unknown = counter("puts_unknown_total", "PUTs whose outcome was not known")
        self.stepdowns = metrics.counters("stepdowns_total", "Writers that gave up their epoch", ("reason",))
        self.claims = metrics.counters("claims_total", "Partitions claimed", ("grounds",))
        self.claims_lost = counter("claims_lost_total", "Claims that lost their compare")
        self.handoffs = counter("handoffs_total", "Partitions given away")
        self.checkpoints = counter("checkpoints_total", "Tails moved to manifests")
        self.put_seconds = histogram("put_seconds", "One PUT that succeeded")
        self.commits = CommitMetrics(metrics)
        self.ack_seconds = histogram("ack_seconds", "From arrival to answer")
        self.recovery_seconds = histogram("recovery_seconds", "From a request's first claim to serving")
        self.segment_bytes = histogram("segment_bytes", "Size of a committed segment", BYTES_BOUNDS)
