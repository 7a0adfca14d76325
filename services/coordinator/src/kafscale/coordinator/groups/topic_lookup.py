"""Looks up the topics of group requests: by name, or in newer versions by id.

Law: a topic is reported as unknown only after etcd was read. A consumer that gets no offset because its topic is
unknown would start over and overwrite its committed offset.
"""

from __future__ import annotations

from kafscale.storage.topics import Topic, TopicsView
from kafscale.wire.errors import ErrorCode

NO_ID = b""


class TopicLookup:
    """For one request. If the view lacks a topic, all topics are read from etcd, at most once per request.

    If etcd cannot be read, the result is COORDINATOR_NOT_AVAILABLE.
    """

    def __init__(self, topics: TopicsView, *, by_id: bool = False) -> None:
        self._topics = topics
        self._by_id = by_id
        self._known: bool | None = None

    async def find(self, name: str, topic_id: bytes = NO_ID) -> Topic | ErrorCode:
        """The topic, unless it is unknown or being deleted. Does not wait if the view has it.

        KAFKA_STORAGE_ERROR if its record cannot be read: its offsets exist, so no consumer may start over.
        """
        ref = topic_id if self._by_id else name
        found = self._topics.find(ref)
        if found is None and self._known is None:
            self._known = await self._topics.confirmed()
            found = self._topics.find(ref)
        if found is not None:
            return found
        if not self._known:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self._by_id:
            return ErrorCode.UNKNOWN_TOPIC_ID
        damaged = self._topics.is_damaged(name)
        return ErrorCode.KAFKA_STORAGE_ERROR if damaged else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
