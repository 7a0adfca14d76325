"""Which member of a group owns which partition, and which topics its members subscribe to, as etcd has it. Planned
assignments are not in it.

Assignments and subscriptions of a classic group are bytes that clients give each other: what cannot be decoded names no
partition and no topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafscale.storage.groups import ClassicGroup, GroupState
from kafscale.storage.topics import Topic
from kafscale.wire.consumer_protocol import assigned, subscribed

CONSUMER: Final = "consumer"

GroupPartition = tuple[str, str, int]
"""Group, topic, partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    member: str
    client: str
    host: str


def owners(groups: Iterable[GroupState], topics: Iterable[Topic]) -> Mapping[GroupPartition, Owner]:
    """Partitions without an owner are not in it."""
    names = {topic.topic_id: topic.name for topic in topics}
    found: dict[GroupPartition, Owner] = {}
    for group in groups:
        if isinstance(group.state, ClassicGroup):
            if group.state.protocol_type != CONSUMER:
                continue
            for classic in group.state.members:
                owner = Owner(member=classic.id, client=classic.client_id, host=classic.client_host)
                for topic, partition in assigned(classic.assignment) or ():
                    found[group.group, topic, partition] = owner
            continue
        for member in group.state.members:
            owner = Owner(member=member.id, client=member.client_id, host=member.client_host)
            for each in member.assigned:
                name = names.get(each.topic_id)
                if name is not None:
                    found |= {(group.group, name, partition): owner for partition in each.partitions}
    return found


def subscriptions(group: GroupState) -> frozenset[str]:
    """Topics that its members subscribe to by name. The members of a regular expression's topics own partitions of
    them, see `owners`."""
    if not isinstance(group.state, ClassicGroup):
        return frozenset(name for member in group.state.members for name in member.subscribed)
    if group.state.protocol_type != CONSUMER:
        return frozenset()
    offered = (protocol for member in group.state.members for protocol in member.protocols)
    return frozenset(name for protocol in offered for name in subscribed(protocol.metadata) or ())


def is_managed(group: GroupState | None) -> bool:
    """Whether coordinators assign the group's partitions. Without it, a consumer assigns partitions to itself and only
    commits offsets, or a Spark query has a checkpoint: such a reader is no member of anything."""
    if group is None:
        return False
    return not isinstance(group.state, ClassicGroup) or bool(group.state.protocol_type)
