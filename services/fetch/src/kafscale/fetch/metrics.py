"""What the handlers count of their answers. The other metrics are values of the service's parts (`server.py`)."""

from collections.abc import Sequence
from dataclasses import dataclass

from kafscale.fetch.reader import Ask
from kafscale.runtime.metrics import Metrics, Tally


@dataclass(frozen=True, slots=True)
class TopicTallies:
    bytes: Tally
    records: Tally


class FetchMetrics:
    """Children are looked up once: a topic's tallies are kept until the topic is gone."""

    def __init__(self, metrics: Metrics) -> None:
        self.partitions = metrics.counter("partitions_total")
        self.segments_joined = metrics.counter("joined_segments_total")
        self.overloaded = metrics.counter("overloads_total")
        self._bytes = metrics.counters("bytes_total")
        self._records = metrics.counters("records_total")
        self._topics: dict[str, TopicTallies] = {}

    def answered(self, asks: Sequence[Ask]) -> None:
        self.partitions.value += len(asks)
        for ask in asks:
            spot, cut = ask.spot, ask.cut
            if cut.size and spot.topic is not None and spot.offset is not None:
                tallies = self._topics.get(spot.topic.name) or self._of_topic(spot.topic.name)
                tallies.bytes.value += cut.size
                tallies.records.value += cut.next_offset - spot.offset
                self.segments_joined.value += len(cut.parts)

    def topic_gone(self, topic: str) -> None:
        """Its series end with it."""
        self._topics.pop(topic, None)
        self._bytes.forget("topic", topic)
        self._records.forget("topic", topic)

    def _of_topic(self, topic: str) -> TopicTallies:
        tallies = TopicTallies(self._bytes.labels(topic), self._records.labels(topic))
        self._topics[topic] = tallies
        return tallies
