"""Topics as requests of groups name them: by name, or since lately by id.

Law: nobody is told that a topic is unknown before etcd has been read for it. A consumer whose topic is unknown
has no offset, begins anew, and commits over what it had.
"""

from __future__ import annotations

from kafscale.storage.etcd.client import EtcdError
from kafscale.storage.topics import Topic, TopicState, TopicsView
from kafscale.wire.errors import ErrorCode

NO_ID = b""


class TopicLookup:
    """For one request. A view that does not know a topic is refreshed first, once for all of them.

    The view is not trusted while etcd cannot be read: `COORDINATOR_NOT_AVAILABLE`.
    """

    def __init__(self, topics: TopicsView, *, by_id: bool = False) -> None:
        self._topics = topics
        self._by_id = by_id
        self._refreshed = False

    async def find(self, name: str, topic_id: bytes = NO_ID) -> Topic | ErrorCode:
        """The topic, unless it is unknown or being deleted. Does not wait for one that is known.

        KAFKA_STORAGE_ERROR for one whose record cannot be read: its offsets are there, and nobody may begin anew.
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
