"""Which member of a group owns which partition, as etcd has it. Planned assignments are not in it.

A classic group's assignment is bytes that clients give each other, so nothing in them is believed: one that does
not say partitions owns none.
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
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        name = data[at : at + max(length, 0)].decode()
        at += max(length, 0)
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        for _ in range(count):
            yield name, *_COUNT.unpack_from(data, at)
            at += _COUNT.size
