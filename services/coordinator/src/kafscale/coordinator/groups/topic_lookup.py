"""Looks up the topics of group requests: by name, or in newer versions by id.

Law: a topic is reported as unknown only after etcd was read. A consumer that gets no offset because its topic is
unknown would start over and overwrite its committed offset. A topic that the client may not use is not looked up by its
name: the answer is the same whether it exists or not.
"""

from __future__ import annotations

from kafscale.access.rules import Need
from kafscale.runtime.authorization import Asker
from kafscale.storage.topics import Topic, TopicsView
from kafscale.wire.errors import ErrorCode

NO_ID = b""


def refusal_of(topic: Topic | ErrorCode, partition: int) -> ErrorCode:
    """Why a producer or a consumer cannot use the partition of a topic that was looked up."""
    if topic is ErrorCode.KAFKA_STORAGE_ERROR:  # Java's clients throw on it, but retry on this error
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if isinstance(topic, ErrorCode):
        return topic
    return ErrorCode.NONE if 0 <= partition < topic.partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TopicLookup:
    """For one request. If the view lacks a topic, all topics are read from etcd, at most once per request.

    If etcd cannot be read, the result is COORDINATOR_NOT_AVAILABLE. `need` is asked for each topic.
    """

    def __init__(self, topics: TopicsView, asker: Asker, need: Need, *, by_id: bool = False) -> None:
        self._topics = topics
        self._asker = asker
        self._need = need
        self._by_id = by_id
        self._known: bool | None = None

    async def find(self, name: str, topic_id: bytes = NO_ID) -> Topic | ErrorCode:
        """The topic, unless it is unknown or being deleted. Does not wait if the view has it.

        KAFKA_STORAGE_ERROR if its record cannot be read: its offsets exist, so no consumer may start over.
        TOPIC_AUTHORIZATION_FAILED if the client may not use it; an id that no topic has is UNKNOWN_TOPIC_ID for every
        client, as in Kafka.
        """
        if not self._by_id and not self._asker.allows(self._need, name):
            return self._need.code
        found = await self._find(name, topic_id)
        if self._by_id and isinstance(found, Topic) and not self._asker.allows(self._need, found.name):
            return self._need.code
        return found

    async def _find(self, name: str, topic_id: bytes) -> Topic | ErrorCode:
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
