"""Where groups are: what they have committed, as etcd has it, and the partitions of their topics in which they have
committed nothing. Offsets of topics that are gone are left out.

A topic is a group's if the group has a committed offset in it, or if a member subscribes to it or owns a partition of
it. Where a group without a committed offset begins is decided by its clients (`auto.offset.reset`), which no server
knows. So such a partition counts as unread from its first record, as a new group reads it, and it is never judged.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafscale.lake.catalog import Lake
from kafscale.lake.lag.owners import owners, subscriptions
from kafscale.lake.unread import Readers
from kafscale.storage.consumer_groups import KEYS_PER_PAGE, stored_groups
from kafscale.storage.etcd.client import KeyValue
from kafscale.storage.groups import ClassicGroup, CommittedOffset, GroupState, decode_committed
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import Topic

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a group is in a partition. `offset` is None if it has not committed one there."""

    group: str
    topic: str
    partition: int
    offset: CommittedOffset | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Position):
    offset: CommittedOffset


async def read_commits(lake: Lake, topics: Iterable[Topic]) -> list[Commit]:
    """By group, topic and partition. What cannot be read is left out and logged."""
    names = {topic.topic_id: topic.name for topic in topics}
    found = await lake.etcd.prefix(lake.keys.commits_prefix())
    commits = []
    for kv in found.kvs:
        try:
            _, group, topic_id, partition = lake.keys.parse_committed(kv.key)
            name = names.get(topic_id)
            if name is not None:
                offset = decode_committed(kv.value)
                commits.append(Commit(group=group, topic=name, partition=partition, offset=offset))
        except UnreadableValue as error:
            log.error("committed offset skipped: %r: %s", kv.key, error)
    return sorted(commits, key=lambda commit: (commit.group, commit.topic, commit.partition))


async def read_groups(lake: Lake) -> Mapping[str, GroupState]:
    """group id -> its state; a group that only commits offsets by itself has none, and neither has one that cannot be
    read, which is named in the log."""
    found = await lake.etcd.prefix(lake.keys.groups_prefix(), page_keys=KEYS_PER_PAGE)
    states = {}
    for name, group in sorted(stored_groups(lake.keys, found.kvs, _pass_over).items()):
        if group.record is None:
            continue
        try:
            states[name] = group.assembled()
        except UnreadableValue as error:
            _pass_over(group.record, error)
    return states


def _pass_over(kv: KeyValue, error: Exception) -> None:
    log.error("group skipped: %r: %s", kv.key, error)


def state_of(group: GroupState) -> str:
    """The state's name, as far as it is stored: what a coordinator is doing just now is not."""
    if isinstance(group.state, ClassicGroup):
        return group.state.phase.name.lower()
    return "stable" if group.state.members else "empty"


def positions(
    commits: Iterable[Commit], groups: Mapping[str, GroupState], topics: Sequence[Topic]
) -> list[Position]:
    """By group, topic and partition. Every commit is in it."""
    counts = {topic.name: topic.partitions for topic in topics}
    found: dict[tuple[str, str, int], Position] = {}
    wanted = {(group, name) for group, state in groups.items() for name in subscriptions(state)}
    wanted |= {(group, name) for group, name, _ in owners(groups.values(), topics)}
    for commit in commits:
        wanted.add((commit.group, commit.topic))
        found[commit.group, commit.topic, commit.partition] = commit
    for group, name in wanted:
        for partition in range(counts.get(name, 0)):
            place = group, name, partition
            found.setdefault(place, Position(group=group, topic=name, partition=partition))
    return [found[place] for place in sorted(found)]


async def read_positions(
    lake: Lake, topics: Sequence[Topic]
) -> tuple[list[Position], Mapping[str, GroupState]]:
    """And the groups that were read for them. Raises EtcdError."""
    groups = await read_groups(lake)
    return positions(await read_commits(lake, topics), groups, topics), groups


async def read_readers(lake: Lake, topics: Sequence[Topic]) -> Readers:
    """The groups whose topics these are, with what they have committed. Raises EtcdError."""
    names = {topic.name for topic in topics}
    found: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for each in (await read_positions(lake, topics))[0]:
        if each.topic in names:
            readers = found[each.group, each.topic]
            if each.offset is not None:
                readers[each.partition] = each.offset.offset
    return found
