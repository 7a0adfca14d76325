"""What the produce service counts."""

from __future__ import annotations

from typing import Final

from kafscale.produce.log.model import StepDownReason
from kafscale.runtime.committer import CommitMetrics
from kafscale.runtime.metrics import Metrics, TopicTraffic
from kafscale.storage.coordination import Grounds

MEMORY: Final = "memory"
STORE: Final = "store"
JOINED: Final = "joined"
UNANSWERED: Final = "unanswered"
DONE: Final = "done"
LATER: Final = "later"


class ProduceMetrics:
    """One per process. Children are looked up once where they have no labels."""

    def __init__(self, metrics: Metrics) -> None:
        counter, histogram = metrics.counter, metrics.histogram
        self.topics = TopicTraffic(metrics)
        self.flushes = counter("flushes_total")
        self.stepdowns = metrics.counters("stepdowns_total")
        self.stepdowns.begin(*(reason.name.lower() for reason in StepDownReason))
        self.claims = metrics.counters("claims_total")
        self.claims.begin(*(grounds.name.lower() for grounds in Grounds))
        self.claims_lost = counter("claims_lost_total")
        self.handoffs = counter("handoffs_total")
        self.checkpoints = counter("checkpoints_total")
        self.settled_bytes = metrics.counters("settled_bytes_total")
        self.settled_bytes.begin(MEMORY, STORE)
        self.settle_reads = counter("settle_reads_total")
        self.folded_bytes = counter("folded_bytes_total")
        self.unreadable_slices = counter("unreadable_slices_total")
        self.merges_failed = counter("manifest_merges_failed_total")
        self.damage_met = counter("damaged_partitions_total")
        self.put_seconds = histogram("put_seconds")
        self.commits = CommitMetrics(metrics)
        self.flush_seconds = histogram("flush_seconds")
        self.recovery_seconds = histogram("recovery_seconds")
        self.segment_bytes = histogram("segment_bytes")
        self.bundle_bytes = histogram("bundle_bytes")
        self.bundle_slices = histogram("bundle_slices")
        self.bundle_requests = histogram("bundle_requests")
        self.gather_seconds = histogram("gather_seconds")
        self.gathers_in_vain = counter("gathers_in_vain_total")
        self.bundle_seconds = histogram("bundle_seconds")
        self.joins = metrics.counters("transaction_joins_total")
        self.joins.begin(JOINED, UNANSWERED)
        self.join_seconds = histogram("transaction_join_seconds")
        self.ends = metrics.counters("transaction_ends_total")
        self.ends.begin(DONE, LATER)
