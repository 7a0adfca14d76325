"""Topics as requests of groups name them: by name, or since lately by id."""

from __future__ import annotations

from kafscale.storage.etcd import EtcdUnknown
from kafscale.storage.topics import Topic, TopicState, TopicsView
from kafscale.wire.errors import ErrorCode


async def find_topic(topics: TopicsView, name: str, topic_id: bytes, *, by_id: bool) -> Topic | None:
    """The topic, if it is there and not being deleted. A view that does not know it is refreshed first."""
    found = _seen(topics, name, topic_id, by_id=by_id)
    if found is None:
        try:
            await topics.refresh()
        except EtcdUnknown:
            return None
        found = _seen(topics, name, topic_id, by_id=by_id)
    return found


def _seen(topics: TopicsView, name: str, topic_id: bytes, *, by_id: bool) -> Topic | None:
    found = topics.by_id(topic_id) if by_id else topics.by_name(name)
    return found if found is not None and found.state is TopicState.ACTIVE else None


def unknown_topic(*, by_id: bool) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
