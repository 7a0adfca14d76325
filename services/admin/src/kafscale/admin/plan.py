"""Plans of topic changes: pure functions from the state that was read to one etcd transaction.

Every transaction compares the revision that it was planned from, so if two admins plan at once, one of them fails and
reads again. Order of a deletion: 1. the record becomes DELETING, after which no claim succeeds; 2. the highest leader
epoch is written to /e/{name} and the heads are deleted, which ends every commit; 3. the objects are deleted; 4. the
record is deleted and the name is free (docs/protocol/commit.md, topics).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kafscale.admin.configs import TOPIC_CONFIGS
from kafscale.storage.etcd.client import Compare, Delete, Put, Txn
from kafscale.storage.keys import Keyspace, prefix_end
from kafscale.storage.topics import (
    INTERNAL_TOPICS,
    REPLICATION_MAX,
    Topic,
    TopicState,
    encode_epoch_floor,
    encode_topic,
)
from kafscale.wire.errors import ErrorCode

NAME_LENGTH_MAX = 249
CLUSTER_METADATA = "__cluster_metadata"
RESERVED_NAMES = INTERNAL_TOPICS | {CLUSTER_METADATA}
"""Nobody creates a topic with such a name."""
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
PARTITIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Refused:
    """A client's mistake: the Kafka error, and a message for the versions that have one."""

    error: ErrorCode
    message: str


class Assignment(NamedTuple):
    """Of one partition in a request. Which brokers it names is ignored, because every front door serves it."""

    partition: int
    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic of a request; -1 means the default, as in CreateTopics v4+."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[Assignment] = ()
    configs: Mapping[str, str | None] | None = None

    @property
    def asked_replication(self) -> int:
        """What the topic's record remembers; 0: the server's default."""
        return self.assignments[0].replicas if self.assignments else max(self.replication_factor, 0)


def invalid_topic_name(name: str) -> str | None:
    """Why `name` is not a topic name, or None. The rule is Kafka's, and makes each name a safe folder in the bucket."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return f"the topic name cannot be '{name}'"
    if len(name) > NAME_LENGTH_MAX:
        return f"the topic name has {len(name)} characters, {NAME_LENGTH_MAX} at most"
    if _LEGAL_NAME.fullmatch(name) is None:
        return f"the topic name {name!r} holds characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def check_new_topic(asked: NewTopic, existing: Iterable[str], partitions_default: int) -> Refused | int:
    """The partition count of the new topic, or why it is refused."""
    reason = invalid_topic_name(asked.name)
    if reason is not None:
        return Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    clash = colliding_name(asked.name, existing)
    if clash == asked.name:
        return Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists.")
    if asked.name in RESERVED_NAMES:
        return _reserved(asked.name)
    if clash is not None:
        return Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{asked.name}' collides with existing topic: {clash}"
        )
    reason = TOPIC_CONFIGS.invalid(asked.configs or {})
    if reason is not None:
        return Refused(ErrorCode.INVALID_CONFIG, reason)
    return _partition_count(asked, partitions_default)


def _reserved(name: str) -> Refused:
    """In Kafka the other topics exist, or the broker creates them."""
    if name == CLUSTER_METADATA:
        return Refused(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    return Refused(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"The topic name '{name}' is reserved: Kafka keeps its own state in it, and KafScale keeps that state in etcd. "
        "Programs that read this topic cannot work here (docs/ecosystem.md).",
    )


def colliding_name(name: str, existing: Iterable[str]) -> str | None:
    """The name itself, or one that differs only in '.' and '_', which collide in the metric names of Kafka."""
    folded = name.replace(".", "_")
    found = None
    for other in existing:
        if other == name:
            return other
        if other.replace(".", "_") == folded:
            found = other
    return found


def _partition_count(asked: NewTopic, partitions_default: int) -> Refused | int:
    if asked.assignments:
        if asked.partitions != -1 or asked.replication_factor != -1:
            return Refused(
                ErrorCode.INVALID_REQUEST,
                "Either a count and a replication factor or assignments can be given, not both.",
            )
        return _assigned(asked.assignments)
    if asked.replication_factor != -1 and not 1 <= asked.replication_factor <= REPLICATION_MAX:
        return Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor must be -1 or 1 to {REPLICATION_MAX}; the object store replicates.",
        )
    count = partitions_default if asked.partitions == -1 else asked.partitions
    return _bounded_count(count)


def _assigned(assignments: Sequence[Assignment]) -> Refused | int:
    counts = {each.replicas for each in assignments}
    if sorted(each.partition for each in assignments) != list(range(len(assignments))):
        reason = "The assigned partitions must be numbered from 0."
    elif len(counts) > 1:
        reason = "The assignments of all partitions must have the same number of replicas."
    elif not counts <= set(range(1, REPLICATION_MAX + 1)):
        reason = f"An assignment must have 1 to {REPLICATION_MAX} replicas."
    else:
        return _bounded_count(len(assignments))
    return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _bounded_count(count: int) -> Refused | int:
    if not 1 <= count <= PARTITIONS_MAX:
        return Refused(
            ErrorCode.INVALID_PARTITIONS, f"Number of partitions must be 1 to {PARTITIONS_MAX}, not {count}."
        )
    return count


def create(keys: Keyspace, topic: Topic, floor_revision: int) -> Txn:
    """Creates the topic if its name is free and the epoch floor has not changed."""
    return Txn(
        compare=(
            Compare(keys.topic(topic.name), "version", "=", 0),
            Compare(keys.epoch_floor(topic.name), "mod", "=", floor_revision),
        ),
        success=(Put(keys.topic(topic.name), encode_topic(topic)),),
    )


def replace_record(keys: Keyspace, old: Topic, new: Topic) -> Txn:
    """Replaces the record if it has not changed since it was read."""
    return Txn(
        compare=(Compare(keys.topic(old.name), "mod", "=", old.mod_revision),),
        success=(Put(keys.topic(old.name), encode_topic(new)),),
    )


def with_configs(topic: Topic, configs: Mapping[str, str]) -> Topic:
    return replace(topic, configs=dict(configs), config_version=topic.config_version + 1)


def grow(topic: Topic, count: int) -> Topic | Refused:
    """The topic with `count` partitions; counts only grow."""
    if count <= topic.partitions:
        return Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {topic.partitions} partitions, which is not lower than the requested {count}.",
        )
    bounded = _bounded_count(count)
    return bounded if isinstance(bounded, Refused) else replace(topic, partitions=bounded)


def mark_deleting(topic: Topic) -> Topic:
    return replace(topic, state=TopicState.DELETING)


def drop_heads(keys: Keyspace, topic: Topic, floor: int) -> Txn:
    """Ends every commit of a DELETING topic, and saves its highest epoch for the next topic with this name."""
    kinds = (keys.heads_prefix, keys.metas_prefix, keys.owners_prefix, keys.compaction_passes_prefix)
    prefixes = [prefix(topic.topic_id) for prefix in kinds]
    return Txn(
        compare=(Compare(keys.topic(topic.name), "mod", "=", topic.mod_revision),),
        success=(
            Put(keys.epoch_floor(topic.name), encode_epoch_floor(floor)),
            *(Delete(prefix, prefix_end(prefix)) for prefix in prefixes),
        ),
    )


def free_name(keys: Keyspace, topic: Topic) -> Txn:
    """The last step of a deletion."""
    return Txn(
        compare=(Compare(keys.topic(topic.name), "mod", "=", topic.mod_revision),),
        success=(Delete(keys.topic(topic.name)),),
    )
