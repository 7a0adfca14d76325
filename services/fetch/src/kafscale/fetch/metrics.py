"""What the handlers count of their answers. The other metrics are values of the service's parts (`server.py`)."""

from collections.abc import Sequence

from kafscale.fetch.reader import PartitionRead
from kafscale.runtime.metrics import Metrics, TopicTraffic


class FetchMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self.partitions = metrics.counter("partitions_total")
        self.segments_joined = metrics.counter("joined_segments_total")
        self.overloaded = metrics.counter("overloads_total")
        self.topics = TopicTraffic(metrics)

    def answered(self, asks: Sequence[PartitionRead]) -> None:
        self.partitions.value += len(asks)
        for ask in asks:
            spot, cut = ask.spot, ask.cut
            if cut.size and spot.topic is not None and spot.offset is not None:
                tallies = self.topics.of(spot.topic.name)
                tallies.bytes.value += cut.size
                tallies.records.value += cut.next_offset - spot.offset
                self.segments_joined.value += len(cut.parts)
