"""What the produce service counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafscale.produce.log.model import StepDownReason
from kafscale.runtime.committer import CommitMetrics
from kafscale.runtime.metrics import Metrics, Tally
from kafscale.storage.claims import Grounds
from kafscale.storage.heads import Seg


@dataclass(frozen=True, slots=True)
class TopicTallies:
    bytes: Tally
    records: Tally


class ProduceMetrics:
    """One per process. Children are looked up once where they have no labels."""

    def __init__(self, metrics: Metrics) -> None:
        counter, histogram = metrics.counter, metrics.histogram
        self._records = metrics.counters("records_total")
        self._bytes = metrics.counters("bytes_total")
        self.flushes = counter("flushes_total")
        self.puts = counter("puts_total")
        self.puts_unknown = counter("puts_unknown_total")
        self.stepdowns = metrics.counters("stepdowns_total")
        self.stepdowns.begin(*(reason.name.lower() for reason in StepDownReason))
        self.claims = metrics.counters("claims_total")
        self.claims.begin(*(grounds.name.lower() for grounds in Grounds))
        self.claims_lost = counter("claims_lost_total")
        self.handoffs = counter("handoffs_total")
        self.checkpoints = counter("checkpoints_total")
        self.merges_failed = counter("manifest_merges_failed_total")
        self.damage_met = counter("damaged_partitions_total")
        self.put_seconds = histogram("put_seconds")
        self.commits = CommitMetrics(metrics)
        self.flush_seconds = histogram("flush_seconds")
        self.recovery_seconds = histogram("recovery_seconds")
        self.segment_bytes = histogram("segment_bytes")

    def of_topic(self, topic: str) -> TopicTallies:
        return TopicTallies(self._bytes.labels(topic), self._records.labels(topic))

    def committed(self, topic: str, segments: Sequence[Seg], wall_ms: int) -> None:
        counts = self.of_topic(topic)
        counts.records.inc(sum(seg.records for seg in segments))
        for seg in segments:
            counts.bytes.inc(seg.size)
            self.segment_bytes.observe(seg.size)
            self.flush_seconds.observe(max(0, wall_ms - seg.created_ms) / 1000)
        self.flushes.inc(len(segments))

    def topic_gone(self, topic: str) -> None:
        """Its series end with it."""
        self._bytes.forget("topic", topic)
        self._records.forget("topic", topic)
