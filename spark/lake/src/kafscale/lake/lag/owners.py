"""Which member of a group owns which partition, and which topics its members subscribe to, as etcd has it. Planned
assignments are not in it.

Assignments and subscriptions of a classic group are bytes that clients give each other, so the reader trusts nothing in
them: bytes that cannot be decoded name no partition and no topic.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final

from kafscale.storage.groups import ClassicGroup, GroupState
from kafscale.storage.topics import Topic

CONSUMER: Final = "consumer"
_VERSION: Final = Struct(">h")
_COUNT: Final = Struct(">i")
_LENGTH: Final = Struct(">h")

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
                for topic, partition in assigned(classic.assignment):
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
    return frozenset(name for protocol in offered for name in subscribed(protocol.metadata))


def is_managed(group: GroupState | None) -> bool:
    """Whether coordinators assign the group's partitions. Without it, a consumer assigns partitions to itself and only
    commits offsets, or a Spark query has a checkpoint: such a reader is no member of anything."""
    if group is None:
        return False
    return not isinstance(group.state, ClassicGroup) or bool(group.state.protocol_type)


def subscribed(metadata: bytes) -> list[str]:
    """Of a ConsumerProtocolSubscription, read as v0: all later versions begin with the same fields."""
    found: list[str] = []
    try:
        (topics,) = _COUNT.unpack_from(metadata, _VERSION.size)
        at = _VERSION.size + _COUNT.size
        for _ in range(topics):
            name, at = _name(metadata, at)
            found.append(name)
    except (struct.error, UnicodeDecodeError):
        return []
    return found


def assigned(assignment: bytes) -> list[tuple[str, int]]:
    """Of a ConsumerProtocolAssignment, read as v0: all later versions begin with the same fields."""
    try:
        return list(_assigned(assignment))
    except (struct.error, UnicodeDecodeError):
        return []


def _assigned(data: bytes) -> Iterator[tuple[str, int]]:
    (topics,) = _COUNT.unpack_from(data, _VERSION.size)
    at = _VERSION.size + _COUNT.size
    for _ in range(topics):
        name, at = _name(data, at)
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        for _ in range(count):
            yield name, *_COUNT.unpack_from(data, at)
            at += _COUNT.size


def _name(data: bytes, at: int) -> tuple[str, int]:
    """The string there, and where it ends."""
    (length,) = _LENGTH.unpack_from(data, at)
    begin = at + _LENGTH.size
    end = begin + max(length, 0)
    return data[begin:end].decode(), end
