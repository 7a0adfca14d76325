"""What the produce service counts. Children are bound once: a labelled lookup costs more than a count."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
_COUNT = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024)
_BYTES = (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20)


class ProduceMetrics:
    """One per process, registered in the registry that /metrics shows."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"kafscale_produce_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"kafscale_produce_{name}", text, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[int, ...]) -> Histogram:
            return Histogram(f"kafscale_produce_{name}", text, buckets=buckets, registry=registry)

        self.requests = counter("requests_total", "Produce requests")
        self.records = counter("records_total", "Records committed")
        self.bytes = counter("bytes_total", "Bytes of record batches committed")
        self.errors = counter("errors_total", "Partitions answered with an error", "error")
        self.flushes = counter("flushes_total", "Segments sealed")
        self.puts = counter("puts_total", "PUTs sent to the object store, retries included")
        self.put_retries = counter("put_retries_total", "PUTs sent again after an unknown outcome")
        self.overwrites = counter("overwrites_total", "Orphans of older epochs that were replaced")
        self.commit_unknown = counter("commit_unknown_total", "Commit requests asked again")
        self.stepdowns = counter("stepdowns_total", "Writers that gave up their epoch", "reason")
        self.claims = counter("claims_total", "Partitions claimed", "grounds")
        self.claims_lost = counter("claims_lost_total", "Claims that lost their compare")
        self.handoffs = counter("handoffs_total", "Partitions given away")
        self.checkpoints = counter("checkpoints_total", "Tails moved to manifests")
        self.refused_lanes = counter("refused_lanes_total", "Requests refused to keep a lane in order")
        self.owned = gauge("owned_partitions", "Partitions this instance writes")
        self.memory_bytes = gauge("memory_reserved_bytes", "Request bytes between admission and answer")
        self.governor_waiting = gauge("governor_waiting_partitions", "Partitions waiting for a PUT budget")
        self.put_ms = histogram("put_ms", "Latency of one PUT", _MS)
        self.commit_ms = histogram("commit_ms", "From submission to etcd's definite answer", _MS)
        self.commit_batch = histogram("commit_batch_partitions", "Partitions per commit request", _COUNT)
        self.ack_ms = histogram("ack_ms", "From arrival to answer", _MS)
        self.recovery_ms = histogram("recovery_ms", "From a won claim to serving", _MS)
        self.segment_bytes = histogram("segment_bytes", "Size of a sealed segment", _BYTES)
