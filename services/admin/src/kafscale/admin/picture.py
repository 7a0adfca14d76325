"""What clients are told of the cluster: brokers, controller, leaders. Read off watched views; nothing is stored.

Metadata, DescribeCluster and DescribeTopicPartitions say the same, since all of them ask here.
"""

from __future__ import annotations

from kafscale.admin.context import AdminContext
from kafscale.storage.brokers import Broker, brokers_on
from kafscale.storage.topics import Topic, TopicState

UNKNOWN_EPOCH = -1
# Bit n stands for AclOperation n. Without an authorizer everything is allowed (KIP-430).
TOPIC_OPERATIONS = 0b1101_1111_1000
CLUSTER_OPERATIONS = 0b1_1111_1010_0000


async def brokers_of(context: AdminContext, listener: str | None) -> tuple[Broker, ...]:
    """By rising node id; etcd is asked once more before anybody hears that there are none."""
    if not context.front_doors.instances():
        await context.front_doors.refresh()
    return brokers_on(listener, context.front_doors.instances())


def controller_of(brokers: tuple[Broker, ...]) -> int:
    """Every broker takes what a controller takes: clients are told the first."""
    return brokers[0].node_id if brokers else -1


def leader_epoch(context: AdminContext, topic: Topic, partition: int) -> int:
    """That of the partition's owner; -1 while nobody has claimed it."""
    owner = context.owners.items.get(context.keys.owner(topic.topic_id, partition))
    return owner.epoch if owner is not None else UNKNOWN_EPOCH


def active(context: AdminContext) -> list[Topic]:
    """The topics that are not being deleted, by name."""
    topics = [topic for topic in context.topics.all() if topic.state is TopicState.ACTIVE]
    return sorted(topics, key=lambda topic: topic.name)


def active_by_name(context: AdminContext, name: str) -> Topic | None:
    topic = context.topics.by_name(name)
    return topic if topic is not None and topic.state is TopicState.ACTIVE else None
