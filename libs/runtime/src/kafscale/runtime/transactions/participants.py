"""Participants of transactions as values, and as the calls carry them. Pure."""

from __future__ import annotations

from collections import defaultdict

from kafscale.rpc.v1.transactions_pb2 import ParticipantSet
from kafscale.storage.keys import TOPIC_ID_BYTES, TopicId
from kafscale.storage.transactions import Participants


def participants_to_pb(participants: Participants) -> ParticipantSet:
    """Equal participants have equal messages."""
    by_topic: dict[TopicId, list[int]] = defaultdict(list)
    for topic_id, partition in sorted(participants.partitions):
        by_topic[topic_id].append(partition)
    message = ParticipantSet(groups=sorted(participants.groups))
    for topic_id, some in by_topic.items():
        message.partitions.add(topic_id=topic_id, partitions=some)
    return message


def participants_from_pb(message: ParticipantSet) -> Participants:
    """Of a message that was served or answered: those with wrong topic ids are refused before."""
    assert all(len(each.topic_id) == TOPIC_ID_BYTES for each in message.partitions), (
        "it was not decoded by Method"
    )
    partitions = frozenset(
        (TopicId(each.topic_id), partition) for each in message.partitions for partition in each.partitions
    )
    return Participants(partitions, frozenset(message.groups))
