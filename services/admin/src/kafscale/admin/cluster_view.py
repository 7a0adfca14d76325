"""The cluster as clients see it: its id, brokers, controller and leaders.

Metadata, DescribeCluster and DescribeTopicPartitions use these functions, so their answers agree. The id is in etcd.
The rest comes from watched views, and nothing of it is stored.
"""

from __future__ import annotations

import base64

import structlog
from kafscale.admin.context import AdminContext
from kafscale.storage.brokers import Broker, brokers_on
from kafscale.storage.cluster_record import decode_cluster_id, encode_cluster
from kafscale.storage.etcd.client import Compare, EtcdClient, Put, Range, RangeResult, Txn
from kafscale.storage.history.history import History
from kafscale.storage.history.witness import WentBack
from kafscale.storage.keys import Keyspace
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.system import random_uuid
from kafscale.storage.topics import Topic, TopicState

log = structlog.get_logger(__name__)


async def cluster_id(etcd: EtcdClient, keys: Keyspace, now_ms: int, history: History) -> str:
    """The cluster's id, which the first admin creates: 16 random bytes in URL-safe base64, as Kafka's. Raises
    EtcdError, and WentBack, StoreError or TimeoutError if there is none and etcd is not known to be a new one.

    Empty if its record cannot be read: everything else works. Clients get an empty id, and never null, which ends
    librdkafka's.
    """
    key = keys.cluster()
    found = await etcd.get(key)
    if found is None:
        drawn = base64.urlsafe_b64encode(random_uuid().bytes).decode().rstrip("=")
        result = await etcd.txn(
            Txn(
                compare=(Compare(key, "version", "=", 0), await history.fenced()),
                success=(Put(key, encode_cluster(drawn, now_ms)),),
                failure=(Range(key),),
            )
        )
        if result.succeeded:
            return drawn
        held = result.responses[0]
        assert isinstance(held, RangeResult)
        if not held.kvs:
            raise WentBack("it does not hold a witness that it held a moment ago")
        found = held.kvs[0]
    try:
        return decode_cluster_id(found.value)
    except UnreadableValue as error:
        log.error("cluster id unreadable", why=str(error))
        return ""


async def brokers_of(context: AdminContext, listener: str | None) -> tuple[Broker, ...]:
    """By rising node id. If the view has no front door, etcd is read before the answer says that there is none."""
    if not context.front_doors.instances():
        await context.front_doors.refresh()
    return brokers_on(listener, context.front_doors.instances())


def controller_of(brokers: tuple[Broker, ...]) -> int:
    """Every broker accepts a controller's requests, so the first one is named."""
    return brokers[0].node_id if brokers else -1


def leader_epoch(context: AdminContext, topic: Topic, partition: int) -> int:
    """The epoch of the partition's owner, also of one that is gone. Before the first claim: that of the first owner."""
    owner = context.owners.of((topic.topic_id, partition))
    return owner.epoch if owner is not None else topic.first_epoch


def active(context: AdminContext) -> list[Topic]:
    """The topics that are not being deleted, by name."""
    topics = [topic for topic in context.topics.all() if topic.state is TopicState.ACTIVE]
    return sorted(topics, key=lambda topic: topic.name)


def active_by_name(context: AdminContext, name: str) -> Topic | None:
    topic = context.topics.by_name(name)
    return topic if topic is not None and topic.state is TopicState.ACTIVE else None
