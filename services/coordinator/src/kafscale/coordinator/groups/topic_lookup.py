"""Looks up the topics of group requests: by name, or in newer versions by id.

Law: a topic is reported as unknown only after etcd was read. A consumer that gets no offset because its topic is
unknown would start over and overwrite its committed offset.
"""

from __future__ import annotations

from kafscale.storage.etcd.client import EtcdError
from kafscale.storage.topics import Topic, TopicState, TopicsView
from kafscale.wire.errors import ErrorCode

NO_ID = b""


class TopicLookup:
    """For one request. If the view lacks a topic, it is refreshed from etcd, at most once per request.

    If etcd cannot be read, the result is COORDINATOR_NOT_AVAILABLE.
    """

    def __init__(self, topics: TopicsView, *, by_id: bool = False) -> None:
        self._topics = topics
        self._by_id = by_id
        self._refreshed = False

    async def find(self, name: str, topic_id: bytes = NO_ID) -> Topic | ErrorCode:
        """The topic, unless it is unknown or being deleted. Does not wait if the view has it.

        KAFKA_STORAGE_ERROR if its record cannot be read: its offsets exist, so no consumer may start over.
        """
        found = self._seen(name, topic_id)
        if found is None and not self._refreshed:
            try:
                await self._topics.refresh()
            except EtcdError:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            self._refreshed = True
            found = self._seen(name, topic_id)
        if found is None and not self._by_id and self._topics.is_damaged(name):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return found or self._unknown

    def _seen(self, name: str, topic_id: bytes) -> Topic | None:
        found = self._topics.by_id(topic_id) if self._by_id else self._topics.by_name(name)
        return found if found is not None and found.state is TopicState.ACTIVE else None

    @property
    def _unknown(self) -> ErrorCode:
        return ErrorCode.UNKNOWN_TOPIC_ID if self._by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
