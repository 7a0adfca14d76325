"""Topics as requests of groups name them: by name, or since lately by id."""

from __future__ import annotations

from kafscale.storage.etcd import EtcdError
from kafscale.storage.topics import Topic, TopicState, TopicsView
from kafscale.wire.errors import ErrorCode


class TopicLookup:
    """For one request. A view that does not know a topic is refreshed first, once for all of them."""

    def __init__(self, topics: TopicsView, *, by_id: bool = False) -> None:
        self._topics = topics
        self._by_id = by_id
        self._refreshed = False

    async def find(self, name: str, topic_id: bytes) -> Topic | None:
        """The topic, if it is there and not being deleted. Does not wait for one that is known."""
        found = self._seen(name, topic_id)
        if found is None and not self._refreshed:
            self._refreshed = True
            try:
                await self._topics.refresh()
            except EtcdError:
                return None
            found = self._seen(name, topic_id)
        return found

    def _seen(self, name: str, topic_id: bytes) -> Topic | None:
        found = self._topics.by_id(topic_id) if self._by_id else self._topics.by_name(name)
        return found if found is not None and found.state is TopicState.ACTIVE else None


def unknown_topic(*, by_id: bool) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
