"""How many topics and partitions the cluster may have, whoever makes them.

Each topic is a record that every service keeps in memory, and each partition some keys in etcd: without a limit one
client fills both. What is being made counts from before it is written until the view shows it. An admin counts what
it sees and what it makes itself: those that make the last ones at the same moment may go past a limit by that much.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafscale.admin.plan import Refused
from kafscale.storage.topics import Topic, TopicsView
from kafscale.wire.errors import ErrorCode

PARTITIONS_PER_REQUEST = 10_000
"""Kafka's MAX_PARTITIONS_PER_BATCH, of CreateTopics and of CreatePartitions."""
TOO_MANY_AT_ONCE = Refused(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


class TopicLimits:
    def __init__(self, view: TopicsView, *, topics_max: int, partitions_max: int) -> None:
        self._topics_max = topics_max
        self._partitions_max = partitions_max
        self._counts = {topic.name: topic.partitions for topic in view.all()}
        self._partitions = sum(self._counts.values())
        self._topics_under_way = 0
        self._partitions_under_way = 0
        view.subscribe(self._changed)

    def _changed(self, name: str, topic: Topic | None) -> None:
        self._partitions -= self._counts.pop(name, 0)
        if topic is not None:
            self._counts[name] = topic.partitions
            self._partitions += topic.partitions

    def refusal(self, topics: int, partitions: int) -> Refused | None:
        """Why so many more cannot be made."""
        if topics and len(self._counts) + self._topics_under_way + topics > self._topics_max:
            return Refused(
                ErrorCode.POLICY_VIOLATION,
                f"The cluster may have {self._topics_max} topics (KAFSCALE_TOPICS_MAX), and has "
                f"{len(self._counts)}.",
            )
        if partitions and self._partitions + self._partitions_under_way + partitions > self._partitions_max:
            return Refused(
                ErrorCode.POLICY_VIOLATION,
                f"The cluster may have {self._partitions_max} partitions (KAFSCALE_PARTITIONS_MAX): to "
                f"{self._partitions} no {partitions} can be added.",
            )
        return None

    @contextmanager
    def making(self, topics: int, partitions: int) -> Iterator[Refused | None]:
        """Counts them while they are being made, unless that is refused."""
        refused = self.refusal(topics, partitions)
        if refused is not None:
            yield refused
            return
        self._topics_under_way += topics
        self._partitions_under_way += partitions
        try:
            yield None
        finally:
            self._topics_under_way -= topics
            self._partitions_under_way -= partitions
