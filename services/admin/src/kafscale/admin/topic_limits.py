"""The limits of topics and partitions in the cluster.

Every service has each topic in memory, and each partition has keys in etcd: without a limit, one client could fill
both. A topic counts from before it is written until the view shows it. An admin counts the topics in its view and
those that it creates itself, so admins that create topics at the same time may exceed a limit slightly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafscale.admin.plan import Refused
from kafscale.storage.topics import Topic, TopicsView
from kafscale.wire.errors import ErrorCode

PARTITIONS_PER_REQUEST = 10_000
"""Kafka's MAX_PARTITIONS_PER_BATCH, for CreateTopics and CreatePartitions."""
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
        """Why these topics and partitions cannot be created, or None."""
        if topics and len(self._counts) + self._topics_under_way + topics > self._topics_max:
            return Refused(
                ErrorCode.POLICY_VIOLATION,
                f"The cluster may have {self._topics_max} topics (KAFSCALE_TOPICS_MAX), and has "
                f"{len(self._counts)}.",
            )
        if partitions and self._partitions + self._partitions_under_way + partitions > self._partitions_max:
            return Refused(
                ErrorCode.POLICY_VIOLATION,
                f"The cluster may have {self._partitions_max} partitions (KAFSCALE_PARTITIONS_MAX), has "
                f"{self._partitions}, and {partitions} more were requested.",
            )
        return None

    @contextmanager
    def making(self, topics: int, partitions: int) -> Iterator[Refused | None]:
        """Counts them while they are being created, or yields why they are refused."""
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
